"""Throughput when publishers write as fast as the broker reads."""

import contextlib
import select
import socket
import ssl
import time

from benchmarks.broker.clients import STALL_S, WOULD_BLOCK, clients
from benchmarks.broker.metering import Measured, Meter
from benchmarks.broker.peers import Peer, PeerFailed, Running
from benchmarks.broker.workloads import Traffic

_WRITE_BYTES = 256 * 1024
_READ_BYTES = 256 * 1024


class _Publisher:
    """Sends one block of publications again and again, and never ends within one."""

    def __init__(self, client: socket.socket, block: bytes, block_count: int) -> None:
        self.sent = 0  # messages of the blocks that were begun
        self._client = client
        self._block = memoryview(block)
        self._block_count = block_count
        self._rest = self._block[:0]

    def send(self, more: bool) -> bool:
        """Send what fits; False when nothing is left to send."""
        if not self._rest:
            if not more:
                return False
            self._rest = self._block
            self.sent += self._block_count
        with contextlib.suppress(*WOULD_BLOCK):
            self._rest = self._rest[self._client.send(self._rest) :]
        return more or bool(self._rest)


def measure(peer: Peer, broker: Running, traffic: Traffic, duration_s: float) -> Measured:
    """Publish for ``duration_s``, wait for every delivery.

    Counts from the first byte sent to the last byte received. Raises ``PeerFailed`` if the broker
    hangs up, or if a byte too few or too many is delivered: loss is never counted as speed.
    """
    payload = b"x" * traffic.payload_bytes
    delivery_bytes = len(peer.wire.delivery(traffic.publishers[0][0], payload, 0))
    with clients(peer, broker, traffic) as (publishers, subscribers):
        writers = {}
        for client, topics in zip(publishers, traffic.publishers, strict=True):
            once = b"".join(peer.wire.publication(topic, payload) for topic in topics)
            times = max(1, _WRITE_BYTES // len(once))
            writers[client.fileno()] = _Publisher(client, once * times, times * len(topics))
        readers = {client.fileno(): client for client in subscribers}
        return _exchange(peer, broker, writers, readers, delivery_bytes, duration_s, traffic)


def _exchange(
    peer: Peer,
    broker: Running,
    writers: dict[int, _Publisher],
    readers: dict[int, socket.socket],
    delivery_bytes: int,
    duration_s: float,
    traffic: Traffic,
) -> Measured:
    buffer = bytearray(_READ_BYTES)
    with select.epoll() as poll:
        for fd in writers:
            poll.register(fd, select.EPOLLOUT)
        for fd in readers:
            poll.register(fd, select.EPOLLIN)
        got = 0
        writing = len(writers)
        meter = Meter(broker.pid)
        while writing or got < _expected(writers, traffic) * delivery_bytes:
            events = poll.poll(STALL_S)
            if not events:
                break
            more = time.perf_counter() - meter.started < duration_s
            for fd, _ in events:
                if fd in readers:
                    size = _read(readers[fd], buffer)
                    if not size:
                        raise PeerFailed(f"{peer.name} hung up on a subscriber")
                    got += max(0, size)
                elif not writers[fd].send(more):
                    poll.unregister(fd)
                    writing -= 1
        expected = _expected(writers, traffic)
        measured = meter.stop(expected)
        # Anything more than was expected is as wrong as anything less.
        got += sum(max(0, _read(readers[fd], buffer)) for fd, _ in poll.poll(0) if fd in readers)
    if got != expected * delivery_bytes:
        missing = expected - got / delivery_bytes
        raise PeerFailed(f"{peer.name} lost {missing:.1f} of {expected} deliveries")
    return measured


def _read(client: socket.socket, buffer: bytearray) -> int:
    """Return how many bytes were read, 0 when the broker hung up, -1 when there were none."""
    size = -1
    with contextlib.suppress(*WOULD_BLOCK):
        size = client.recv_into(buffer)
        if isinstance(client, ssl.SSLSocket):
            # A read returns one record; what is decrypted already, epoll does not tell.
            while size < _READ_BYTES and (more := client.recv_into(buffer)):
                size += more
    return size


def _expected(writers: dict[int, _Publisher], traffic: Traffic) -> int:
    return sum(writer.sent for writer in writers.values()) * traffic.fan_out
