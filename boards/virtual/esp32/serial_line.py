"""A serial line of the board, served on a loopback port to one client at a time.

A second client waits in the listener's queue until the first has gone: tools that follow one
another never find the port busy. What the board says while nobody listens is lost. Nor can a client
that does not read stop the board for long: ten seconds, then what waits for it is lost too.
"""

import selectors
import socket
from collections.abc import Callable

_CHUNK_BYTES = 16 * 1024
_MAX_UNREAD_BYTES = 256 * 1024  # on top of what the kernel holds for the client
_BUSY_BYTES = 16 * 1024  # from here on the board had better wait
_STUCK_S = 10.0  # who reads slowly shows it only every 64 KB, as its window opens


class Wire:
    """One end of a connected socket. Its owner calls ``tick`` now and then.

    ``on_data`` is called with what comes, ``on_gone`` once when the other end has left.
    ``selector`` keys carry a callable as data, to be called with the ready events.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        end: socket.socket,
        on_data: Callable[[bytes], None],
        on_gone: Callable[[], None],
    ) -> None:
        self._selector = selector
        self._end = end
        self._on_data = on_data
        self._on_gone = on_gone
        self._unread = bytearray()
        self._stuck_since: float | None = None
        self._dropping = False
        self._open = True
        end.setblocking(False)
        selector.register(end, selectors.EVENT_READ, self._ready)

    @property
    def is_busy(self) -> bool:
        """True while much waits for the other end to read."""
        return len(self._unread) >= _BUSY_BYTES

    def tick(self, now: float) -> None:
        """Lose what waits for an end that has not read for a while (seconds of any clock)."""
        if not self._unread:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since >= _STUCK_S:
            self._dropping = True
            self._unread.clear()

    def send(self, data: bytes) -> None:
        """Send, if the other end keeps up."""
        if self._open and len(self._unread) < _MAX_UNREAD_BYTES:
            self._unread += data
            self._flush()
            if self._dropping:
                self._dropping = bool(self._unread)  # until it takes all there is
                self._unread.clear()

    def close(self) -> None:
        """Hang up; ``on_gone`` is not called."""
        if self._open:
            self._open = False
            self._selector.unregister(self._end)
            self._end.close()

    def _ready(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush()
        if not self._open or not events & selectors.EVENT_READ:
            return
        try:
            data = self._end.recv(_CHUNK_BYTES)
            if self._end.family == socket.AF_INET:
                # pyserial leaves Nagle's algorithm on: each small write would wait 40 ms for this.
                self._end.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._on_data(data)
        else:
            self._gone()

    def _flush(self) -> None:
        try:
            while self._unread:
                del self._unread[: self._end.send(self._unread[:_CHUNK_BYTES])]
                self._stuck_since = None
            wanted = selectors.EVENT_READ
        except BlockingIOError:
            wanted = selectors.EVENT_READ | selectors.EVENT_WRITE
        except OSError:
            self._gone()
            return
        self._selector.modify(self._end, wanted, self._ready)

    def _gone(self) -> None:
        self.close()
        self._on_gone()


class SerialLine:
    """Calls ``on_data`` with what the client sends, ``on_client`` with whether there is one."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        on_data: Callable[[bytes], None],
        on_client: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._selector = selector
        self._on_data = on_data
        self._on_client = on_client
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._client: Wire | None = None
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return int(self._listener.getsockname()[1])

    @property
    def is_busy(self) -> bool:
        """True while much waits for the client to read."""
        return self._client is not None and self._client.is_busy

    def tick(self, now: float) -> None:
        """Notice that the client does not read."""
        if self._client is not None:
            self._client.tick(now)

    def send(self, data: bytes) -> None:
        """Send to the client, if there is one that keeps up."""
        if self._client is not None:
            self._client.send(data)

    def close(self) -> None:
        """Stop listening and drop the client."""
        if self._client is None:
            self._selector.unregister(self._listener)
        else:
            self._client.close()
        self._listener.close()

    def _accept(self, _events: int) -> None:
        client, _ = self._listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.unregister(self._listener)
        self._client = Wire(self._selector, client, self._on_data, self._drop)
        self._on_client(True)

    def _drop(self) -> None:
        self._client = None
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._on_client(False)
