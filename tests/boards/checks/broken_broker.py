"""Between a board and a real broker: what breaks the protocol, in one way of our choosing."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Literal, Self

Way = Literal["up", "down"]  # from the board, to the board
# Gets one whole packet and returns what goes on in its place.
Fault = Callable[[Way, bytes], list[bytes]]

_HEADS = {"fmqp": 6, "lightmq": 3}


def _length(protocol: str, head: bytes) -> int:
    if protocol == "fmqp":
        return 6 + head[1] + int.from_bytes(head[2:6], "big")
    return 3 + int.from_bytes(head[1:3], "big")


def body_of(packet: bytes) -> bytes:
    """Return the body of an FMQP packet."""
    return packet[6 + packet[1] :]


def topic_of(packet: bytes) -> bytes:
    """Return the topic of an FMQP packet."""
    return packet[6 : 6 + packet[1]]


class BrokenBroker:
    """Listens on loopback, passes everything on to ``broker`` but for what ``fault`` changes."""

    def __init__(self, broker: str, protocol: str, fault: Fault) -> None:
        host, _, port = broker.rpartition(":")
        self._broker = host, int(port)
        self._protocol = protocol
        self._fault = fault
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_error: object) -> None:
        for one in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(5)

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                board, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(self._broker)
            self._open += [board, broker]
            self._start(self._pump, "up", board, broker)
            self._start(self._pump, "down", broker, board)

    def _pump(self, way: Way, source: socket.socket, target: socket.socket) -> None:
        try:
            for packet in self._packets(source):
                with self._lock:  # a fault may remember what it saw either way
                    packets = self._fault(way, packet)
                target.sendall(b"".join(packets))
        except OSError:
            pass
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def _packets(self, source: socket.socket) -> Iterator[bytes]:
        pending = b""
        head = _HEADS[self._protocol]
        while data := source.recv(65536):
            pending += data
            while len(pending) >= head and len(pending) >= (
                length := _length(self._protocol, pending)
            ):
                yield pending[:length]
                pending = pending[length:]
