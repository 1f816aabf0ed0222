"""What a running board says of itself: the proof that it is the one, and that an image boots."""

import time
from dataclasses import dataclass

from boards.flash.find_board import Placed, find_board
from boards.repl import Repl
from boards.serial_port import PortError, Tap

_TRY_S = 10.0
_LOOK_S = 0.1
_CODE = """
import sys
_i = sys.implementation
print("machine", getattr(_i, "_machine", ""))
print("version", sys.version)
try:
    import machine, binascii
    print("uid", binascii.hexlify(machine.unique_id()).decode())
except (ImportError, AttributeError):
    print("uid")
"""


@dataclass(frozen=True, slots=True)
class Running:
    """The firmware and the chip, in the board's own words."""

    machine: str
    version: str
    uid: str  # lower-case hex, "" for a port without one

    @property
    def text(self) -> str:
        """For people: version and machine."""
        return f"{self.version} {self.machine}"


def ask_running(url: str, *, deadline_s: float, tap: Tap | None = None) -> Running:
    """Ask over the raw REPL, without a reset; the running program is interrupted.

    Raises ``NoReply``, ``RemoteError``, ``PortError``.
    """
    until = time.monotonic() + deadline_s
    with Repl.open(url, deadline_s=deadline_s, tap=tap) as repl:
        printed = repl.exec(_CODE, deadline_s=min(_TRY_S, max(0.1, until - time.monotonic())))
    said = dict(line.partition(" ")[::2] for line in printed.splitlines())
    return Running(said.get("machine", ""), said.get("version", ""), said.get("uid", ""))


def await_running(board: Placed, *, deadline_s: float, tap: Tap | None = None) -> Running:
    """Wait until a board that was away is back on the bus, and ask it, as ``ask_running`` does.

    On its way it may come and go: from its loader to its own USB, from one port name to another.
    Raises ``NotThere`` or ``PortError`` when it is not back after ``deadline_s`` seconds.
    """
    until = time.monotonic() + deadline_s
    while True:
        place = find_board(board, "running", deadline_s=max(0.0, until - time.monotonic()))
        try:
            left = max(1.0, until - time.monotonic())
            return ask_running(place.serial_url, deadline_s=left, tap=tap)
        except PortError:
            if time.monotonic() > until:
                raise
            time.sleep(_LOOK_S)
