"""Throughput when publishers write as fast as the broker reads."""

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Callable

from benchmarks.broker.clients import STALL_S, WOULD_BLOCK, clients
from benchmarks.broker.generator import Load, Publisher
from benchmarks.broker.metering import Measured, Meter
from benchmarks.broker.peers import Peer, PeerFailed, Running

_READ_BYTES = 256 * 1024
_RECORD_BYTES = 16 * 1024  # of TLS, at most
_LONGEST_S = 60.0  # of a measurement; who takes longer has failed
_CHECKED_WRITE_BYTES = 16 * 1024  # of each publisher, whose deliveries are compared


def measure(
    peer: Peer, broker: Running, load: Load, duration_s: float, publications: int = 0
) -> Measured:
    """Publish for ``duration_s``, or ``publications`` of each publisher; wait for every delivery.

    Counts from the first byte sent to the last byte received. Raises ``PeerFailed`` if the broker
    hangs up, takes longer than a minute, or if any subscriber gets a byte too few or too many: loss
    is never counted as speed.
    """
    with clients(peer, broker, load.traffic) as (publishers, subscribers):
        writers = [Publisher(*pair) for pair in zip(publishers, load.blocks, strict=True)]
        exchange = _Exchange(peer, load, publishers, writers, subscribers)
        if publications:
            return exchange.run(broker, lambda writer, _: writer.sent < publications)
        return exchange.run(broker, lambda _, elapsed_s: elapsed_s < duration_s)


def check(peer: Peer, broker: Running, load: Load) -> None:
    """Compare the deliveries of the first publications, byte by byte; not measured.

    Raises ``PeerFailed`` if they are not those that were due, in the order of each publisher.
    """
    with clients(peer, broker, load.traffic) as (publishers, subscribers):
        writers = [
            Publisher(client, block, _CHECKED_WRITE_BYTES)
            for client, block in zip(publishers, load.blocks, strict=True)
        ]
        exchange = _Exchange(peer, load, publishers, writers, subscribers)
        heard: dict[int, bytearray] = {client.fileno(): bytearray() for client in subscribers}
        exchange.run(broker, lambda writer, _: not writer.sent, heard)
        sent = [writer.sent for writer in writers]
        for number, stream in enumerate(heard.values()):
            if difference := load.difference(number, sent, bytes(stream)):
                raise PeerFailed(f"{peer.name} delivered something else: {difference}")


class _Exchange:
    """One run of a load through one broker."""

    def __init__(
        self,
        peer: Peer,
        load: Load,
        publishers: list[socket.socket],
        writers: list[Publisher],
        subscribers: list[socket.socket],
    ) -> None:
        self._peer = peer
        self._load = load
        self._writers = {
            client.fileno(): writer for client, writer in zip(publishers, writers, strict=True)
        }
        # Publishers are read, too, where the broker answers them.
        reading = [*subscribers, *(publishers if load.answer_bytes else [])]
        self._readers = {client.fileno(): client for client in reading}
        self._got = dict.fromkeys(self._readers, 0)

    def run(
        self,
        broker: Running,
        more: Callable[[Publisher, float], bool],
        heard: dict[int, bytearray] | None = None,
    ) -> Measured:
        """Publish while ``more`` (publisher, seconds since the start); see that all arrives.

        ``heard``: by file, what is read is appended here.
        """
        readers, writers, got = self._readers, self._writers, self._got
        buffer = bytearray(_READ_BYTES)
        writing = set(writers)
        missing = 0  # bytes, known when all is written
        with select.epoll() as poll:
            for fd in {*readers, *writers}:
                reads = select.EPOLLIN if fd in readers else 0
                poll.register(fd, reads | (select.EPOLLOUT if fd in writers else 0))
            meter = Meter(broker.pid)
            while writing or missing > 0:
                events = poll.poll(STALL_S)
                elapsed_s = time.perf_counter() - meter.started
                if not events or elapsed_s > _LONGEST_S:
                    break
                for fd, event in events:
                    if event & ~select.EPOLLOUT and fd in readers:
                        size = _read(readers[fd], buffer)
                        if not size:
                            raise PeerFailed(f"{self._peer.name} hung up on a client")
                        if size > 0:
                            got[fd] += size
                            missing -= size
                            if heard is not None and fd in heard:
                                heard[fd] += buffer[:size]
                    if event & ~select.EPOLLIN and fd in writing:
                        try:
                            on = writers[fd].send(more(writers[fd], elapsed_s))
                        except ConnectionError:
                            raise PeerFailed(f"{self._peer.name} hung up on a publisher") from None
                        if not on:
                            writing.discard(fd)
                            if fd in readers:
                                poll.modify(fd, select.EPOLLIN)
                            else:
                                poll.unregister(fd)
                            if not writing:
                                missing = sum(self._due()) - sum(got.values())
            publications = sum(writer.sent for writer in writers.values())
            measured = meter.stop(publications * self._load.traffic.fan_out)
            # Anything more than was expected is as wrong as anything less.
            for fd, event in poll.poll(0):
                if event & select.EPOLLIN:
                    got[fd] += max(0, _read(readers[fd], buffer))
        self._judge()
        return measured

    def _due(self) -> list[int]:
        """Return the bytes that are due by now to each who is read."""
        sent = [writer.sent for writer in self._writers.values()]
        subscribers = len(self._load.traffic.subscribers)
        due = [self._load.bytes_due(number, sent) for number in range(subscribers)]
        return [*due, *self._load.answers_due(sent)]

    def _judge(self) -> None:
        pairs = list(zip(self._got.values(), self._due(), strict=True))
        wrong = [pair for pair in pairs if pair[0] - pair[1] not in (0, self._load.aside_bytes)]
        if wrong:
            got, due = wrong[0]
            what = "lost" if got < due else "delivered too much:"
            raise PeerFailed(
                f"{self._peer.name} {what} {abs(due - got)} bytes of {due} to a client; "
                f"{len(wrong)} of {len(pairs)} clients got what was not due"
            )


def _read(client: socket.socket, buffer: bytearray) -> int:
    """Return how many bytes were read, 0 when the broker hung up, -1 when there were none."""
    size = -1
    with contextlib.suppress(*WOULD_BLOCK):
        size = client.recv_into(buffer)
        if isinstance(client, ssl.SSLSocket):
            # A read returns one record at most. Of a part of one epoll would not tell the rest.
            view = memoryview(buffer)
            whole = len(buffer) - _RECORD_BYTES
            while 0 < size <= whole and (more := client.recv_into(view[size:])):
                size += more
    return size
