"""A serial port for which no system call waits, behind a socket for which one does.

Windows has no descriptor for a port, and pyserial's ``loop://`` has none anywhere. Two threads
carry the bytes between the port and one end of a pair of sockets.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import serial

_CHUNK = 4096
_BUFFER = 4096  # of the pair, each way, as of a terminal: what waits here is still to be held back
_LOOK_S = 0.1  # how soon the reading thread sees that the port is to be closed
_END_S = 2.0


class ThreadedLine:
    """One of pyserial's objects, in two threads; its own errors are the next ``read``'s."""

    unsent_bytes = 0

    def __init__(self, opened: "serial.SerialBase") -> None:
        self.pyserial: Any = opened  # the stubs of its base class lack what all of them have
        opened.timeout = _LOOK_S
        opened.write_timeout = None  # a board that takes nothing is waited for
        self._ours, self._theirs = socket.socketpair()
        for side in (self._ours, self._theirs):
            side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            side.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        self._ours.setblocking(False)
        self._closing = False
        self._error: Exception | None = None
        self._threads = [
            threading.Thread(target=self._carry, args=(what,), name="serial-port", daemon=True)
            for what in (self._to_socket, self._to_port)
        ]
        for thread in self._threads:
            thread.start()

    def fileno(self) -> int:
        """The socket, to wait for."""
        return self._ours.fileno()

    def read(self) -> bytes | None:
        """Return what has come; raises ``EOFError`` at the end, ``OSError`` with its reason."""
        data = self._ours.recv(_CHUNK)
        if data:
            return data
        if self._error is not None:
            raise OSError(str(self._error)) from self._error
        raise EOFError

    def write(self, data: bytes | memoryview, /) -> int:
        """Take what there is room for. Raises ``BlockingIOError`` if there is none."""
        return self._ours.send(data)

    def flush(self) -> None:
        """The threads do."""

    def drain(self, limit_s: float, /) -> None:
        """Give what was written up to ``limit_s`` seconds to leave the host."""
        with contextlib.suppress(OSError):  # it is gone: nothing waits
            self._ours.shutdown(socket.SHUT_WR)
        self._threads[1].join(limit_s)

    def close(self) -> None:
        """Close the port; what has not left is dropped."""
        self._closing = True
        self._ours.close()
        until = time.monotonic() + _END_S
        for thread in self._threads:
            # A write that waits for a board has to be told; a read looks by itself.
            while thread.is_alive() and time.monotonic() < until:
                if hasattr(self.pyserial, "cancel_write"):
                    self.pyserial.cancel_write()
                thread.join(_LOOK_S)
        self.pyserial.close()
        self._theirs.close()

    # All below runs in the threads.

    def _carry(self, what: Callable[[], None]) -> None:
        try:
            what()
        except Exception as error:
            # What a driver that loses its port raises is of many kinds.
            if not self._closing:
                self._error = self._error or error
        with contextlib.suppress(OSError):
            # What was read before is still to be heard; then it is the end.
            self._theirs.shutdown(socket.SHUT_WR)

    def _to_socket(self) -> None:
        while not self._closing:
            data = self.pyserial.read(max(1, min(self.pyserial.in_waiting, _CHUNK)))
            if data:
                self._theirs.sendall(data)

    def _to_port(self) -> None:
        while not self._closing and (data := self._theirs.recv(_CHUNK)):
            self.pyserial.write(data)
