"""The broker's side of a bridge: dialling without waiting, and a TCP or TLS session."""

import contextlib
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable

from host_broker.address import Address
from host_broker.client import ClientError
from host_broker.client.dialing import dial

DIAL_S = 5.0
_READ = 16384  # a TLS record holds no more, so nothing stays behind where poll() cannot see it
_FLUSH_S = 5.0  # for what is unsent when we close
_FAREWELL_S = 2.0  # for the broker to close its side after us


class SessionEnded(Exception):
    """The broker closed, or the connection broke; the text says which."""


class Dialing:
    """One try to connect, in a thread of its own: names and TLS handshakes may take seconds.

    ``ready`` is called from that thread when ``take`` has something. ``abandon`` gives it up.
    """

    def __init__(self, address: Address, ready: Callable[[], None]) -> None:
        self._address, self._ready = address, ready
        self._lock = threading.Lock()
        self._abandoned = False
        self._result: socket.socket | Exception | None = None
        self._thread = threading.Thread(target=self._dial, name="bridge-dial", daemon=True)
        self._thread.start()

    def take(self) -> socket.socket | Exception | None:
        """Return the connected socket, or why there is none; None while it is being tried."""
        with self._lock:
            result, self._result = self._result, None
            return result

    def abandon(self) -> None:
        """Let nothing come of it."""
        with self._lock:
            self._abandoned = True
            if isinstance(self._result, socket.socket):
                self._result.close()

    def _dial(self) -> None:
        try:
            result: socket.socket | Exception = dial(self._address, DIAL_S)
        except (ClientError, OSError, ValueError) as error:
            result = error
        with self._lock:
            if not self._abandoned:
                self._result = result
            elif isinstance(result, socket.socket):
                result.close()
        self._ready()


class Session:
    """An open connection that never blocks. ``stream`` is the mode's number for it."""

    def __init__(self, connected: socket.socket, stream: int) -> None:
        self.stream = stream
        self._socket = connected
        self.reads_first = False  # TLS has to read before it can send
        self._unsent = b""  # only while it is finishing
        self._until: float | None = None
        self._shut = False

    def fileno(self) -> int:
        """The socket, to wait for."""
        return self._socket.fileno()

    def receive(self) -> bytes:
        """Return what has come, ``b""`` if nothing has. Raises ``SessionEnded``."""
        try:
            data = self._socket.recv(_READ)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return b""
        except OSError as error:
            raise SessionEnded(f"lost: {error}") from None
        if not data:
            raise SessionEnded("closed by the broker")
        return data

    def send(self, data: bytearray) -> int:
        """Send from the front of ``data`` and return how many bytes. Raises ``SessionEnded``."""
        self.reads_first = False
        try:
            return self._socket.send(bytes(data[:_READ]))
        except ssl.SSLWantReadError:
            self.reads_first = True
            return 0
        except (BlockingIOError, ssl.SSLWantWriteError):
            return 0
        except OSError as error:
            raise SessionEnded(f"lost: {error}") from None

    def reset(self) -> None:
        """Close at once with a RST, as a dying host would."""
        # Linger 0: close() sends RST and forgets what is unsent.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def finish(self, unsent: bytes, now: float) -> None:
        """Begin to close cleanly: send ``unsent``, then FIN. ``finished`` goes on with it."""
        self._unsent = unsent
        self._until = now + _FLUSH_S

    @property
    def wanted(self) -> int:
        """What to wait for while it is finishing, as poll() has it."""
        return select.POLLIN if self._shut else select.POLLIN | select.POLLOUT

    def finished(self, now: float) -> bool:
        """Go on closing; True when the socket is closed. Call when readable, writable, or due."""
        if self._until is None:
            return False
        try:
            self._go_on(now)
        except OSError:
            self._socket.close()
            return True
        if now >= self._until:
            self._socket.close()
        return self._socket.fileno() < 0

    @property
    def due(self) -> float | None:
        """When ``finished`` gives up, None while it is not finishing."""
        return self._until

    def close(self) -> None:
        """Close now."""
        self._socket.close()

    def _go_on(self, now: float) -> None:
        with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent[:_READ]) :]
            if not self._shut:
                self._shut = True
                self._until = now + _FAREWELL_S
                self._say_goodbye()
            # To close with unread bytes would be a RST, which can overtake what we sent.
            while self._socket.recv(_READ):
                continue
            self._socket.close()

    def _say_goodbye(self) -> None:
        if isinstance(self._socket, ssl.SSLSocket):
            # Sends close_notify; it would then wait for the broker's, which recv() will see.
            with contextlib.suppress(ssl.SSLError, ValueError):
                self._socket.unwrap()
        self._socket.shutdown(socket.SHUT_WR)


def wait_closed(sessions: list[Session], limit_s: float) -> None:
    """Finish all ``sessions``, for ``limit_s`` seconds at most."""
    until = time.monotonic() + limit_s
    left = [s for s in sessions if not s.finished(time.monotonic())]
    while left and (rest := until - time.monotonic()) > 0:
        poll = select.poll()
        for session in left:
            poll.register(session, session.wanted)
        poll.poll(min(rest, 0.1) * 1000)
        left = [s for s in left if not s.finished(time.monotonic())]
    for session in left:
        session.close()
