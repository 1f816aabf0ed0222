"""The real broker for the checks, and what stands between it and a client: a relay that cuts
every connection sooner or later, and FMQP carried by LightMQ."""

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from tests.host_broker.net.broker_process import BrokerProcess

_ACCEPTED = b"\x02\0\x01\0"
_CUT_AFTER = 8_500  # bytes to the client; about 500 messages of the soak


class BrokerSide:
    """Context manager; ``ports``: of fmqp, lightmq, cut (FMQP), carried, stuck, refused."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> "BrokerSide":
        listen = ["--listen", "fmqp://127.0.0.1:0", "--listen", "lightmq://127.0.0.1:0"]
        self.broker = BrokerProcess("--ephemeral", *listen)
        self.ports = dict(self.broker.ports)
        self._serve("cut", self._cut)
        self._serve("carried", self._carried)
        stuck = self._listen("stuck")
        threading.Thread(target=self._hold, args=(stuck,), daemon=True).start()
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
        self.broker.end()

    def written_to(self, file: Path) -> Path:
        """Write the ports as JSON; return the file."""
        file.write_text(json.dumps(self.ports))
        return file

    def _kept(self, sock: socket.socket) -> socket.socket:
        self._sockets.append(sock)
        return sock

    def _listen(self, name: str) -> socket.socket:
        listener = self._kept(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        self.ports[name] = listener.getsockname()[1]
        return listener

    def _serve(self, name: str, serve: Callable[[socket.socket, socket.socket], None]) -> None:
        listener = self._listen(name)
        threading.Thread(target=self._accept, args=(listener, serve), daemon=True).start()

    def _accept(
        self, listener: socket.socket, serve: Callable[[socket.socket, socket.socket], None]
    ) -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return  # closed: the end of the tests
            threading.Thread(target=self._between, args=(peer, serve), daemon=True).start()

    def _hold(self, listener: socket.socket) -> None:
        # Accepted and never read.
        while True:
            try:
                self._kept(listener.accept()[0])
            except OSError:
                return  # closed: the end of the tests

    def _between(
        self, peer: socket.socket, serve: Callable[[socket.socket, socket.socket], None]
    ) -> None:
        with peer, socket.create_connection(("127.0.0.1", self.ports["fmqp"])) as broker:
            for sock in (peer, broker):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                serve(peer, broker)
            except OSError:
                _end(peer, broker)

    def _cut(self, peer: socket.socket, broker: socket.socket) -> None:
        threading.Thread(target=_copy, args=(peer, broker, 1 << 40), daemon=True).start()
        _copy(broker, peer, _CUT_AFTER)

    def _carried(self, peer: socket.socket, broker: socket.socket) -> None:
        lock = threading.Lock()
        with peer.makefile("rb") as frames:
            _frame(frames.read)
            peer.sendall(_ACCEPTED)
            threading.Thread(target=_as_sends, args=(broker, peer, lock), daemon=True).start()
            while True:
                operation, payload = _frame(frames.read)
                answer = b""
                if operation == 3:
                    answer = b"\x04\0\x02" + payload
                elif operation == 5:
                    broker.sendall(payload[3:])
                    answer = b"\x06\0\x02" + payload[:2]
                with lock:
                    peer.sendall(answer)


def _copy(source: socket.socket, target: socket.socket, limit: int) -> None:
    # At most ``limit`` bytes; then, or when either ends, both do.
    try:
        while limit > 0 and (data := source.recv(min(limit, 4096))):
            target.sendall(data)
            limit -= len(data)
    except OSError:
        limit = 0
    _end(source, target)


def _end(*sockets: socket.socket) -> None:
    # Shut down, as another thread may be reading: then close() alone would end nothing.
    for sock in sockets:
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue  # ended already


def _frame(read: Callable[[int], bytes]) -> tuple[int, bytes]:
    head = read(3)
    if len(head) < 3:
        raise ConnectionError("the client has gone")
    return head[0], read(head[1] << 8 | head[2])


def _as_sends(broker: socket.socket, peer: socket.socket, lock: threading.Lock) -> None:
    number = 0
    try:
        # Small pieces: packets of the broker are cut anywhere.
        while data := broker.recv(50):
            number = (number + 1) & 0xFFFF
            frame = b"\x05" + (3 + len(data)).to_bytes(2, "big") + number.to_bytes(2, "big")
            with lock:
                peer.sendall(frame + b"\0" + data)
        peer.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the client has gone
