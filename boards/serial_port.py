"""A serial port as the rest of ``boards`` wants it: any URL, deadlines, typed errors.

Devices are pyserial's, in threads where they cannot be waited for (``threaded_line``), lines behind
TCP ours (``network_line``). pyserial's own ``read(n)`` waits
for n bytes or its timeout; here a read returns what has come, and a write what was taken.
"""

import contextlib
import errno
import os
import re
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

import serial

from boards.errors import RigError
from boards.network_line import SCHEMES, LineRefused, NetworkLine
from boards.poll import wait_readable, wait_writable
from boards.port_users import is_open_here, port_users
from boards.threaded_line import ThreadedLine

if sys.platform != "win32":
    import fcntl
    import termios

    ERRORS: tuple[type[Exception], ...] = (OSError, termios.error)
else:
    ERRORS = (OSError,)

Tap = Callable[[bytes], None]  # is shown every byte that was read

_CHUNK = 65536
_POLL_S = 0.01  # how often it is looked whether a device's output has left
_TERMINAL = re.compile(r"/dev/pts/\d+$")
_DEVICE = re.compile(r"port (/\S+): ")


class PortError(RigError):
    """A serial port cannot be used; the text says which, why and what to do."""


class PortGone(PortError):
    """The port vanished or its far end closed, while in use."""


class PortRefused(PortError):
    """The port is not ours to open, which says nothing of the board: another program has it (the
    text says which), we may not, or the serial server that it is behind does not serve us."""


class PortUnserved(PortRefused):
    """Nobody listens where a port is served: the serial server is down, or let go of it when the
    board left the bus. So nobody else has it either."""


