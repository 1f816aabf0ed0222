"""A board's pseudo-terminal for programs that want ``socket://``: one client at a time.

The client is a program on the terminal like any other, so the terminal's flow control reaches it:
what it does not read waits in the board.
"""

import os
import selectors
import socket

_CHUNK_BYTES = 16 * 1024
_MAX_HELD_BYTES = 64 * 1024


class PtyPort:
    """Serves the terminal ``path`` on a loopback port; its owner runs the selector.

    ``selector`` keys carry a callable as data, to be called with the ready events.
    """

    def __init__(self, selector: selectors.BaseSelector, path: str) -> None:
        self._selector = selector
        self._path = path
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._client: socket.socket | None = None
        self._terminal = -1
        self._to_client = bytearray()
        self._to_terminal = bytearray()
        self._masks: dict[int, int] = {}
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Stop listening and drop the client."""
        if self._client is not None:
            self._drop()
        self._selector.unregister(self._listener)
        self._listener.close()

    def _accept(self, _events: int) -> None:
        client, _ = self._listener.accept()
        self._selector.unregister(self._listener)
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client = client
        self._terminal = os.open(self._path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        self._watch()

    def _drop(self) -> None:
        for descriptor, mask in self._masks.items():
            if mask:
                self._selector.unregister(descriptor)
        self._masks.clear()
        if self._client is not None:
            self._client.close()
            self._client = None
        os.close(self._terminal)
        self._to_client.clear()
        self._to_terminal.clear()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _on_client(self, events: int) -> None:
        client = self._client
        if client is None:
            return
        try:
            if events & selectors.EVENT_READ:
                data = client.recv(_CHUNK_BYTES)
                # pyserial leaves Nagle's algorithm on: each small write would wait 40 ms for this.
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                if not data:
                    self._drop()
                    return
                self._to_terminal += data
                self._flush_terminal()
            if events & selectors.EVENT_WRITE:
                self._flush_client(client)
        except BlockingIOError:
            pass  # the selector will tell
        except OSError:
            self._drop()
            return
        self._watch()

    def _on_terminal(self, events: int) -> None:
        client = self._client
        if client is None:
            return
        try:
            if events & selectors.EVENT_READ:
                self._to_client += os.read(self._terminal, _CHUNK_BYTES)
                self._flush_client(client)
            if events & selectors.EVENT_WRITE:
                self._flush_terminal()
        except BlockingIOError:
            pass  # the selector will tell
        except OSError:
            self._drop()
            return
        self._watch()

    def _flush_client(self, client: socket.socket) -> None:
        while self._to_client:
            del self._to_client[: client.send(self._to_client)]

    def _flush_terminal(self) -> None:
        while self._to_terminal:
            del self._to_terminal[: os.write(self._terminal, self._to_terminal)]

    def _watch(self) -> None:
        if self._client is None:
            return
        read, write = selectors.EVENT_READ, selectors.EVENT_WRITE
        client = (read if len(self._to_terminal) < _MAX_HELD_BYTES else 0) | (
            write if self._to_client else 0
        )
        terminal = (read if len(self._to_client) < _MAX_HELD_BYTES else 0) | (
            write if self._to_terminal else 0
        )
        self._set(self._client.fileno(), client, self._on_client)
        self._set(self._terminal, terminal, self._on_terminal)

    def _set(self, descriptor: int, mask: int, handler: object) -> None:
        before = self._masks.get(descriptor, 0)
        if before == mask:
            return
        if not before:
            self._selector.register(descriptor, mask, handler)
        elif not mask:
            self._selector.unregister(descriptor)
        else:
            self._selector.modify(descriptor, mask, handler)
        self._masks[descriptor] = mask
