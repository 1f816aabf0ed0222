"""What CPython lacks of MicroPython, so that the other files run on both. Not put on boards.

Importing ``umotemq`` on CPython adds ``ticks_ms`` and its kin to the module ``time`` and makes a
module ``micropython``; nothing that was there is changed. What our own modules take from CPython
and would not understand, they are given another of.
"""

import asyncio
import io
import select
import socket
import sys
import time

_TICKS_PERIOD = 1 << 30  # MicroPython's ticks wrap there too: only ticks_diff may compare them


def const(value: int) -> int:
    return value


def ticks_ms() -> int:
    return time.monotonic_ns() // 1_000_000 % _TICKS_PERIOD


def ticks_us() -> int:
    return time.monotonic_ns() // 1_000 % _TICKS_PERIOD


def ticks_add(ticks: int, delta: int) -> int:
    return (ticks + delta) % _TICKS_PERIOD


def ticks_diff(end: int, start: int) -> int:
    half = _TICKS_PERIOD // 2
    return (end - start + half) % _TICKS_PERIOD - half


def sleep_ms(ms: int) -> None:
    time.sleep(ms / 1000)


class SocketStream:
    """A non-blocking socket with MicroPython's stream methods: ``None`` means "not now"."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.fileno = sock.fileno
        self.close = sock.close
        self.connect = sock.connect
        self.setblocking = sock.setblocking
        self.setsockopt = sock.setsockopt

    def readinto(self, buffer: bytearray | memoryview) -> int | None:
        try:
            return self._sock.recv_into(buffer)
        except BlockingIOError:
            return None

    def write(self, data: bytes | bytearray | memoryview) -> int | None:
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return None


class Sockets:
    """What the client uses of MicroPython's module ``socket``."""

    @staticmethod
    def getaddrinfo(host: str, port: int, family: int, kind: int) -> list:
        return socket.getaddrinfo(host, port, family, kind)

    @staticmethod
    def socket(family: int) -> SocketStream:
        return SocketStream(socket.socket(family))


class Selects:
    """What the client uses of MicroPython's module ``select``."""

    @staticmethod
    def poll() -> "Poll":
        return Poll()


class Poll:
    """What the client uses of MicroPython's ``select.poll()``.

    CPython cannot wait for what has no descriptor, as a UART: that is looked at every millisecond.
    """

    def __init__(self) -> None:
        self._poller = select.poll()
        self._pending = int
        self._is_blind = False

    def register(self, stream, mask: int) -> None:
        self._pending = getattr(stream, "pending", int)
        descriptor = _descriptor(stream)
        self._is_blind = descriptor is None
        if descriptor is not None:
            self._poller.register(descriptor, mask)

    def ipoll(self, ms: int) -> list:
        return [] if self._pending() else self._poller.poll(min(ms, 1) if self._is_blind else ms)


async def readable(stream) -> None:
    """Return when ``stream`` can be read, or should be looked at; one task at a time."""
    if getattr(stream, "pending", int)():
        return
    descriptor = _descriptor(stream)
    if descriptor is None:
        await _sleep_ms(1)
        return
    loop = asyncio.get_running_loop()
    await _called_back(descriptor, loop.add_reader, loop.remove_reader)


def _descriptor(stream) -> int | None:
    try:
        return stream.fileno()
    except (AttributeError, io.UnsupportedOperation):
        return None


async def _called_back(descriptor: int, add, remove) -> None:
    done = asyncio.get_running_loop().create_future()
    add(descriptor, lambda: done.done() or done.set_result(None))
    try:
        await done
    finally:
        try:
            remove(descriptor)
        except OSError:
            pass  # closed meanwhile, which removes it too


async def _sleep_ms(ms: int) -> None:
    await asyncio.sleep(ms / 1000)


async def _wait_for_ms(what, ms: int):
    return await asyncio.wait_for(what, ms / 1000)


for _function in (ticks_ms, ticks_us, ticks_add, ticks_diff, sleep_ms):
    setattr(time, _function.__name__, _function)
asyncio.sleep_ms = _sleep_ms
asyncio.wait_for_ms = _wait_for_ms
_micropython = type(sys)("micropython")
_micropython.const = const
sys.modules.setdefault("micropython", _micropython)


# What our own modules took from CPython and would not understand.
import umotemq.aio  # noqa: E402
import umotemq.link  # noqa: E402
import umotemq.tcp  # noqa: E402

_leave = umotemq.aio.Aio.__aexit__


async def _leave_uncancelled(self: umotemq.aio.Aio, *_: object) -> None:
    """Leave the block; what ended it has cancelled its task, and here that is counted.

    A count that stays would make the next ``asyncio.TaskGroup`` of the task cancel it again.
    """
    try:
        await _leave(self)
    finally:
        for _ in range(self._cancels):
            self._owner.uncancel()


umotemq.aio.Aio.__aexit__ = _leave_uncancelled
umotemq.link.select = Selects
umotemq.aio._readable = readable
umotemq.tcp.socket = Sockets
