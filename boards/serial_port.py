"""A serial port as the rest of ``boards`` wants it: any pyserial URL, deadlines, typed errors.

pyserial's own ``read(n)`` waits for n bytes or its timeout; here a read returns what has come.
"""

import errno
import os
import select
import time
from collections.abc import Callable
from typing import Protocol

import serial

Tap = Callable[[bytes], None]  # is shown every byte that was read

_CHUNK = 65536


class PortError(Exception):
    """A serial port cannot be used; the text says which, why and what to do."""


class PortGone(PortError):
    """The port vanished or its far end closed, while in use."""


class _Pyserial(Protocol):
    """What is used of pyserial's objects, which are not of one class."""

    timeout: float | None

    def fileno(self) -> int: ...
    def read(self, size: int, /) -> bytes: ...
    def write(self, data: bytes | memoryview, /) -> int | None: ...
    def close(self) -> None: ...


class SerialPort:
    """An open serial port. Only one thread may use it at a time."""

    def __init__(self, url: str, pyserial: _Pyserial, tap: Tap | None) -> None:
        self.url = url
        self._pyserial = pyserial
        self._tap = tap
        try:
            self._fd: int | None = pyserial.fileno()
            os.set_blocking(self._fd, False)
        except OSError:  # rfc2217:// has no descriptor (io.UnsupportedOperation is an OSError)
            self._fd = None

    @classmethod
    def open(cls, url: str, *, baud: int = 115200, tap: Tap | None = None) -> "SerialPort":
        """Open ``url`` (a device or any pyserial URL) at ``baud`` bits/s, for us alone.

        Raises ``PortError`` if it is missing, busy or refused.
        """
        try:
            # write_timeout: for the ports without a descriptor, which we cannot select on.
            opened = serial.serial_for_url(
                url, baudrate=baud, timeout=0, write_timeout=10, exclusive=True
            )
        except (OSError, ValueError) as error:
            raise PortError(_cannot_open(url, error)) from None
        return cls(url, opened, tap)

    def fileno(self) -> int:
        """Return the descriptor to select on; raises ``PortError`` for URLs that have none."""
        if self._fd is None:
            raise PortError(f"serial port {self.url}: this kind of URL cannot be waited for")
        return self._fd

    def read(self, timeout_s: float) -> bytes:
        """Return the bytes that have come, after waiting up to ``timeout_s`` for the first.

        ``b""`` when none came. Raises ``PortGone``.
        """
        try:
            if self._fd is None:
                data = self._read_polled(timeout_s)
            elif select.select([self._fd], [], [], max(timeout_s, 0))[0]:
                data = os.read(self._fd, _CHUNK)
                if not data:
                    raise PortGone(f"serial port {self.url}: it ended: its far end closed it")
            else:
                return b""
        except BlockingIOError:
            return b""
        except OSError as error:
            raise self._gone(error) from None
        if data and self._tap is not None:
            self._tap(data)
        return data

    def write(self, data: bytes | memoryview) -> int:
        """Hand over what the port takes now and return how many bytes that were (perhaps 0)."""
        try:
            if self._fd is None:
                return self._pyserial.write(data) or 0
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._gone(error) from None

    def write_all(self, data: bytes, timeout_s: float) -> None:
        """Write all of ``data``; raises ``TimeoutError`` if the port does not take it in time."""
        view, until = memoryview(data), time.monotonic() + timeout_s
        while view:
            view = view[self.write(view) :]
            left = until - time.monotonic()
            if view and left <= 0:
                raise TimeoutError(f"serial port {self.url}: took no data for {timeout_s:g} s")
            if view and self._fd is not None:
                select.select([], [self._fd], [], left)

    def close(self) -> None:
        """Close the port; harmless when it is gone already."""
        try:
            self._pyserial.close()
        except OSError as error:
            # A vanished device answers close with EIO; there is nothing left to close.
            if error.errno not in (errno.EIO, errno.EBADF, errno.ENOTCONN, None):
                raise

    def _read_polled(self, timeout_s: float) -> bytes:
        self._pyserial.timeout = timeout_s
        first = self._pyserial.read(1)
        self._pyserial.timeout = 0
        return first and first + self._pyserial.read(_CHUNK)

    def _gone(self, error: OSError) -> PortGone:
        return PortGone(f"serial port {self.url}: it vanished while in use ({error})")


def _cannot_open(url: str, error: Exception) -> str:
    remedy = "is the board plugged in, and the name right?"
    text = str(error)
    if "exclusively lock" in text or "busy" in text:
        remedy = "another program has it open; close it (fuser names it)"
    elif "ermission" in text:
        remedy = "add yourself to the group that owns it (dialout on Debian) and log in again"
    elif "refused" in text:
        remedy = "nobody listens there; is the board or the serial server running?"
    return f"serial port {url}: cannot be opened: {text}; {remedy}"
