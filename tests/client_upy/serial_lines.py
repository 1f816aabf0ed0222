"""Serial lines to TCP ports: for each connection a pty of its own and a raw bridge at its end."""

import functools
import os
import select
import socket
import tty

from boards.bridge.bridge import RawBridge
from tests.client_upy.loopback_ports import LoopbackPorts

SILENCE_S = 0.4
_PATIENT_S = 10.0  # where no silence is wanted, however busy the machine
# What the peer says of itself has to come, and who is timed has one session, if it is starved, too.
_NOT_SILENT = ("bytewise", "absurd", "timed")
_BUFFER = 4096  # bytes that wait on a line


class SerialLines(LoopbackPorts):
    """``ports[name]`` is the board's end of a line to the TCP port ``targets[name]``.

    A connection to it is the board's wire: bytes go through a real pty and the bridge. It ends
    only when the board's end closes; the bridge's sessions cannot be seen, as on any such line.
    """

    def __init__(self, targets: dict[str, int]) -> None:
        super().__init__()
        for name, target in targets.items():
            silence_s = _PATIENT_S if name.endswith(_NOT_SILENT) else SILENCE_S
            self.serve(name, functools.partial(_line, target, silence_s))


def _line(target: int, silence_s: float, wire: socket.socket) -> None:
    master, slave = os.openpty()
    tty.setraw(slave)
    try:
        with RawBridge(os.ttyname(slave), 115200, "127.0.0.1", target, silence_s=silence_s):
            _pump(wire, master)
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
