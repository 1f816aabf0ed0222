"""A plain socket, TCP or unix, as asyncio's transport of the same methods that does less per read.

asyncio's own asks for 256 KiB at every read, which costs nine microseconds for a frame of eighty
bytes, and copies whatever the kernel does not take at once. TLS stays with asyncio.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Iterable
from itertools import islice
from select import EPOLLIN, EPOLLOUT
from time import perf_counter
from typing import Any, cast

from host_broker.net.connection.poller import Poller
from host_broker.outputs import Buffer

# What one read asks for: memory of the smaller size costs nothing to get. More, up to the larger,
# is wanted once a read was full, and no longer when reads are short again.
READ_BYTES = 16 * 1024
LONG_READ_BYTES = 256 * 1024
# How long others may wait for what one read brings. 256 KiB of the shortest packets that the broker
# must look at one by one take 0.1 s; then reads are shorter.
READ_S = 0.01

_SMALL_BYTES = 4096  # buffers of less are joined: a copy costs less than being one of a list
_JOINED_BYTES = 64 * 1024
_MOST_BUFFERS = 64  # in one system call; Linux allows 1024

_Buffers = list[Buffer]
_NOBODY = asyncio.Protocol()


class Stream(asyncio.Transport):
    """One accepted socket, read and written when its ``poller`` says so.

    ``protocol`` is called as asyncio calls one. What the kernel does not take waits as it came:
    buffers are kept, not copied, unless they are small.
    """

    __slots__ = (
        "_backlog",
        "_backlog_bytes",
        "_closing",
        "_gone",
        "_high",
        "_loop",
        "_low",
        "_paused",
        "_poller",
        "_protocol",
        "_read_bytes",
        "_reading",
        "_sock",
        "fd",
        "watched",
    )

    def __init__(
        self,
        sock: socket.socket,
        protocol: asyncio.Protocol,
        poller: Poller,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.fd = sock.fileno()
        self.watched = 0  # what the poller looks for
        self._sock = sock
        self._protocol = protocol
        self._poller = poller
        self._loop = loop
        self._read_bytes = READ_BYTES
        self._reading = True
        self._closing = False
        self._gone = False  # connection_lost was called, or will be
        self._backlog: deque[Buffer] | None = None  # most never have one
        self._backlog_bytes = 0
        self._high = self._low = 0
        self._paused = False  # the protocol was told so

    def start(self) -> None:
        """Tell the protocol, and read from now on."""
        self._protocol.connection_made(self)
        self._watch()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Have another protocol be called from now on."""
        self._protocol = cast(asyncio.Protocol, protocol)

    # ---- called by the poller ----

    def ready_to_read(self) -> int:
        """Hand one read to the protocol; returns how many bytes it was."""
        if not self._reading:
            return 0  # held, or ended, by another read of the same turn
        try:
            data = self._sock.recv(self._read_bytes)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._end(error)
            return 0
        # The next read learns from the size of this one, and from the time that it takes.
        wanted = self._read_bytes
        size = len(data)
        full = size == wanted
        if full:
            began = perf_counter()
        elif size < READ_BYTES:
            self._read_bytes = READ_BYTES
        try:
            if size:
                self._protocol.data_received(data)
            elif not self._protocol.eof_received():
                self.close()
        except Exception as error:
            self._failed(error)
        if full:
            passed_s = max(perf_counter() - began, 1e-6)
            affordable = int(size * READ_S / passed_s)
            self._read_bytes = min(max(affordable, READ_BYTES), LONG_READ_BYTES)
        return size

    def ready_to_write(self) -> None:
        """Write what waits."""
        if not self._backlog:
            return
        try:
            while backlog := self._backlog:
                offered = list(islice(backlog, _MOST_BUFFERS))
                sent = self._send(offered)
                self._advance(sent)
                if sent < sum(map(len, offered)):
                    break
        except OSError as error:
            self._end(error)
            return
        if not self._backlog:
            self._backlog = None
        self._resume_if_low()  # then more may be written, even if it is closing
        if self._closing and not self._backlog:
            self._end(None)
        else:
            self._watch()

    # ---- asyncio.Transport ----

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the socket or the peer's name, of all things asyncio knows.

        A peer that has reset the connection has no name any more: ``default``.
        """
        if name == "peername" and not self._gone:
            try:
                return self._sock.getpeername()
            except OSError:
                return default
        return self._sock if name == "socket" else default

    def is_closing(self) -> bool:
        """Whether it is closed, or will be when everything is sent."""
        return self._closing

    def pause_reading(self) -> None:
        """Read no more until ``resume_reading``."""
        self._reading = False
        self._watch()

    def resume_reading(self) -> None:
        """Go on reading."""
        if not self._closing:
            self._reading = True
            self._watch()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Have the protocol paused above ``high`` bytes, and resumed at ``low``; also now."""
        self._high = high if high is not None else 64 * 1024
        self._low = low if low is not None else self._high // 4
        self._pause_if_high()
        self._resume_if_low()

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the kernel has not taken yet."""
        return self._backlog_bytes

    def write(self, data: Buffer) -> None:
        """Send one buffer, which must not change until the kernel has taken it."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Send buffers with as few system calls as possible."""
        if self._gone:
            return
        buffers = list(list_of_data)
        if len(buffers) == 1:
            size = len(buffers[0])
        else:
            size = sum(map(len, buffers))
            if size < len(buffers) * _SMALL_BYTES:
                buffers = [b"".join(buffers)]
        if not self._backlog:
            try:
                sent = self._send(buffers)
            except OSError as error:
                self._end(error)
                return
            if sent < size:
                self._wait(buffers, size, sent)
            return
        for buffer in buffers:
            self._keep(buffer)
        self._pause_if_high()

    def close(self) -> None:
        """Read no more; close when everything is sent."""
        if self._closing:
            return
        self._closing = True
        self._reading = False
        if self._backlog:
            self._watch()
        else:
            self._end(None)

    def abort(self) -> None:
        """Close at once, sending nothing more."""
        self._end(None)

    # ---- inside ----

    def _send(self, buffers: _Buffers) -> int:
        """Offer the first of these to the kernel; returns the bytes it took."""
        try:
            if len(buffers) == 1:
                return self._sock.send(buffers[0])
            return self._sock.sendmsg(buffers[:_MOST_BUFFERS])
        except (BlockingIOError, InterruptedError):
            return 0

    def _wait(self, buffers: _Buffers, size: int, sent: int) -> None:
        """Let buffers of ``size`` bytes wait, but for what the kernel has taken of them."""
        self._backlog = deque(buffers)
        self._backlog_bytes = size
        self._poller.backlog += size
        self._advance(sent)
        self._watch()
        self._pause_if_high()

    def _keep(self, buffer: Buffer) -> None:
        """Let a buffer wait. Small ones share memory: each alone would cost a hundred bytes."""
        assert self._backlog is not None  # noqa: S101 - for mypy; the caller has looked
        self._backlog_bytes += len(buffer)
        self._poller.backlog += len(buffer)
        if len(buffer) < _SMALL_BYTES:
            last = self._backlog[-1]
            if isinstance(last, bytearray) and len(last) < _JOINED_BYTES:
                last += buffer
                return
            buffer = bytearray(buffer)
        self._backlog.append(buffer)

    def _advance(self, sent: int) -> None:
        """Forget what the kernel has taken."""
        backlog = self._backlog
        assert backlog is not None  # noqa: S101 - for mypy; there is no progress without one
        self._backlog_bytes -= sent
        self._poller.backlog -= sent
        while sent:
            first = backlog[0]
            if len(first) > sent:
                backlog[0] = memoryview(first)[sent:]
                return
            sent -= len(first)
            backlog.popleft()

    def _pause_if_high(self) -> None:
        if not self._paused and self._backlog_bytes > self._high:
            self._paused = True
            self._protocol.pause_writing()

    def _resume_if_low(self) -> None:
        if self._paused and self._backlog_bytes <= self._low:
            self._paused = False
            self._protocol.resume_writing()

    def _watch(self) -> None:
        if not self._gone:
            wanted = EPOLLIN * self._reading | EPOLLOUT * bool(self._backlog)
            self._poller.watch(self, wanted)

    def _failed(self, error: Exception) -> None:
        """The protocol has a bug: end this connection, not the broker."""
        self._loop.call_exception_handler(
            {
                "message": "a read could not be handled",
                "exception": error,
                "transport": self,
                "protocol": self._protocol,
            }
        )
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        if self._gone:
            return
        self._closing = self._gone = True
        self._reading = False
        self._backlog = None
        self._poller.backlog -= self._backlog_bytes
        self._backlog_bytes = 0
        self._poller.watch(self, 0)
        # Not now: whoever closes it may be in the middle of something.
        self._loop.call_soon(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._sock.close()
            # It knows us, and without this only the garbage collector would find out about both.
            self._protocol = _NOBODY
