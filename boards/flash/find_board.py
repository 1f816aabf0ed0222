"""Wait for a board to be on the bus: after a reset, a flashing, a power cut, or a pulled plug.

A board that comes back may have another port name and another USB id, and takes its time; its port
is there before udev has given it to us. All who need a board that was away wait here.
"""

import time
from typing import Literal, Protocol

from boards.flash.errors import NotThere
from boards.flash.target import Place
from boards.repl import Repl
from boards.serial_port import PortError, Tap

_LOOK_S = 0.1
_OURS_S = 3.0  # for udev, once the port is there

Wanted = Literal["loader", "running"]


class Placed(Protocol):
    """A board that can be looked for."""

    @property
    def id(self) -> str:
        """The board's id on the desk."""

    def place(self) -> Place:
        """Look where the board is; raises ``NotThere`` unless there is exactly one."""


def find_board(board: Placed, wanted: Wanted, *, deadline_s: float) -> Place:
    """Return where the board is, as soon as it is there as ``wanted``; looks at least once.

    ``running``: it has a console, which need not answer yet. ``loader``: it waits to be flashed.
    Raises ``NotThere`` after ``deadline_s`` seconds, with what was there instead.
    """
    until = time.monotonic() + deadline_s
    while True:
        try:
            place = board.place()
            if _is_as(wanted, place):
                return place
            seen = f"{board.id}: it is at {place.hub_path or place.serial_url or place.drive}, "
            seen += "and waits to be flashed" if wanted == "running" else "and is not in its loader"
        except NotThere as error:
            seen = str(error)
        if time.monotonic() >= until:
            raise NotThere(seen)
        time.sleep(_LOOK_S)


def open_repl(board: Placed, *, deadline_s: float, tap: Tap | None = None) -> Repl:
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


def _is_as(wanted: Wanted, place: Place) -> bool:
    if wanted == "running":
        return place.state != "loader" and bool(place.serial_url)
    return place.state == "loader" or (place.drive is not None and place.drive.exists())
