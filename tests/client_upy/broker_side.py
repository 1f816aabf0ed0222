"""The real broker for the checks, and between it and a client a relay that cuts every connection
sooner or later."""

import functools
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from tests.client_upy.loopback_ports import LoopbackPorts, reads_nothing
from tests.host_broker.net.broker_process import BrokerProcess

_CUT_AFTER = 8_500  # bytes to the client; about 500 messages of the soak


class BrokerSide(LoopbackPorts):
    """``ports``: of fmqp, lightmq, micromsg2, cut (FMQP), cut_micromsg2, carried (FMQP in LightMQ),
    pieces (the same, in SENDs of 50 bytes), stuck, refused."""

    def __init__(self) -> None:
        super().__init__()
        listen = ["--listen", "fmqp://127.0.0.1:0", "--listen", "lightmq://127.0.0.1:0"]
        listen += ["--listen", "micromsg2://127.0.0.1:0"]
        carried = ["--listen", "lightmq+fmqp://127.0.0.1:0"]
        self.broker = BrokerProcess("--ephemeral", *listen, *carried)
        self.ports |= self.broker.ports
        self.ports["carried"] = self.broker.ports["lightmq+fmqp"]
        small = ["--set", "lightmq.tunnel_bytes=50"]
        self._pieces = BrokerProcess("--ephemeral", *carried, *small)
        self.ports["pieces"] = self._pieces.ports["lightmq+fmqp"]
        self.serve("cut", functools.partial(self._between, "fmqp", self._cut))
        self.serve("cut_micromsg2", functools.partial(self._between, "micromsg2", self._cut))
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
        self._pieces.end()

    def written_to(self, file: Path) -> Path:
        """Write the ports as JSON; return the file."""
        file.write_text(json.dumps(self.ports))
        return file

    def _between(
        self,
        protocol: str,
        serve: Callable[[socket.socket, socket.socket], None],
        peer: socket.socket,
    ) -> None:
        with socket.create_connection(("127.0.0.1", self.ports[protocol])) as broker:
            broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                serve(peer, broker)
            except OSError:
                _end(peer, broker)

    def _cut(self, peer: socket.socket, broker: socket.socket) -> None:
        threading.Thread(target=_copy, args=(peer, broker, 1 << 40), daemon=True).start()
        _copy(broker, peer, _CUT_AFTER)


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
