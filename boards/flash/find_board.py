"""Find a board that was away, and ask what runs on it: proof that it boots, and is the one.

A board that comes back may have another port name and another USB id, and takes its time; its port
is there before udev has given it to us. All who need a board that was away wait here.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from boards.flash.target import NotThere, Place
from boards.inventory.target import BoardHandle
from boards.repl import Repl
from boards.serial_port import PortError, Tap

_LOOK_S = 0.1
_OURS_S = 3.0  # for udev, once the port is there
_TRY_S = 10.0
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

Wanted = Literal["loader", "drive", "anew", "running"]
_INSTEAD: Mapping[Wanted, str] = {
    "loader": "is not in its loader",
    "drive": "its drive is not mounted",
    "anew": "has not come anew, with a port that is ours",
    "running": "waits to be flashed",
}


def find_board(
    board: BoardHandle, wanted: Wanted, *, deadline_s: float, before: Place | None = None
) -> Place:
    """Return where the board is, as soon as it is there as ``wanted``; looks at least once.

    ``running``: it has a console, which need not answer yet. ``loader``: it waits to be flashed;
    ``drive``: by a drive that is mounted. ``anew``: it has left the bus since it was at ``before``,
    has come back into the same port of its hub, and udev has given its port to us. Raises
    ``NotThere`` after ``deadline_s`` seconds, with what was there instead.
    """
    until = time.monotonic() + deadline_s
    while True:
        try:
            place = board.place()
            if _is_as(wanted, place, before):
                return place
            where = place.hub_path or place.serial_url or place.drive
            seen = f"{board.id}: it is at {where}, and {_INSTEAD[wanted]}"
        except NotThere as error:
            seen = str(error)
        if time.monotonic() >= until:
            raise NotThere(seen)
        time.sleep(_LOOK_S)


def open_repl(board: BoardHandle, *, deadline_s: float, tap: Tap | None = None) -> Repl:
    """Return the raw REPL of a board, once it is on the bus, its port ours, and it answers.

    Raises ``NotThere``, ``PortError``, ``NoReply``.
    """
    until = time.monotonic() + deadline_s
    place = find_board(board, "running", deadline_s=deadline_s)
    ours_by = min(until, time.monotonic() + _OURS_S)
    while True:
        try:
            left = max(_LOOK_S, until - time.monotonic())
            return Repl.open(place.serial_url, deadline_s=left, tap=tap)
        except PortError:
            if time.monotonic() >= ours_by:
                raise
            time.sleep(_LOOK_S)
            place = find_board(board, "running", deadline_s=max(0.0, until - time.monotonic()))


def _is_as(wanted: Wanted, place: Place, before: Place | None) -> bool:
    if wanted == "running":
        return place.state != "loader" and bool(place.serial_url)
    if wanted == "drive":
        return place.drive is not None
    if wanted == "anew":
        return (
            before is not None
            and place.hub_path == before.hub_path
            and place.address != before.address
            and os.access(place.serial_url, os.R_OK | os.W_OK)
        )
    return place.state == "loader" or (place.drive is not None and place.drive.exists())


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


def await_running(board: BoardHandle, *, deadline_s: float, tap: Tap | None = None) -> Running:
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
