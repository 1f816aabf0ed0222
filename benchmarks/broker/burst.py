"""Throughput when publishers write as fast as the broker reads."""

import select
import socket
import time

from benchmarks.broker.clients import STALL_S, clients
from benchmarks.broker.peers import Peer, PeerFailed
from benchmarks.broker.workloads import Traffic

_WRITE_BYTES = 64 * 1024
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
        self._rest = self._rest[self._client.send(self._rest) :]
        return more or bool(self._rest)


def deliveries_per_second(peer: Peer, port: int, traffic: Traffic, duration_s: float) -> float:
    """Publish for ``duration_s``, wait for every delivery; return deliveries per second.

    Counts from the first byte sent to the last byte received. Raises ``PeerFailed`` if the broker
    hangs up, or if a byte too few or too many is delivered: loss is never counted as speed.
    """
    payload = b"x" * traffic.payload_bytes
    delivery_bytes = len(peer.wire.delivery(traffic.publishers[0][0], payload, 0))
    with clients(peer, port, traffic) as (publishers, subscribers):
        writers = {}
        for client, topics in zip(publishers, traffic.publishers, strict=True):
            once = b"".join(peer.wire.publication(topic, payload) for topic in topics)
            times = max(1, _WRITE_BYTES // len(once))
            writers[client.fileno()] = _Publisher(client, once * times, times * len(topics))
        readers = {client.fileno(): client for client in subscribers}
        got = dict.fromkeys(readers, 0)
        elapsed = _exchange(peer, writers, readers, got, delivery_bytes, duration_s, traffic)
    sent = sum(writer.sent for writer in writers.values())
    return sent * traffic.fan_out / elapsed


def _exchange(
    peer: Peer,
    writers: dict[int, _Publisher],
    readers: dict[int, socket.socket],
    got: dict[int, int],
    delivery_bytes: int,
    duration_s: float,
    traffic: Traffic,
) -> float:
    poll = select.epoll()
    with poll:
        for fd in writers:
            poll.register(fd, select.EPOLLOUT)
        for fd in readers:
            poll.register(fd, select.EPOLLIN)
        buffer = bytearray(_READ_BYTES)
        started = time.perf_counter()
        writing = len(writers)
        while writing or sum(got.values()) < _expected(writers, traffic) * delivery_bytes:
            events = poll.poll(STALL_S)
            now = time.perf_counter()
            if not events:
                break
            for fd, _ in events:
                if fd in readers:
                    size = readers[fd].recv_into(buffer)
                    if not size:
                        raise PeerFailed(f"{peer.name} hung up on a subscriber")
                    got[fd] += size
                elif not writers[fd].send(now - started < duration_s):
                    poll.unregister(fd)
                    writing -= 1
        elapsed = time.perf_counter() - started
        # Anything more than was expected is as wrong as anything less.
        for fd, _ in poll.poll(0):
            if fd in readers:
                got[fd] += readers[fd].recv_into(buffer)
    _check(peer, sum(got.values()), _expected(writers, traffic) * delivery_bytes, delivery_bytes)
    return elapsed


def _expected(writers: dict[int, _Publisher], traffic: Traffic) -> int:
    return sum(writer.sent for writer in writers.values()) * traffic.fan_out


def _check(peer: Peer, got: int, expected: int, delivery_bytes: int) -> None:
    if got != expected:
        count, of = (expected - got) / delivery_bytes, expected // delivery_bytes
        raise PeerFailed(f"{peer.name} lost {count:.1f} of {of} deliveries")
