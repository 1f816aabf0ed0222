"""The board's serial port, served as ``socket://127.0.0.1:PORT`` to one client at a time.

A second client waits in the listener's queue until the first has gone: tools that follow one
another never find the port busy. It is a wire without flow control: what the board says while
nobody listens, or faster than the client reads, is lost.
"""

import selectors
import socket
from collections.abc import Callable

_CHUNK_BYTES = 16 * 1024
_MAX_UNREAD_BYTES = 256 * 1024  # on top of what the kernel holds for the client


class SerialLine:
    """Calls ``on_data`` with what the client sends; its owner runs the selector.

    ``selector`` keys carry a callable as data, to be called with the ready events.
    """

    def __init__(self, selector: selectors.BaseSelector, on_data: Callable[[bytes], None]) -> None:
        self._selector = selector
        self._on_data = on_data
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._client: socket.socket | None = None
        self._unread = bytearray()
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return int(self._listener.getsockname()[1])

    def send(self, data: bytes) -> None:
        """Send to the client, if there is one that keeps up."""
        if self._client is not None and len(self._unread) < _MAX_UNREAD_BYTES:
            self._unread += data
            self._flush(self._client)

    def close(self) -> None:
        """Stop listening and drop the client."""
        if self._client is None:
            self._selector.unregister(self._listener)
        else:
            self._selector.unregister(self._client)
            self._client.close()
        self._listener.close()

    def _accept(self, _events: int) -> None:
        client, _ = self._listener.accept()
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.unregister(self._listener)
        self._client = client
        self._selector.register(client, selectors.EVENT_READ, self._ready)

    def _drop(self, client: socket.socket) -> None:
        self._selector.unregister(client)
        client.close()
        self._client = None
        self._unread.clear()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _ready(self, events: int) -> None:
        client = self._client
        if client is None:
            return
        if events & selectors.EVENT_WRITE:
            self._flush(client)
        if self._client is not client or not events & selectors.EVENT_READ:
            return
        try:
            data = client.recv(_CHUNK_BYTES)
            # pyserial leaves Nagle's algorithm on: each small write would wait 40 ms for this.
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._on_data(data)
        else:
            self._drop(client)

    def _flush(self, client: socket.socket) -> None:
        try:
            while self._unread:
                del self._unread[: client.send(self._unread[:_CHUNK_BYTES])]
            wanted = selectors.EVENT_READ
        except BlockingIOError:
            wanted = selectors.EVENT_READ | selectors.EVENT_WRITE
        except OSError:
            self._drop(client)
            return
        self._selector.modify(client, wanted, self._ready)
