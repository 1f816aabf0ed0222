"""Ports of this machine, each served by a function in a thread per connection."""

import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

Serve = Callable[[socket.socket], None]

_BUFFER = 4096  # bytes: a peer that is not read soon finds no room, as over a slow network
_LIFE_S = 60.0  # no connection of a test lasts longer


class LoopbackPorts:
    """Context manager; ``ports`` maps names to port numbers on 127.0.0.1."""

    def __init__(self) -> None:
        self.ports: dict[str, int] = {}
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        for kept in self._sockets:
            kept.close()

    def serve(self, name: str, serve: Serve) -> None:
        """Open a port; ``serve`` gets each connection, which ends with it or with an OSError."""
        listener = self.listen(name, 16)
        threading.Thread(target=_accept, args=(listener, serve), daemon=True).start()

    def refuse(self, name: str) -> None:
        """Take a port where nobody listens, and keep others from it."""
        closed = self.keep(socket.socket())
        closed.bind(("127.0.0.1", 0))
        self.ports[name] = closed.getsockname()[1]

    def listen(self, name: str, backlog: int) -> socket.socket:
        """Open a port; the caller accepts, or does not."""
        listener = self.keep(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        listener.bind(("127.0.0.1", 0))
        listener.listen(backlog)
        self.ports[name] = listener.getsockname()[1]
        return listener

    def keep(self, sock: socket.socket) -> socket.socket:
        """Close it at the end."""
        self._sockets.append(sock)
        return sock


def reads_nothing(_peer: socket.socket) -> None:
    """Be a peer that has accepted, and no more."""
    threading.Event().wait(_LIFE_S)


def _accept(listener: socket.socket, serve: Serve) -> None:
    while True:
        try:
            peer, _ = listener.accept()
        except OSError:
            return  # closed: the end of the tests
        threading.Thread(target=_serve, args=(peer, serve), daemon=True).start()


def _serve(peer: socket.socket, serve: Serve) -> None:
    with peer:
        peer.settimeout(_LIFE_S)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            serve(peer)
        except OSError:
            return  # the other end has gone
