"""What CPython lacks of MicroPython, so that the other files run on both. Not put on boards."""

import select
import socket
import time

_TICKS_PERIOD = 1 << 30  # MicroPython's ticks wrap there too: only ticks_diff may compare them


def const(value: int) -> int:
    """Return ``value``; MicroPython's compiler folds this call away."""
    return value


def ticks_ms() -> int:
    """Return a wrapping count of milliseconds."""
    return time.monotonic_ns() // 1_000_000 % _TICKS_PERIOD


def ticks_us() -> int:
    """Return a wrapping count of microseconds."""
    return time.monotonic_ns() // 1_000 % _TICKS_PERIOD


def ticks_add(ticks: int, delta: int) -> int:
    """Return the ticks ``delta`` after ``ticks``."""
    return (ticks + delta) % _TICKS_PERIOD


def ticks_diff(end: int, start: int) -> int:
    """Return ``end - start`` across the wrap, within half a period."""
    half = _TICKS_PERIOD // 2
    return (end - start + half) % _TICKS_PERIOD - half


def sleep_ms(ms: int) -> None:
    """Sleep ``ms`` milliseconds."""
    time.sleep(ms / 1000)


class Poller:
    """``select.poll`` with MicroPython's ``ipoll``."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self.register = self._poll.register
        self.modify = self._poll.modify

    def ipoll(self, ms: int) -> list[tuple[int, int]]:
        """Return (descriptor, events) of what is ready within ``ms``."""
        return self._poll.poll(ms)


class SocketStream:
    """A non-blocking socket with MicroPython's stream methods: ``None`` means "not now"."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self.fileno = sock.fileno
        self.close = sock.close

    def readinto(self, buffer: bytearray | memoryview) -> int | None:
        """Read what is there; 0 at the end of the stream."""
        try:
            return self._sock.recv_into(buffer)
        except BlockingIOError:
            return None

    def write(self, data: bytes | bytearray | memoryview) -> int | None:
        """Write what fits now; return how much that was."""
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return None