class SerialPort:
    """An open serial port. Only one thread may use it at a time."""

    def __init__(
        self, url: str, line: "NetworkLine | ThreadedLine | _DeviceLine", tap: Tap | None
    ) -> None:
        self.url = url
        self._line = line
        self._tap = tap
        self._fd = line.fileno()

    @classmethod
    def open(
        cls, url: str, *, baud: int = 115200, tap: Tap | None = None, rtscts: bool = False
    ) -> "SerialPort":
        """Open ``url`` (a device or any pyserial URL) at ``baud`` bits/s, for us alone.

        ``rtscts`` switches on the flow control of the hardware. Raises ``PortError`` if the port
        is missing or does not work, ``PortRefused``, ``PortUnserved``.
        """
        try:
            if url.partition("://")[0] in SCHEMES:
                return cls(url, NetworkLine.open(url, baud, rtscts=rtscts), tap)
            return cls(url, _line_of(open_device(url, baud, rtscts=rtscts)), tap)
        except (OSError, ValueError, OverflowError, LineRefused) as error:
            raise _cannot_open(url, error) from None

    @property
    def device(self) -> "serial.SerialBase | None":
        """pyserial's object, for control lines; None for lines behind TCP."""
        return None if isinstance(self._line, NetworkLine) else self._line.pyserial

    def set(self, name: str, value: int | str) -> None:
        """Set ``baudrate``, ``dtr``, ``rts`` … (pyserial's names), as far as the port has them.

        Raises ``PortGone``.
        """
        if isinstance(self._line, NetworkLine):
            if isinstance(value, str):
                return  # parity: it is none, for good
            try:
                self._line.set(name, value)
            except OSError as error:
                raise self._gone(error) from None
        elif self.device is not None:
            # A pseudo-terminal has no modem lines (ENOTTY); a rate may not exist (EINVAL).
            with contextlib.suppress(*ERRORS):
                setattr(self.device, name, value)

    @property
    def holds_back(self) -> bool:
        """True if a board that is not read has to wait even without RTS/CTS: TCP, terminals."""
        if self.device is None:
            return True
        # A hwgrep:// URL has become a device by now.
        return bool(_TERMINAL.match(os.path.realpath(getattr(self.device, "port", None) or "")))

    @property
    def errors(self) -> dict[str, int] | None:
        """What the driver has counted (see ``line_errors``); None if it does not."""
        return line_errors(self._fd) if isinstance(self._line, _DeviceLine) else None

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were taken and wait for the descriptor to be writable; then ``flush``."""
        return self._line.unsent_bytes

    def fileno(self) -> int:
        """Return the descriptor to select on."""
        return self._fd

    def read(self, timeout_s: float) -> bytes:
        """Return the bytes that have come, after waiting up to ``timeout_s`` for the first.

        ``b""`` when none came. Raises ``PortGone``.
        """
        until = time.monotonic() + max(timeout_s, 0)
        data: bytes | None = None
        try:
            while not data:
                left = max(0.0, until - time.monotonic())
                # Never read a terminal that poll() did not name: without data it says nothing,
                # which is what one that was hung up says.
                if wait_readable(self._fd, left):
                    data = self._line.read()
                if left == 0:
                    break
        except BlockingIOError:
            return b""
        except EOFError:
            how = "it vanished while in use" if self.device else "its far end closed it"
            raise PortGone(f"serial port {self.url}: {how}") from None
        except ERRORS as error:
            raise self._gone(error) from None
        if data and self._tap is not None:
            self._tap(data)
        return data or b""

    def write(self, data: bytes | memoryview) -> int:
        """Hand over what the port takes now and return how many bytes that were (perhaps 0)."""
        try:
            return self._line.write(data)
        except BlockingIOError:
            return 0
        except ERRORS as error:
            raise self._gone(error) from None

    def flush(self) -> None:
        """Send what waits, as far as the port takes it. Raises ``PortGone``."""
        try:
            self._line.flush()
        except OSError as error:
            raise self._gone(error) from None

    def write_all(self, data: bytes, timeout_s: float) -> None:
        """Write all of ``data``; raises ``TimeoutError`` if the port does not take it in time."""
        view, until = memoryview(data), time.monotonic() + timeout_s
        while view or self.unsent_bytes:
            if view:
                view = view[self.write(view) :]
            else:
                self.flush()
            if not view and not self.unsent_bytes:
                return
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"serial port {self.url}: took no data for {timeout_s:g} s")
            wait_writable(self._fd, left)

    def close(self, *, drain_s: float | None = None) -> None:
        """Close the port; harmless when it is gone already.

        With ``drain_s`` what was written has so many seconds to leave the host; the rest is
        dropped. Without, the kernel decides: 30 s, for a device that takes nothing.
        """
        try:
            if drain_s is not None:
                self._line.drain(drain_s)
            self._line.close()
        except OSError as error:
            # A vanished device answers close with EIO; there is nothing left to close.
            if error.errno not in (errno.EIO, errno.EBADF, errno.ENOTCONN, None):
                raise

    def _gone(self, error: Exception) -> PortGone:
        return PortGone(f"serial port {self.url}: it vanished while in use ({error})")


class _DeviceLine:
    """One of pyserial's objects that has a descriptor; they are not of one class."""

    unsent_bytes = 0

    def __init__(self, opened: "serial.SerialBase") -> None:
        self.pyserial: Any = opened  # the stubs of its base class lack what all of them have
        self._fd = opened.fileno()
        os.set_blocking(self._fd, False)

    def fileno(self) -> int:
        return self._fd

    def read(self) -> bytes:
        data = os.read(self._fd, _CHUNK)
        # A terminal that has nothing says EAGAIN; one that was hung up, nothing.
        if not data:
            raise EOFError
        return data

    def write(self, data: bytes | memoryview, /) -> int:
        return os.write(self._fd, data)

    def flush(self) -> None:
        return None  # the kernel does

    def drain(self, limit_s: float, /) -> None:
        until = time.monotonic() + limit_s
        with contextlib.suppress(*ERRORS):  # it is gone: nothing waits
            while self.pyserial.out_waiting:
                if time.monotonic() > until:
                    self.pyserial.reset_output_buffer()
                    return
                time.sleep(_POLL_S)

    def close(self) -> None:
        self.pyserial.close()


