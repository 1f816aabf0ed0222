"""Throughput when every read of the broker returns one publication.

Every publisher has at most one publication under way: it sends its next one when its last one was
delivered to all who listen. All of them do so at once and as fast as they can. So no read can
return two frames of a client, and there is no window, no pace and no chunk that could be tuned.

Nothing here may set ``SO_RCVLOWAT``: the kernel then acknowledges late, by its timer of 40 ms, and
a broker that writes small segments waits for that with a full congestion window.
"""

import select
import socket
import time

from benchmarks.broker.clients import STALL_S, clients
from benchmarks.broker.generator import Load
from benchmarks.broker.metering import Measured, Meter
from benchmarks.broker.peers import Peer, PeerFailed, Running
from benchmarks.broker.workloads import NUMBERED, NUMBERED_BYTES

_READ_BYTES = 256 * 1024


class _Subscriber:
    """Tells of which publishers the deliveries are; their payloads end with a number."""

    def __init__(self, client: socket.socket) -> None:
        self.got = 0  # bytes
        self._client = client
        self._rest = b""  # the last bytes of what was read; a number may begin there

    def receive(self) -> list[int] | None:
        """Read once, which does not block; None when the broker hung up."""
        data = self._client.recv(_READ_BYTES)
        if not data:
            return None
        self.got += len(data)
        data = self._rest + data
        self._rest = data[1 - NUMBERED_BYTES :]
        return [int(number) for number in NUMBERED.findall(data)]


def measure(peer: Peer, broker: Running, load: Load, duration_s: float) -> Measured:
    """Publish for ``duration_s``, wait for every delivery.

    Each publisher's block is one publication, its payload ``workloads.numbered``. Raises
    ``PeerFailed`` if the broker hangs up, a delivery is still missing 10 s later, or one comes that
    was not due, or a byte more or less than was due.
    """
    fan_out = load.traffic.fan_out
    with clients(peer, broker, load.traffic) as (publishers, subscribers), select.epoll() as poll:
        readers = {client.fileno(): _Subscriber(client) for client in subscribers}
        for fd in readers:
            poll.register(fd, select.EPOLLIN)
        sends = [client.send for client in publishers]
        publications = [block.data for block in load.blocks]
        missing = [0] * len(sends)  # deliveries of the publication that a publisher has under way
        counts = [0] * len(sends)  # publications sent
        ready = list(range(len(sends)))
        under_way = 0  # deliveries
        meter = Meter(broker.pid)
        end = meter.started + duration_s
        while under_way or time.perf_counter() < end:
            if ready and time.perf_counter() < end:
                for number in ready:
                    missing[number] = fan_out
                    counts[number] += 1
                    sends[number](publications[number])
                under_way += len(ready) * fan_out
                ready = []
            events = poll.poll(STALL_S)
            if not events:
                raise PeerFailed(f"{peer.name} lost {under_way} deliveries")
            for fd, _ in events:
                numbers = readers[fd].receive()
                if numbers is None:
                    raise PeerFailed(f"{peer.name} hung up on a subscriber")
                under_way -= len(numbers)
                ready += _finished(peer, missing, numbers)
        measured = meter.stop(sum(counts) * fan_out)
        due = [load.bytes_due(number, counts) for number in range(len(subscribers))]
        _take_the_rest(peer, poll, readers, due)
        if any(missing):
            raise PeerFailed(f"{peer.name} delivered other publications than were due")
    return measured


def _take_the_rest(
    peer: Peer, poll: select.epoll, readers: dict[int, _Subscriber], due: list[int]
) -> None:
    """Read what may follow the last number, and see that it is what was due."""
    while sum(due) > sum(reader.got for reader in readers.values()):
        events = poll.poll(STALL_S)
        for fd, _ in events:
            if readers[fd].receive() != []:
                raise PeerFailed(f"{peer.name} delivered other publications than were due")
        if not events:
            break
    if poll.poll(0) or due != [reader.got for reader in readers.values()]:
        raise PeerFailed(f"{peer.name} delivered other bytes than were due")


def _finished(peer: Peer, missing: list[int], numbers: list[int]) -> list[int]:
    """Count deliveries; return the publishers whose publication all have got."""
    finished = []
    try:
        for number in numbers:
            missing[number] -= 1
            if not missing[number]:
                finished.append(number)
    except IndexError:
        raise PeerFailed(f"{peer.name} delivered bytes that nobody published") from None
    return finished
