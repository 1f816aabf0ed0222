"""Publications acknowledged per second, and how long an acknowledgement takes.

Each client has so many publications under way that are not acknowledged, and sends another one for
each that is. All clients are in this process. The levels of ``journal.ack`` take turns, so that
what disturbs the machine disturbs all of them.
"""

import contextlib
import select
import socket
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.broker.clients import STALL_S
from benchmarks.broker.peers import Peer, PeerFailed, Running, running
from benchmarks.broker.wires import FMQP

LEVELS = ("memory", "written", "synced")
_READ_BYTES = 256 * 1024
_WARM_UP_S = 0.3


@dataclass(frozen=True, slots=True)
class Row:
    """One way to publish.

    ``begin``: what client number so-and-so says first, and what the answer ends with. ``unit``:
    what it says to have ``messages`` publications acknowledged; the answer is always equally long.
    """

    name: str
    title: str
    clients: int
    under_way: int  # units of each client
    messages: int  # of a unit
    begin: Callable[[int], tuple[bytes, bytes]]
    unit: Callable[[int], bytes]


def _lightmq(opcode: int, payload: bytes) -> bytes:
    return bytes([opcode]) + len(payload).to_bytes(2, "big") + payload


def _lightmq_begin(client: int) -> tuple[bytes, bytes]:
    name = b"board-%d" % client
    return _lightmq(1, bytes([len(name)]) + name), _lightmq(2, b"\0")


def _lightmq_unit(client: int) -> bytes:
    return _lightmq(5, b"\0\1\0" + b"x" * 64)


def _echo_topic(client: int) -> str:
    return f"bench/echo/{client:04d}"


def _fmqp_begin(client: int) -> tuple[bytes, bytes]:
    words, _ = FMQP.subscribe([_echo_topic(client)], 0)
    echo = FMQP.publication(_echo_topic(client), b"ready", 0)
    return words + echo, echo


def _fmqp_unit(client: int) -> bytes:
    topic = f"bench/data/{client}"
    messages = b"".join(FMQP.publication(topic, b"x" * 64, 0) for _ in range(99))
    return messages + FMQP.publication(_echo_topic(client), b"12345678", 0)


def _retained_unit(client: int) -> bytes:
    assert FMQP.retained is not None  # noqa: S101 - for mypy
    return FMQP.retained(_echo_topic(client), b"12345678")


def _nothing(client: int) -> tuple[bytes, bytes]:
    return b"", b""


def _http_unit(client: int) -> bytes:
    return (
        b"POST /publish/bench/http HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 64\r\n\r\n"
        + b"x" * 64
    )


ROWS = (
    Row("fmqp", "FMQP, 8 clients, 99 messages and an echo", 8, 4, 100, _fmqp_begin, _fmqp_unit),
    Row(
        "lightmq",
        "LightMQ, 64 clients, 16 SENDs under way",
        64,
        16,
        1,
        _lightmq_begin,
        _lightmq_unit,
    ),
    Row(
        "retained",
        "FMQP, 8 clients, 16 retained messages under way",
        8,
        16,
        1,
        _fmqp_begin,
        _retained_unit,
    ),
    Row("http", "HTTP, 16 clients, one POST after the other", 16, 1, 1, _nothing, _http_unit),
    Row(
        "one",
        "LightMQ, one client, one SEND after the other",
        1,
        1,
        1,
        _lightmq_begin,
        _lightmq_unit,
    ),
)


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one level: messages acknowledged per second; percentiles of a unit, milliseconds."""

    per_second: float
    p50_ms: float
    p99_ms: float


def level(ack: str) -> Peer:
    """Return our broker with a journal and this ``journal.ack``."""

    def argv(port: int, folder: Path, tls: object) -> list[str]:
        words = ["-m", "motemq", "broker", "--listen", f"auto://127.0.0.1:{port}"]
        return [
            sys.executable,
            *words,
            "--data",
            str(folder / "data"),
            "--set",
            f"journal.ack={ack}",
        ]

    return Peer(f"motemq, journal.ack={ack}", sys.executable, "", argv, FMQP)


def measure(row: Row, rounds: int, duration_s: float) -> dict[str, list[Figures]]:
    """Return the figures of every round, by level. Raises ``PeerFailed``."""
    figures: dict[str, list[Figures]] = {ack: [] for ack in LEVELS}
    with contextlib.ExitStack() as stack:
        brokers = {ack: stack.enter_context(running(level(ack))) for ack in LEVELS}
        for turn in range(rounds):
            for ack in (LEVELS, LEVELS[::-1])[turn % 2]:
                figures[ack].append(_measure(row, brokers[ack], duration_s))
    return figures


def median(figures: Sequence[Figures]) -> Figures:
    """Return the median of each figure."""
    return Figures(
        statistics.median(each.per_second for each in figures),
        statistics.median(each.p50_ms for each in figures),
        statistics.median(each.p99_ms for each in figures),
    )


class _Client:
    def __init__(self, row: Row, broker: Running, number: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", broker.port), timeout=STALL_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.unit = row.unit(number)
        self.sent: deque[float] = deque()
        self.rest = 0  # bytes of an answer that has begun
        hello, greeting = row.begin(number)
        if hello:
            self.socket.sendall(hello)
            got = b""
            while not got.endswith(greeting):
                got += self._read()
        self.socket.sendall(self.unit)
        got = self._read()
        time.sleep(0.05)
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            got += self.socket.recv(_READ_BYTES)
        self.answer_bytes = len(got)

    def send(self, units: int) -> None:
        now = time.perf_counter()
        self.sent.extend([now] * units)
        self.socket.setblocking(True)
        self.socket.sendall(self.unit * units)
        self.socket.setblocking(False)

    def heard(self) -> list[float]:
        """Return how long the units took that are answered now, seconds."""
        self.rest += len(self._read())
        answered, self.rest = divmod(self.rest, self.answer_bytes)
        now = time.perf_counter()
        return [now - self.sent.popleft() for _ in range(answered)]

    def _read(self) -> bytes:
        data = self.socket.recv(_READ_BYTES)
        if not data:
            raise PeerFailed("the broker hung up")
        return data


def _measure(row: Row, broker: Running, duration_s: float) -> Figures:
    with _clients(row, broker) as clients, contextlib.closing(select.epoll()) as poll:
        by_fd = {client.socket.fileno(): client for client in clients}
        for fd in by_fd:
            poll.register(fd, select.EPOLLIN)
        for client in clients:
            client.send(row.under_way)
        began = time.perf_counter() + _WARM_UP_S
        end = began + duration_s
        taken: list[float] = []
        while (now := time.perf_counter()) < end:
            ready = poll.poll(STALL_S)
            if not ready:
                raise PeerFailed(f"{row.name}: nothing is acknowledged any more")
            for fd, _ in ready:
                client = by_fd[fd]
                answered = client.heard()
                if answered:
                    client.send(len(answered))
                    if now >= began:
                        taken += answered
        elapsed_s = time.perf_counter() - began
    taken.sort()
    p50, p99 = (taken[int((len(taken) - 1) * share)] * 1e3 for share in (0.5, 0.99))
    return Figures(len(taken) * row.messages / elapsed_s, p50, p99)


@contextlib.contextmanager
def _clients(row: Row, broker: Running) -> Iterator[list[_Client]]:
    clients: list[_Client] = []
    try:
        for number in range(row.clients):
            clients.append(_Client(row, broker, number))  # noqa: PERF401 - closed if one fails
        yield clients
    finally:
        for client in clients:
            client.socket.close()