def _line_of(opened: "serial.SerialBase") -> ThreadedLine | _DeviceLine:
    try:
        return _DeviceLine(opened)
    except OSError:  # io.UnsupportedOperation is one: on Windows, and of loop://
        return ThreadedLine(opened)


def open_device(url: str, baud: int, *, rtscts: bool) -> "serial.SerialBase":
    """Open pyserial's object, locked for us. Raises ``OSError``, ``ValueError``."""
    try:
        return serial.serial_for_url(
            url, baudrate=baud, timeout=0, write_timeout=10, exclusive=True, rtscts=rtscts
        )
    except (OSError, ValueError):
        raise
    except ERRORS as error:  # of termios
        raise OSError(*error.args) from None
    except Exception as error:
        # A wrong regular expression, a package that is missing …: its handlers are many.
        raise ValueError(f"{error} ({type(error).__name__})") from error


def _cannot_open(url: str, error: Exception) -> PortError:
    text, number = str(error), getattr(error, "errno", None)
    if number is None and "PermissionError" in text:
        number = errno.EBUSY  # so Windows says that another program has it
    if isinstance(error, LineRefused):
        return PortRefused(f"serial port {url}: cannot be opened: {text}")
    is_busy = "exclusively lock" in text or number == errno.EBUSY
    if is_busy:
        found = _DEVICE.search(text)  # a hwgrep:// URL has become a device by now
        device = found[1] if found else url
        holders = ["this very program"] if is_open_here(device) else []
        holders += [f"{user.command} (process {user.pid})" for user in port_users(device)]
        if holders:
            return PortRefused(
                f"serial port {url}: cannot be opened: in use by {' and '.join(holders)}; end that "
                "first"
            )
    remedy = _REMEDIES.get(number or 0, "is the board plugged in, and the name right?")
    reason = os.strerror(number) if number else text  # pyserial's words name the port again
    text = f"serial port {url}: cannot be opened: {reason}; {remedy}"
    is_elsewhere = url.partition("://")[0] in SCHEMES
    if is_elsewhere and isinstance(error, ConnectionRefusedError):
        # Only that says that nobody has it: not a name that is unknown, a token file that is
        # missing, a way that is broken.
        return PortUnserved(text)
    is_refused = is_busy or is_elsewhere or number == errno.EACCES
    return PortRefused(text) if is_refused else PortError(text)


_IN_USE = "does it serve somebody else already, or ask for a token?"
_REMEDIES = {
    errno.ECONNRESET: _IN_USE,  # a server that closed before it had read us
    errno.EPIPE: _IN_USE,
    errno.EWOULDBLOCK: "another program has it open; close it",
    errno.EBUSY: "another program has it open; close it",
    errno.EACCES: "add yourself to the group that owns it (dialout on Debian) and log in again",
    errno.ECONNREFUSED: (
        "nobody listens there; is the board or the serial server running? (One that ends with its "
        "first connection, as socat without 'fork' does, cannot be used: a run connects often.)"
    ),
}


_TIOCGICOUNT = 0x545D  # Linux, all architectures but alpha, mips, parisc, sparc
# struct serial_icounter_struct: 4 modem lines, rx, tx, frame, overrun, parity, brk, buf_overrun
# and 9 that are reserved.
_COUNTERS = struct.Struct("20i")
_NAMES = {"frame": 6, "overrun": 7, "parity": 8, "buffer_overrun": 10}


def line_errors(fd: int) -> dict[str, int] | None:
    """Return ``frame``, ``overrun``, ``parity`` and ``buffer_overrun`` of a serial port's driver.

    None if the driver counts nothing (pseudo-terminals, most CDC devices) or the system cannot
    tell.
    """
    if sys.platform == "win32":
        return None
    raw = bytearray(_COUNTERS.size)
    with contextlib.suppress(OSError):
        fcntl.ioctl(fd, _TIOCGICOUNT, raw)
        return counted(bytes(raw))
    return None


def counted(raw: bytes) -> dict[str, int]:
    """Return the errors in the kernel's structure."""
    values = _COUNTERS.unpack(raw)
    return {name: values[at] for name, at in _NAMES.items()}
