"""A server that misbehaves, over real sockets: one port for each fault."""

import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

_LIFE_S = 60.0  # no connection of a test lasts longer
_CONNACK = b"\x02\0\x01\0"


def _silent(peer: socket.socket) -> None:
    """Reads everything, never answers."""
    while peer.recv(65536):
        continue


def _sends(*parts: bytes) -> Callable[[socket.socket], None]:
    def serve(peer: socket.socket) -> None:
        for part in parts:
            peer.sendall(part)
        _silent(peer)

    return serve


def _answers(greeting: bytes, rest: bytes) -> Callable[[socket.socket], None]:
    """Sends the rest when the client speaks again after its CONNECT."""

    def serve(peer: socket.socket) -> None:
        peer.recv(65536)
        peer.sendall(greeting)
        peer.recv(65536)
        peer.sendall(rest)
        _silent(peer)

    return serve


def _bytewise(data: bytes) -> Callable[[socket.socket], None]:
    def serve(peer: socket.socket) -> None:
        for byte in data:
            peer.sendall(bytes([byte]))
            time.sleep(0.001)  # so that the bytes come in reads of their own
        _silent(peer)

    return serve


def _reads_nothing(greeting: bytes) -> Callable[[socket.socket], None]:
    def serve(peer: socket.socket) -> None:
        peer.sendall(greeting)
        threading.Event().wait(_LIFE_S)

    return serve


def _fin(peer: socket.socket) -> None:
    peer.recv(1)


def _reset(peer: socket.socket) -> None:
    peer.recv(1)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _echo(peer: socket.socket) -> None:
    """What an FMQP broker does for a client that is subscribed to what it publishes."""
    while data := peer.recv(65536):
        peer.sendall(data)


def _lightmq_echo(peer: socket.socket) -> None:
    """After CONNECT: the client's frames come back, and its answers to them answer it."""
    peer.recv(65536)
    peer.sendall(_CONNACK)
    _echo(peer)


def _late(peer: socket.socket) -> None:
    """Lets the client's writes find no room at first, then echoes."""
    threading.Event().wait(0.3)
    _echo(peer)


_GARBAGE = random.Random(4).randbytes(4096)
_FMQP = b"".join(b"\0\x03\0\0\0\x02a/b%02d" % n for n in range(50))
_LIGHTMQ = _CONNACK + b"".join(b"\x05\0\x05\0%c\0%02d" % (n, n) for n in range(50))

FAULTS: dict[str, Callable[[socket.socket], None]] = {
    "silent": _silent,
    "fmqp_half": _sends(b"\0\x05\0\0\0\x05hal"),
    "fmqp_200_mb": _sends(b"\0\x03\x0b\xeb\xc2\0a/b", b"x" * 4096),
    "fmqp_900_kb_half": _sends(b"\0\x03\0\x0e\0\0a/b", b"x" * 4096),
    "fmqp_garbage": _sends(_GARBAGE),
    "fmqp_bytewise": _bytewise(_FMQP),
    "fmqp_reads_nothing": _reads_nothing(b""),
    "lightmq_no_pong": _sends(_CONNACK),
    "lightmq_half": _sends(_CONNACK + b"\x05\0\x20\0\x01\0hal"),
    "lightmq_64_kb_half": _sends(_CONNACK + b"\x05\xff\xff\0\x01\0hal"),
    "lightmq_garbage": _answers(_CONNACK, _GARBAGE),
    "lightmq_bytewise": _bytewise(_LIGHTMQ),
    "lightmq_reads_nothing": _reads_nothing(_CONNACK),
    "lightmq_refused": _sends(b"\x02\0\x01\x04"),
    "fin": _fin,
    "reset": _reset,
    "late": _late,
    "echo": _echo,
    "lightmq_echo": _lightmq_echo,
}


class FaultServer:
    """Context manager; ``ports`` maps each fault, ``refused`` and ``black_hole`` to its port.

    ``secrets``: the files of a certificate and its key; then all of it happens inside TLS.
    """

    def __init__(self, secrets: tuple[Path, Path] | None = None) -> None:
        self._tls: ssl.SSLContext | None = None
        if secrets:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(*secrets)
        self.ports: dict[str, int] = {}
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> "FaultServer":
        for name, serve in FAULTS.items():
            listener = self._listen(name, backlog=8)
            threading.Thread(target=self._accept, args=(listener, serve), daemon=True).start()
        # A full queue of connections that nobody accepts: Linux drops further SYNs unanswered.
        hole = self._listen("black_hole", backlog=0)
        for _ in range(4):
            stuffing = self._kept(socket.socket())
            stuffing.setblocking(False)
            stuffing.connect_ex(hole.getsockname())
        # Bound and not listening: nobody else gets the port, and a connection is refused.
        closed = self._kept(socket.socket())
        closed.bind(("127.0.0.1", 0))
        self.ports["refused"] = closed.getsockname()[1]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        for kept in self._sockets:
            kept.close()

    def _kept(self, sock: socket.socket) -> socket.socket:
        self._sockets.append(sock)
        return sock

    def _listen(self, name: str, backlog: int) -> socket.socket:
        listener = self._kept(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen(backlog)
        self.ports[name] = listener.getsockname()[1]
        return listener

    def _accept(self, listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return  # closed: the end of the test
            threading.Thread(target=self._serve, args=(peer, serve), daemon=True).start()

    def _serve(self, peer: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        peer.settimeout(_LIFE_S)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self._tls:
                peer = self._tls.wrap_socket(peer, server_side=True)
            serve(peer)
        except OSError:
            return  # the client gave up on us, as it should
        finally:
            peer.close()
