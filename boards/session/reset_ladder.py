"""The reset ladder: from asking nicely to cutting the power, until a board answers.

Ctrl-C (part of asking), then the rungs that the board's ``[reset] order`` names.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from boards.errors import RigError
from boards.flash.esptool_flash import pulse_reset
from boards.flash.find_board import Running, ask_running, await_running
from boards.flash.target import NotThere, WrongBoard
from boards.inventory import unresponsive
from boards.inventory.models import Reset
from boards.inventory.power import PowerError
from boards.inventory.target import BoardHandle
from boards.port_users import Holders, holders
from boards.repl import NoReply, Repl, ReplError
from boards.serial_port import PortError, PortGone, PortRefused, PortUnserved, Tap
from boards.virtual.control import BoardError

_ASK_S = 5.0
_BACK_S = 15.0  # until a board that was reset has booted and its port is back
_SERVED_S = 5.0  # for who has the port at a serial server to go, or for one to come up
_LETS_GO_S = 30.0  # for a serial server to let go of who has gone, which may have been us
_LOOK_S = 0.2

Progress = Callable[[str], None]
T = TypeVar("T")


class NotBack(RigError):
    """No rung brought the board back; the text is the evidence: each rung and what came of it."""


def bring_back(board: BoardHandle, *, tap: Tap | None, progress: Progress) -> Running:
    """Return what runs on the board, after as few rungs as possible.

    Raises ``NotBack``; ``WrongBoard`` if what answers is another board, or is not there;
    ``PortRefused`` if its port is not ours to open, or no longer: then nothing is known of the
    board, and nothing more is done to it, but where nobody serves its port and it has a switch of
    its own: then its power is cut, as a board that left the bus takes its server's port with it.
    """
    seen = []
    unserved: PortUnserved | None = None
    try:
        return _once_served(board, lambda: _ask(board, _ASK_S, tap))
    except PortUnserved as error:
        unserved = error
    except PortRefused:
        raise
    except (ReplError, PortError, NotThere) as error:
        seen.append(f"asked: {error}")
    for rung in board.model.resets:
        if rung == "repl" and not board.answers():
            continue  # in its loader, where nobody listens to Python
        if unserved is not None and rung != "power":
            continue  # it goes by the port
        progress(f"reset: {rung}")
        try:
            _once_served(board, partial(_RUNGS[rung], board, tap))
            return _proven(board, await_running(board, deadline_s=_BACK_S, tap=tap))
        except PortUnserved as error:
            unserved = error
            seen.append(f"{rung}: {error}")
        except PortRefused:
            raise  # somebody has come between
        except PowerError as error:
            seen.append(f"{rung}: {error}")
        except (ReplError, PortError, NotThere, BoardError, OSError) as error:
            unserved = None
            seen.append(f"{rung}: {error}")
    if unserved is not None:
        raise unserved
    raise NotBack("; ".join(seen))


def admit(board: BoardHandle, *, tap: Tap | None, progress: Progress, state_dir: Path) -> Running:
    """Bring a board back, or mark it as wedged with the evidence. Raises like ``bring_back``."""
    unresponsive.refuse(state_dir, board.id)
    try:
        return bring_back(board, tap=tap, progress=progress)
    except NotBack as error:
        unresponsive.mark(state_dir, board.id, str(error))
        raise


def _once_served(board: BoardHandle, act: Callable[[], T]) -> T:
    """Do what needs the port; of a board elsewhere its server may take a while to serve us.

    As long as it has not let go of a connection whose program has gone, that is for the server to
    do, however busy it is; who is connected to it is another program, and told apart.
    """
    begun = time.monotonic()
    until = begun + _SERVED_S
    while True:
        # A try counts by when it began: how long it took is how busy the server is.
        is_last = time.monotonic() >= until
        try:
            return act()
        except PortError as error:
            if not board.is_elsewhere:
                raise
            seen = holders(board.place().serial_url, str(error))
            if seen.is_leaving:
                is_last = time.monotonic() >= begun + _LETS_GO_S
                until = time.monotonic() + _SERVED_S
            if is_last:
                raise _refused(error, seen) from None
        time.sleep(_LOOK_S)


def _refused(error: PortError, seen: Holders) -> PortError:
    """Return ``error`` with what is known of who has the port."""
    if not isinstance(error, PortGone | PortRefused) or isinstance(error, PortUnserved):
        return error
    if seen.programs:
        return PortRefused(f"{error} Connected to it: {', '.join(seen.programs)}; end that first")
    if seen.is_leaving:
        return PortRefused(
            f"{error} Nobody here has it any more, and for {_LETS_GO_S:g} s its server has not let "
            "go of it: does it hang?"
        )
    if isinstance(error, PortGone):
        return PortRefused(f"{error}; does its server serve somebody else?")
    return error


def _ask(board: BoardHandle, deadline_s: float, tap: Tap | None) -> Running:
    place = board.place()
    if not place.serial_url or not board.answers():
        raise NotThere(f"{board.id}: it waits to be flashed: no program runs")
    return _proven(board, ask_running(place.serial_url, deadline_s=deadline_s, tap=tap))


def _proven(board: BoardHandle, running: Running) -> Running:
    if board.identity.text and running.uid != board.identity.text:
        raise WrongBoard(
            f"{board.id}: the board in its place says it is {running.uid or 'nobody'}, expected "
            f"{board.identity.text}"
        )
    return running


def _repl(board: BoardHandle, tap: Tap | None) -> None:
    """``machine.reset()``, where a REPL answers at all."""
    repl = Repl.open(board.place().serial_url, deadline_s=_ASK_S, tap=tap)
    try:
        # It goes without a farewell: no answer is the answer.
        with contextlib.suppress(NoReply, PortError):
            repl.exec("import machine\nmachine.reset()", deadline_s=1.0)
    finally:
        repl.close(friendly=False)


def _rts(board: BoardHandle, _tap: Tap | None) -> None:
    pulse_reset(board.place().serial_url)


def _control(board: BoardHandle, _tap: Tap | None) -> None:
    if board.buttons is None:
        raise BoardError("only virtual boards have buttons within reach")
    board.buttons.reset()


def _power(board: BoardHandle, _tap: Tap | None) -> None:
    board.power_cycle()


_RUNGS: Mapping[Reset, Callable[[BoardHandle, Tap | None], None]] = {
    "repl": _repl,
    "rts": _rts,
    "control": _control,
    "power": _power,
}
