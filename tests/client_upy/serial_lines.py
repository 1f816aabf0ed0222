"""Serial lines to TCP ports: for each connection a pty of its own and a raw bridge at its end."""

import os
import select
import socket
import threading
import tty
from types import TracebackType

from boards.bridge.raw import RawBridge

SILENCE_S = 0.4
_BUFFER = 4096  # bytes that wait on a line


class SerialLines:
    """Context manager; ``ports[name]`` is the board's end of a line to the TCP port ``name``.

    A connection to it is the board's wire: bytes go through a real pty and the bridge. It ends
    only when the board's end closes; the bridge's sessions cannot be seen, as on any such line.
    """

    def __init__(self, targets: dict[str, int]) -> None:
        self._targets = targets
        self._listeners: list[socket.socket] = []
        self.ports: dict[str, int] = {}

    def __enter__(self) -> "SerialLines":
        for name, target in self._targets.items():
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            listener.bind(("127.0.0.1", 0))
            listener.listen(4)
            self._listeners.append(listener)
            self.ports[name] = listener.getsockname()[1]
            threading.Thread(target=self._accept, args=(listener, target), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        for listener in self._listeners:
            listener.close()

    def _accept(self, listener: socket.socket, target: int) -> None:
        while True:
            try:
                wire, _ = listener.accept()
            except OSError:
                return  # closed: the end of the test
            threading.Thread(target=_line, args=(wire, target), daemon=True).start()


def _line(wire: socket.socket, target: int) -> None:
    master, slave = os.openpty()
    tty.setraw(slave)
    try:
        with wire, RawBridge(os.ttyname(slave), 115200, "127.0.0.1", target, silence_s=SILENCE_S):
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _pump(wire, master)
    except OSError:
        return  # the board's end was closed in the middle
    finally:
        os.close(master)
        os.close(slave)


def _pump(wire: socket.socket, master: int) -> None:
    os.set_blocking(master, False)
    to_bridge = b""
    while True:
        # The line takes no more than the bridge does: then the board's writes find no room.
        reading: list[socket.socket | int] = [master]
        if len(to_bridge) < _BUFFER:
            reading.append(wire)
        readable, _, _ = select.select(reading, [master] if to_bridge else [], [], 1)
        if wire in readable:
            data = wire.recv(_BUFFER)
            if not data:
                return
            to_bridge += data
        if master in readable:
            wire.sendall(os.read(master, _BUFFER))
        if to_bridge:
            try:
                to_bridge = to_bridge[os.write(master, to_bridge) :]
            except BlockingIOError:
                continue  # select() tells when
