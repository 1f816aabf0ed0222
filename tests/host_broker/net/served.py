"""A broker in a thread of the test: real sockets, and its insides can be looked at."""

import array
import asyncio
import contextlib
import fcntl
import functools
import select
import socket
import termios
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from host_broker.broker import Broker
from host_broker.bus.publication import pack
from host_broker.net.connection import Connection
from host_broker.net.lanes import UNWANTED
from host_broker.net.poller import Poller, event_loop
from host_broker.net.server import Server
from host_broker.net.slow import Policy
from host_broker.net.stream import Stream
from host_broker.settings import FmqpSettings, NetSettings, Settings

WITHIN_S = 20.0
TOPIC = b"home/1"
_T = TypeVar("_T")


class Served:
    """One broker; connections are made with ``connect``, in order, and are numbered from 1."""

    def __init__(self, fmqp: dict[str, Any], net: dict[str, Any], pure: bool) -> None:
        self._pure = pure
        self._settings = replace(Settings(), fmqp=FmqpSettings(**fmqp), net=NetSettings(**net))
        self.poller = Poller()
        self.broker = Broker(self._settings, journalled=False)
        self._ours: dict[socket.socket, socket.socket] = {}  # by their peers
        self._connections: dict[socket.socket, Connection] = {}
        self.errors: list[dict[str, Any]] = []
        self.asked = 0  # how often the interpreter was asked to pass on
        self.passed = 0  # how often it was not
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
        while _unread(self._ours[peer]):
            assert time.monotonic() < deadline, "the broker does not read"
        self.call(lambda: None)

    def call(self, work: Callable[[], _T]) -> _T:
        """Run ``work`` in the thread of the broker, between its turns."""

        async def called() -> _T:
            return work()

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(WITHIN_S)

    def end(self) -> None:
        """Stop; whatever is open is closed."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WITHIN_S)
        for peer in self._ours:
            peer.close()
        assert not self._thread.is_alive()
        assert self.errors == []

    def ours(self, peer: socket.socket) -> tuple[Connection, socket.socket]:
        """Return the broker's end of a connection."""
        return self._connections[peer], self._ours[peer]

    def _open(self, ours: socket.socket, slow: Policy, protocol: str) -> Connection:
        connection = Connection(self.server, protocol, slow)
        pass_on = connection.pass_on

        def counted(data: bytes) -> bool | None:
            self.asked += 1
            return pass_on(data)

        connection.pass_on = counted  # type: ignore[method-assign]
        Stream(ours, connection, self.poller, self._loop).start()
        return connection

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=functools.partial(event_loop, self.poller)) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(lambda _, context: self.errors.append(context))
        self._stop = asyncio.Event()
        with pytest.MonkeyPatch.context() as patch:
            if self._pure:
                patch.setenv(UNWANTED, "1")
            self.server = Server(self.broker, self._settings.net, self.poller, None)
        passed = self.server.passed

        def counted(connection: int, count: int, size: int) -> None:
            self.passed += count
            passed(connection, count, size)

        self.server.passed = counted
        self._ready.set()
        await self._stop.wait()
        await self.server.stop(1.0, lambda: None)


@contextlib.contextmanager
def served(
    fmqp: dict[str, Any] | None = None, net: dict[str, Any] | None = None, pure: bool = False
) -> Iterator[Served]:
    """Run a broker while the block lasts; what its loop complains of fails the test.

    ``pure``: without the compiled part of the poller.
    """
    running = Served(fmqp or {}, net or {}, pure)
    try:
        yield running
    finally:
        running.end()


def _unread(sock: socket.socket) -> int:
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
