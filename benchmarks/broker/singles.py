"""Throughput when every read of the broker returns one publication.

Every publisher has at most one publication under way: it sends its next one when its last one was
delivered to all who listen. All of them do so at once and as fast as they can. So no read can
return two frames of a client, and there is no window, no pace and no chunk that could be tuned.

Nothing here may set ``SO_RCVLOWAT``: the kernel then acknowledges late, by its timer of 40 ms, and
a broker that writes small segments waits for that with a full congestion window.
"""

import select
import socket
import struct
import time

from benchmarks.broker.clients import STALL_S, clients
from benchmarks.broker.metering import Measured, Meter
from benchmarks.broker.peers import Peer, PeerFailed, Running
from benchmarks.broker.workloads import Traffic

_READ_BYTES = 256 * 1024
_NUMBER = struct.Struct("<H")  # of the publisher: the first two bytes of each payload


class _Subscriber:
    """Tells of which publishers the deliveries are; all are as long."""

    def __init__(self, client: socket.socket, delivery_bytes: int, number_at: int) -> None:
        self._client = client
        self._size = delivery_bytes
        self._form = struct.Struct(
            f"<{number_at}x{_NUMBER.format[1:]}{delivery_bytes - number_at - _NUMBER.size}x"
        )
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._filled = 0  # bytes of a delivery that has not come whole

    def receive(self) -> list[int] | None:
        """Read once, which does not block; None when the broker hung up."""
        size = self._client.recv_into(self._buffer[self._filled :])
        if not size:
            return None
        filled = self._filled + size
        whole = filled // self._size * self._size
        numbers = [number for (number,) in self._form.iter_unpack(self._buffer[:whole])]
        self._filled = filled - whole
        self._buffer[: self._filled] = bytes(self._buffer[whole:filled])
        return numbers


def measure(peer: Peer, broker: Running, traffic: Traffic, duration_s: float) -> Measured:
    """Publish for ``duration_s``, wait for every delivery.

    Raises ``PeerFailed`` if the broker hangs up, a delivery is still missing 10 s later, or one
    comes that was not due.
    """
    rest = b"x" * (traffic.payload_bytes - _NUMBER.size)
    publications = [
        peer.wire.publication(topics[0], _NUMBER.pack(number) + rest)
        for number, topics in enumerate(traffic.publishers)
    ]
    example = peer.wire.delivery(traffic.publishers[0][0], b"\xff" * _NUMBER.size + rest, 0)
    number_at = example.index(b"\xff" * _NUMBER.size)
    with clients(peer, broker, traffic) as (publishers, subscribers), select.epoll() as poll:
        readers = {}
        for client in subscribers:
            poll.register(client, select.EPOLLIN)
            readers[client.fileno()] = _Subscriber(client, len(example), number_at)
        sends = [client.send for client in publishers]
        missing = [0] * len(sends)  # deliveries of the publication that a publisher has under way
        ready = list(range(len(sends)))
        sent = heard = 0
        meter = Meter(broker.pid)
        end = meter.started + duration_s
        while heard < sent * traffic.fan_out or time.perf_counter() < end:
            if ready and time.perf_counter() < end:
                for number in ready:
                    missing[number] = traffic.fan_out
                    sends[number](publications[number])
                sent += len(ready)
                ready = []
            events = poll.poll(STALL_S)
            if not events:
                raise PeerFailed(f"{peer.name} lost {sent * traffic.fan_out - heard} deliveries")
            for fd, _ in events:
                numbers = readers[fd].receive()
                if numbers is None:
                    raise PeerFailed(f"{peer.name} hung up on a subscriber")
                heard += len(numbers)
                ready += _finished(peer, missing, numbers)
        measured = meter.stop(heard)
        if any(missing) or poll.poll(0):
            raise PeerFailed(f"{peer.name} delivered other publications than were due")
    return measured


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
