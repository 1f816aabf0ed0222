"""Long forms of tests of faults, with figures: crowds, a long request, a start after a kill."""

import contextlib
import http.client
import itertools
import resource
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.broker import certificates
from benchmarks.broker.wires import FMQP
from benchmarks.journal import journals, serving
from benchmarks.reliability.running import broker

_ENTERS_S = 5.0
_START_S = 2.0
_TIMES_QUIET = 10.0
_BUDGET_BYTES = 512 * 1024 * 1024  # net.max_buffered_bytes
_POST_BYTES = 8 * 1024 * 1024
_PINGS = 400
_WITHIN_S = 60.0
_NUMBERS = itertools.count()
_HEAD = b"GET /stats HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "


@dataclass(frozen=True, slots=True)
class Finding:
    """What was done, what was measured, and what is wanted."""

    fault: str
    measured: str
    wanted: str
    reached: bool


def slow_http(folder: Path, scale: float) -> Finding:
    """A crowd whose requests never end, and that comes again whenever it is ended."""
    count = max(int(12_000 * scale), 50)
    with broker(folder) as running, _crowd(running.port, count):
        took = []
        for _ in range(10):
            began = time.monotonic()
            _enter(running.port)
            took.append(time.monotonic() - began)
    return Finding(
        f"{count:,} slow HTTP clients: a newcomer of each protocol enters within",
        f"{max(took):.2f} s",
        f"≤ {_ENTERS_S:g} s",
        max(took) <= _ENTERS_S,
    )


def silent_handshakes(folder: Path, scale: float) -> Finding:
    """ClientHello, and not a word more."""
    count = max(int(5000 * scale), 50)
    made = certificates.make(folder)
    with broker(folder, f"?cert={made.file}&key={made.key}") as running:
        hello = _client_hello()
        before = running.rss_bytes()
        with contextlib.ExitStack() as stack:
            for _ in range(count):
                sock = socket.create_connection(("127.0.0.1", running.port), timeout=_WITHIN_S)
                stack.callback(sock.close)
                sock.sendall(hello)
            _enter(running.port)
            grown = running.rss_bytes() - before
    wanted = _BUDGET_BYTES * 1.25
    return Finding(
        f"{count:,} silent TLS handshakes: memory",
        f"{grown / 2**20:.0f} MiB",
        f"≤ {wanted / 2**20:.0f} MiB",
        grown <= wanted,
    )


def long_post(folder: Path, scale: float) -> Finding:
    """One request of tiny messages, and a client that pings meanwhile."""
    packet = FMQP.publication("t/a", b"x", 0)
    body = packet * (max(int(_POST_BYTES * scale), 100_000) // len(packet))
    with broker(folder) as running, _Pinger(running.port) as pinger:
        quiet = sorted(pinger.ping() for _ in range(_PINGS))
        during: list[float] = []
        answers: list[int] = []
        while len(during) < _PINGS:
            thread = threading.Thread(target=lambda: answers.append(_post(running.port, body)))
            thread.start()
            while thread.is_alive():
                during.append(pinger.ping())
            thread.join()
        if set(answers) != {200}:
            raise RuntimeError(f"the request was answered with {answers}")
    during.sort()
    before, meanwhile = quiet[int(len(quiet) * 0.99)], during[int(len(during) * 0.99)]
    return Finding(
        f"one POST of {len(body) // len(packet):,} messages: p99 of another client's ping",
        f"{meanwhile * 1e3:.2f} ms ({before * 1e3:.2f} ms when quiet)",
        f"≤ {_TIMES_QUIET:g} times that",
        meanwhile <= _TIMES_QUIET * before,
    )


def start_after_kill(folder: Path, scale: float) -> Finding:
    """A journal of single-message records, of which the last segments have no index."""
    total = max(int(1e9 * scale), 1_000_000)
    messages = journals.write(
        folder / "data" / "journal", journals.reads(5000, 1), 500, total, partitions=2
    )
    for partition in (folder / "data" / "journal").glob("p*"):
        max(partition.glob("*.mji")).unlink()
    found = serving.start(folder / "data")
    return Finding(
        f"{messages:,} records of one message ({total / 1e9:g} GB), killed: first byte by HTTP",
        f"{found.first_byte_s:.2f} s",
        f"≤ {_START_S:g} s",
        found.first_byte_s <= _START_S,
    )


ALL: tuple[Callable[[Path, float], Finding], ...] = (
    start_after_kill,
    slow_http,
    silent_handshakes,
    long_post,
)


def allow_files() -> None:
    """Raise our limit of open files as far as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class _Pinger:
    """An FMQP client that publishes to itself."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_WITHIN_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        words, _ = FMQP.subscribe(["ping/1"], 0)
        self._echo = FMQP.publication("ping/1", b"!", 0)
        self._socket.sendall(words)
        self.ping()

    def __enter__(self) -> "_Pinger":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ping(self) -> float:
        """Return how long it took, seconds."""
        began = time.perf_counter()
        self._socket.sendall(self._echo)
        got = b""
        while not got.endswith(self._echo):
            data = self._socket.recv(4096)
            if not data:
                raise RuntimeError("the broker hung up")
            got += data
        return time.perf_counter() - began


@contextlib.contextmanager
def _crowd(port: int, size: int) -> Iterator[None]:
    """Have so many clients there that say a byte now and then; those that are ended come again."""

    def connected() -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", port), timeout=_WITHIN_S)
        sock.sendall(_HEAD)
        sock.setblocking(False)
        return sock

    def work() -> None:
        while not stop.is_set():
            for number, sock in enumerate(sockets):
                if stop.is_set():
                    return
                try:
                    sock.send(b"x")
                    if _readable(sock) and not sock.recv(100):
                        raise ConnectionResetError
                except OSError:
                    sock.close()
                    with contextlib.suppress(OSError):
                        sockets[number] = connected()

    stop = threading.Event()
    sockets: list[socket.socket] = []
    thread = threading.Thread(target=work, daemon=True)
    try:
        for _ in range(size):
            sockets.append(connected())  # noqa: PERF401 - closed if one fails
        thread.start()
        yield
    finally:
        stop.set()
        if thread.is_alive():
            thread.join(_WITHIN_S)
        for sock in sockets:
            sock.close()


def _readable(sock: socket.socket) -> bool:
    """Whether there is something to read."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _enter(port: int) -> None:
    """Come as a client of each protocol, be served, and leave."""
    with _Pinger(port) as pinger:
        pinger.ping()
    with socket.create_connection(("127.0.0.1", port), timeout=_WITHIN_S) as board:
        name = b"newcomer-%08d" % next(_NUMBERS)
        board.sendall(b"\x01" + struct.pack(">HB", 1 + len(name), len(name)) + name)
        if board.recv(100)[:1] != b"\x02":
            raise RuntimeError("a LightMQ client was not let in")
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=_WITHIN_S)
    with contextlib.closing(client):
        for _ in range(2):
            client.request("GET", "/stats")
            if client.getresponse().read()[:1] != b"{":
                raise RuntimeError("an HTTP client was not served")


def _post(port: int, body: bytes) -> int:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=_WITHIN_S)
    with contextlib.closing(client):
        client.request("POST", "/publish", body, {"Content-Type": "application/x-fmqp"})
        return client.getresponse().status


def _client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()
