"""The real broker for the checks, and what stands between it and a client: a relay that cuts
every connection sooner or later, and FMQP carried by LightMQ."""

import functools
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from tests.client_upy.loopback_ports import LoopbackPorts, reads_nothing
from tests.host_broker.net.broker_process import BrokerProcess

_ACCEPTED = b"\x02\0\x01\0"
_CUT_AFTER = 8_500  # bytes to the client; about 500 messages of the soak


class BrokerSide(LoopbackPorts):
    """``ports``: of fmqp, lightmq, cut (FMQP), carried, stuck, refused."""

    def __init__(self) -> None:
        super().__init__()
        listen = ["--listen", "fmqp://127.0.0.1:0", "--listen", "lightmq://127.0.0.1:0"]
        self.broker = BrokerProcess("--ephemeral", *listen)
        self.ports |= self.broker.ports
        self.serve("cut", functools.partial(self._between, self._cut))
        self.serve("carried", functools.partial(self._between, self._carried))
        self.serve("stuck", reads_nothing)
        self.refuse("refused")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, tb)
        self.broker.end()

    def written_to(self, file: Path) -> Path:
        """Write the ports as JSON; return the file."""
        file.write_text(json.dumps(self.ports))
        return file

    def _between(
        self, serve: Callable[[socket.socket, socket.socket], None], peer: socket.socket
    ) -> None:
        with socket.create_connection(("127.0.0.1", self.ports["fmqp"])) as broker:
            broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
