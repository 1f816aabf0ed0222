"""A broker in a thread of the test: real sockets, and its insides can be looked at."""

import array
import asyncio
import concurrent.futures
import contextlib
import fcntl
import functools
import select
import socket
import termios
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from host_broker.broker import Broker
from host_broker.bus.publication import pack
from host_broker.net.connection.connection import Connection
from host_broker.net.connection.overflow import Policy
from host_broker.net.connection.poller import Poller, event_loop
from host_broker.net.connection.stream import Stream
from host_broker.net.journal.writer import Journal
from host_broker.net.live_settings import LiveSettings
from host_broker.net.server import Server
from host_broker.net.storage.message_store import MessageStore
from host_broker.protocol import ProtocolSpec
from host_broker.protocols.fmqp.settings import FmqpSettings
from host_broker.protocols.lightmq.settings import LightmqSettings
from host_broker.settings import BusSettings, JournalSettings, NetSettings, Settings
from tests.host_broker.twins import python_twin

WITHIN_S = 20.0
TOPIC = b"home/1"
_T = TypeVar("_T")


class Served:
    """One broker; connections are made with ``connect``, in order, and are numbered from 1."""

    def __init__(
        self,
        fmqp: dict[str, Any],
        net: dict[str, Any],
        bus: dict[str, Any],
        lightmq: dict[str, Any],
        pure: bool,
        specs: Mapping[str, ProtocolSpec] | None,
        journal: JournalSettings,
        data: Path | None,
    ) -> None:
        self._settings = Settings.of(
            bus=BusSettings(**bus),
            net=NetSettings(**net),
            fmqp=FmqpSettings(**fmqp),
            lightmq=LightmqSettings(**lightmq),
            journal=journal,
        )
        self._data = data
        self.journal: Journal | None = None
        self.poller = Poller()
        with python_twin(pure):
            self.broker = Broker(self._settings, journalled=data is not None, specs=specs)
        self._ours: dict[socket.socket, socket.socket] = {}  # by their peers
        self._connections: dict[socket.socket, Connection] = {}
        self.errors: list[dict[str, Any]] = []
        self.lost: list[Exception] = []  # why the journal ended
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(WITHIN_S)

    def connect(self, slow: Policy = "pause", protocol: str = "fmqp") -> socket.socket:
        """Return the blocking end of a new connection, which the broker knows already.

        It is closed at the end.
        """
        ours, peer = socket.socketpair()
        ours.setblocking(False)
        peer.settimeout(WITHIN_S)
        self._ours[peer] = ours
        self._connections[peer] = self.call(functools.partial(self._open, ours, slow, protocol))
        return peer

    def say(self, peer: socket.socket, data: bytes) -> None:
        """Send, and wait until the broker has done what it does for it.

        First until it has read it, undisturbed: our call would be something else to do.
        """
        peer.sendall(data)
        deadline = time.monotonic() + WITHIN_S
        while unread(self._ours[peer]):
            assert time.monotonic() < deadline, "the broker does not read"
        self.call(lambda: None)

    def call(self, work: Callable[[], _T]) -> _T:
        """Run ``work`` in the thread of the broker, between its turns."""

        async def called() -> _T:
            return work()

        return self.wait(called())

    def wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run ``work`` in the thread of the broker, among its turns."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WITHIN_S)

    def begin(self, work: Coroutine[Any, Any, _T]) -> "concurrent.futures.Future[_T]":
        """Begin ``work`` in the thread of the broker; its result is in the future."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def begin_to_stop(self) -> None:
        """Stop without waiting for the end, which ``end`` does."""
        self._loop.call_soon_threadsafe(self._stop.set)

    def end(self) -> None:
        """Stop; whatever is open is closed."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WITHIN_S)
        for peer in self._ours:
            peer.close()
        assert not self._thread.is_alive()
        assert self.errors == [], self.errors

    def ours(self, peer: socket.socket) -> tuple[Connection, socket.socket]:
        """Return the broker's end of a connection."""
        return self._connections[peer], self._ours[peer]

    def _open(self, ours: socket.socket, slow: Policy, protocol: str) -> Connection:
        connection = Connection(self.server, protocol, slow)
        Stream(ours, connection, self.poller, self._loop).start()
        return connection

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=functools.partial(event_loop, self.poller)) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(lambda _, context: self.errors.append(context))
        self._stop = asyncio.Event()
        store = None
        if self._data is not None:
            store = MessageStore(self._data / "retained.sqlite")
            self.journal = Journal(self._data / "journal", self._settings.journal, store)
        live = LiveSettings(self._settings)
        self.server = Server(self.broker, live, self.poller, self.journal)
        if self.journal is not None:
            self.journal.start(self._loop, self.lost.append, self.server.journal_progressed)
        self._ready.set()
        await self._stop.wait()
        await self.server.stop(1.0, lambda: None)
        if self.journal is not None and store is not None:
            await self.journal.close(WITHIN_S)
            store.close()


@contextlib.contextmanager
def served(
    fmqp: dict[str, Any] | None = None,
    net: dict[str, Any] | None = None,
    pure: bool = False,
    bus: dict[str, Any] | None = None,
    lightmq: dict[str, Any] | None = None,
    specs: Mapping[str, ProtocolSpec] | None = None,
    journal: dict[str, Any] | None = None,
    data: Path | None = None,
) -> Iterator[Served]:
    """Run a broker while the block lasts; what its loop complains of fails the test.

    ``pure``: with the Python twin of the table of topics. ``specs``: other protocols than usual.
    ``data``: the folder for a journal and the retained messages; None keeps nothing.
    """
    kept = JournalSettings(**(journal or {}))
    running = Served(fmqp or {}, net or {}, bus or {}, lightmq or {}, pure, specs, kept, data)
    try:
        yield running
    finally:
        running.end()


def unread(sock: socket.socket) -> int:
    """Return how many bytes wait to be read; none, if it is closed."""
    count = array.array("i", [0])
    with contextlib.suppress(OSError, ValueError):
        fcntl.ioctl(sock, termios.FIONREAD, count)
    return count[0]


def publish(peer: socket.socket, number: int, topic: bytes = TOPIC) -> bytes:
    """Send a number to a topic; returns the packet."""
    packet = pack(0, topic, b"%d" % number)
    peer.sendall(packet)
    return packet


def there(peer: socket.socket) -> bytes:
    """Read what is there."""
    got = b""
    while select.select([peer], [], [], 0)[0]:
        data = peer.recv(1 << 16)
        assert data, f"closed after {got!r}"
        got += data
    return got


def exactly(peer: socket.socket, count: int) -> bytes:
    """Read so many bytes."""
    got = b""
    while len(got) < count:
        data = peer.recv(count - len(got))
        assert data, f"closed after {got!r}"
        got += data
    return got


def until(peer: socket.socket, end: bytes) -> bytes:
    """Read up to and with ``end``."""
    got = b""
    while not got.endswith(end):
        data = peer.recv(1 << 16)
        assert data, f"closed after {got!r}"
        got += data
    return got
