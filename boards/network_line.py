"""Serial lines behind TCP: ``socket://HOST:PORT`` (the bytes as they are) and ``rfc2217://``.

Both take ``?token_file=FILE``, for a ``motemq bridge --listen`` that asks for a token.
"""

import contextlib
import socket
import time
import urllib.parse
from pathlib import Path

from boards.poll import wait_readable, wait_writable
from boards.rfc2217 import SET_BAUD, ComPortClient, TelnetError

SCHEMES = ("socket", "rfc2217")
TOKEN_LIMIT = 256  # bytes

_CONNECT_S = 5.0
_AGREE_S = 5.0
_READ = 65536
_SAID_LIMIT = 512  # of what a server says before it closes
_CLOSED_AT_ONCE = (
    "it closed the connection at once; does it serve somebody else already, or ask for a token?"
)
# Above it nothing more is taken from the caller: what waits here is neither sent nor ours to keep.
_UNSENT_LIMIT = 4096
# A serial server that lost its power says no goodbye: seconds, probes, milliseconds.
_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}


class LineRefused(Exception):
    """The far end is there, but is no serial line that we can use; the text says why."""


class NetworkLine:
    """A connected line that never blocks. Its errors are ``OSError``."""

    def __init__(self, tcp: socket.socket, telnet: ComPortClient | None) -> None:
        self._tcp, self._telnet = tcp, telnet
        self._unsent = bytearray()
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(tcp)
        tcp.setblocking(False)

    @classmethod
    def open(cls, url: str, baud: int, *, rtscts: bool) -> "NetworkLine":
        """Connect to ``url``; with RFC 2217 also set ``baud`` bits/s and agree on the rest.

        Raises ``OSError``, ``ValueError`` for a URL that cannot be, ``LineRefused``.
        """
        host, port, telnet, token = _parts(url)
        tcp = socket.create_connection((host, port), _CONNECT_S)
        try:
            tcp.sendall(token)
            line = cls(tcp, telnet)
            if telnet is not None:
                telnet.configure(baud, rtscts=rtscts)
                line._agree(baud)
        except TelnetError as error:
            tcp.close()
            raise LineRefused(f"this is no Telnet: {error}") from None
        except BaseException:
            tcp.close()
            raise
        return line

    def fileno(self) -> int:
        """The socket, to wait for."""
        return self._tcp.fileno()

    @property
    def unsent_bytes(self) -> int:
        """What waits for the socket; ``flush`` when it is writable."""
        return len(self._unsent)

    def read(self) -> bytes | None:
        """Return what has come, ``None`` if nothing has; raises ``EOFError`` at the end."""
        data = self._tcp.recv(_READ)
        if not data:
            raise EOFError
        if self._telnet is None:
            return data
        try:
            data = self._telnet.receive(data)
        except TelnetError as error:
            raise OSError(f"this is no Telnet: {error}") from None
        self.flush()
        return data or None

    def write(self, data: bytes | memoryview) -> int:
        """Take what can be sent now and return how many bytes of ``data`` that were."""
        if self._telnet is None:
            return self._tcp.send(data)
        self.flush()
        if self._telnet.suspended or len(self._unsent) >= _UNSENT_LIMIT:
            return 0
        taken = bytes(data[:_UNSENT_LIMIT])
        self._unsent += self._telnet.escape(taken)
        self.flush()
        return len(taken)

    def flush(self) -> None:
        """Send what waits, as far as the socket takes it."""
        if self._telnet is not None and self._telnet.replies:
            self._unsent += self._telnet.replies
            self._telnet.replies.clear()
        with contextlib.suppress(BlockingIOError):
            while self._unsent:
                del self._unsent[: self._tcp.send(self._unsent)]

    def set(self, name: str, value: int) -> None:
        """Set ``baudrate``, ``dtr``, ``rts`` or ``break_condition``; nothing without RFC 2217."""
        if self._telnet is not None:
            self._telnet.set(name, value)
            self.flush()

    def drain(self, limit_s: float, /) -> None:
        """Give what waits here up to ``limit_s`` seconds; what the kernel has, it sends."""
        until = time.monotonic() + limit_s
        while self._unsent and (left := until - time.monotonic()) > 0:
            wait_writable(self._tcp, left)
            self.flush()

    def close(self) -> None:
        """Close the connection."""
        self._tcp.close()

    def _agree(self, baud: int) -> None:
        """Wait until the server has confirmed the rate; what the board says meanwhile is old."""
        telnet = self._telnet
        until = time.monotonic() + _AGREE_S
        said = b""
        while telnet is not None and SET_BAUD not in telnet.answers:
            try:
                self.flush()
                left = until - time.monotonic()
                if telnet.refused or left <= 0:
                    raise LineRefused(
                        "it does not speak RFC 2217; if it sends the bytes as they are, write "
                        "socket://"
                        if said or telnet.refused
                        else f"it took the connection, and said nothing for {_AGREE_S:g} s: it is "
                        "busy, or speaks no RFC 2217; if it sends the bytes as they are, write "
                        "socket://"
                    )
                if wait_readable(self._tcp, left):
                    said = (said + (self.read() or b""))[-_SAID_LIMIT:]
            except (EOFError, ConnectionError):
                raise LineRefused(_CLOSED_AT_ONCE + _last_words(self._tcp, said)) from None
        if telnet is not None and telnet.answers[SET_BAUD] != baud:
            raise LineRefused(
                f"it runs at {telnet.answers[SET_BAUD]} baud and does not change to {baud}"
            )


def _last_words(tcp: socket.socket, said: bytes) -> str:
    """Return what a server that closed has said, for people; "" if it said nothing.

    What it said before it closed can be read also after a write has failed.
    """
    with contextlib.suppress(OSError):
        said += tcp.recv(_SAID_LIMIT)
    text = "".join(c if c.isprintable() else " " for c in said.decode(errors="replace")).strip()
    return f" It said: {text[:_SAID_LIMIT]}" if text else ""


def keep_alive(tcp: socket.socket) -> None:
    """Have the kernel notice a peer that vanished without a goodbye, within half a minute."""
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # not every system has all of them
            tcp.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def read_token(path: str) -> bytes:
    """Return the token in a file, its first line. Raises ``OSError``, ``ValueError``."""
    with Path(path).open("rb") as file:
        token = file.readline(TOKEN_LIMIT + 1).rstrip(b"\r\n")
    if not token or len(token) > TOKEN_LIMIT:
        raise ValueError(f"{path}: its first line must be a token of 1 to {TOKEN_LIMIT} bytes")
    return token


def _parts(url: str) -> tuple[str, int, ComPortClient | None, bytes]:
    parts = urllib.parse.urlsplit(url)
    port = parts.port
    if not parts.hostname or port is None or parts.path.strip("/"):
        raise ValueError(f"write it as {parts.scheme}://HOST:PORT")
    options = urllib.parse.parse_qs(parts.query, keep_blank_values=True)
    # pyserial's own options are about its own client; they change nothing here.
    options.pop("ign_set_control", None)
    token_files = options.pop("token_file", [])
    if options:
        raise ValueError(f"unknown option '{next(iter(options))}'; there is: token_file")
    token = read_token(token_files[0]) + b"\n" if token_files else b""
    return parts.hostname, port, ComPortClient() if parts.scheme == "rfc2217" else None, token
