"""Throughput when every read of the broker returns one publication: many publishers, each of
which sends its next one only after its last one was delivered."""

import select
import socket
import time

from benchmarks.broker.clients import STALL_S, clients
from benchmarks.broker.peers import Peer, PeerFailed
from benchmarks.broker.workloads import Traffic

# Publications under way. Fewer than publishers: each has at most one, as they take turns.
_WINDOW_SHARE = 0.8
_CHUNK_SHARE = 0.2  # sent between two looks at what was delivered
_READ_BYTES = 256 * 1024


class _Reader:
    """A subscriber of deliveries that are all as long."""

    def __init__(self, peer: Peer, client: socket.socket, delivery_bytes: int) -> None:
        self._peer = peer
        self._client = client
        self._delivery_bytes = delivery_bytes
        self._got = 0
        self._buffer = bytearray(_READ_BYTES)
        self._poll = select.poll()
        self._poll.register(client, select.POLLIN)

    def wake_at(self, count: int) -> None:
        """Let the kernel wake us only for so many deliveries, so that waiting costs little."""
        size = count * self._delivery_bytes
        self._client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def wait(self, wanted: int) -> None:
        """Return when there were ``wanted`` deliveries since the start."""
        while (missing := wanted * self._delivery_bytes - self._got) > 0:
            try:
                size = self._client.recv_into(self._buffer)
            except BlockingIOError:
                if not self._poll.poll(STALL_S * 1000):
                    count = missing / self._delivery_bytes
                    raise PeerFailed(
                        f"{self._peer.name} lost {count:.1f} deliveries, or stalls"
                    ) from None
                continue
            if not size:
                raise PeerFailed(f"{self._peer.name} hung up on a subscriber")
            self._got += size


def deliveries_per_second(peer: Peer, port: int, traffic: Traffic, duration_s: float) -> float:
    """Publish for ``duration_s``, wait for every delivery; return deliveries per second.

    Raises ``PeerFailed`` if the broker hangs up or deliveries are missing 10 s later.
    """
    payload = b"x" * traffic.payload_bytes
    delivery_bytes = len(peer.wire.delivery(traffic.publishers[0][0], payload, 0))
    with clients(peer, port, traffic) as (publishers, subscribers):
        frames = [peer.wire.publication(topics[0], payload) for topics in traffic.publishers]
        turns = list(zip(publishers, frames, strict=True))
        readers = [_Reader(peer, client, delivery_bytes) for client in subscribers]
        chunk = max(1, int(len(turns) * _CHUNK_SHARE))
        window = max(1, int(len(turns) * _WINDOW_SHARE))
        for reader in readers:
            reader.wake_at(chunk)
        sent = turn = 0
        started = time.perf_counter()
        while time.perf_counter() - started < duration_s:
            for client, frame in turns[turn : turn + chunk]:
                client.send(frame)
            sent += chunk
            turn = (turn + chunk) % len(turns)
            for reader in readers:
                reader.wait(sent - window + chunk)
        for reader in readers:
            reader.wake_at(1)
            reader.wait(sent)
        elapsed = time.perf_counter() - started
    return sent * traffic.fan_out / elapsed
