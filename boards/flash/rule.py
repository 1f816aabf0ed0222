"""The flash rule: never the wrong board, never the wrong image, never "probably written".

1. The image is for this chip. 2. Exactly one device is where the board must be. 3. The chip says
that it is this board. 4. The caller holds the board's lock. 5. Write, unless the same is there.
6. The tool compared what it wrote. 7. The board boots it and says who it is. 8. The ledger has it.
Up to 5 a mismatch is ``WrongBoard`` or ``FlashError``, and nothing was written.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from boards.flash.find_board import Running, ask_running, await_running
from boards.flash.image_identity import Image
from boards.flash.ledger import Entry, Ledger
from boards.flash.methods import ASK_S, METHODS, Job
from boards.flash.target import FlashError, NoWayIn, Place, Progress, WrongBoard
from boards.inventory.locks import BoardLock, flash_permit
from boards.inventory.target import BoardHandle
from boards.repl import NoReply, ReplError
from boards.serial_port import PortError, PortGone, Tap

_BOOT_S = 30.0


@dataclass(frozen=True, slots=True)
class Flashed:
    """How it ended well."""

    written: bool  # False: the same firmware was there already
    running: Running


def flash_board(
    target: BoardHandle,
    image: Image,
    *,
    held: BoardLock,
    ledger: Ledger,
    deadline_s: float,
    progress: Progress,
    tap: Tap | None = None,
    force: bool = False,
    trust_ledger: bool = False,
    proven: Callable[[str], None] | None = None,
) -> Flashed:
    """Put ``image`` on the board by the rule above.

    ``trust_ledger``: the same image in the ledger, and a running board that says it is the one,
    are enough to skip; else the flash itself is compared, where the method can. ``force`` always
    writes. ``tap`` is shown what the board says. ``proven`` is called with the console's URL when
    the program that runs has said that it is the board, before anything is written. Raises
    ``WrongBoard`` (nothing was written), ``FlashError``, ``ToolError``, ``ReplError``,
    ``PortError``.
    """
    if held.board_id != target.id:
        raise FlashError(f"{target.id}: the lock held is that of {held.board_id}")
    job = Job(target, image, time.monotonic() + deadline_s, progress, tap, force)
    place = target.place()
    progress("asking who it is")
    running = _ask_if_running(job, place)
    if running is not None:
        _require_uid(target, running.uid, place)
        if proven is not None:
            proven(place.serial_url)
    if running is not None and trust_ledger and not force and _is_known(target, image, ledger):
        return Flashed(False, running)
    entry = Entry(
        board=target.id,
        identity=target.identity.text,
        sha256="",
        image=image.path.name,
        tool=target.model.flash.method,
        machine="",
        version="",
    )
    if ledger.last(target.id) is not None:
        # Whoever is killed while writing leaves half of one image and half of another, which may
        # even boot: from here on what was booked is not to be trusted.
        ledger.append(entry)
    written = METHODS[target.model.flash.method](job, place, running is not None)
    progress("waiting for the REPL")
    running = _await_boot(job)
    ledger.append(
        replace(entry, sha256=image.sha256, machine=running.machine, version=running.version)
    )
    return Flashed(written, running)


def flash_in_turn(
    target: BoardHandle,
    image: Image,
    *,
    held: BoardLock,
    state_dir: Path,
    parallel: int,
    left_s: Callable[[], float],
    revive: Callable[[], None] | None = None,
    progress: Progress = lambda text: None,
    tap: Tap | None = None,
    force: bool = False,
    trust_ledger: bool = False,
    proven: Callable[[str], None] | None = None,
) -> Flashed:
    """``flash_board`` once it is the turn of the board's USB controller, of which ``parallel`` may.

    ``state_dir``: the desk's, with its permits and ledger. ``left_s`` tells how many seconds there
    are, for the wait and for each try. ``revive`` is called where there is no way into the loader,
    before a second try. Raises ``NoPermit``, and as ``flash_board`` does.
    """

    def once() -> Flashed:
        return flash_board(
            target,
            image,
            held=held,
            ledger=Ledger(state_dir / "ledger.jsonl"),
            deadline_s=left_s(),
            progress=progress,
            tap=tap,
            force=force,
            trust_ledger=trust_ledger,
            proven=proven,
        )

    with flash_permit(state_dir, target.controller(), parallel, deadline_s=left_s()):
        try:
            return once()
        except NoWayIn:
            if revive is None:
                raise
            revive()
            return once()


def _ask_if_running(job: Job, place: Place) -> Running | None:
    """Return what runs there; None if nothing answers, as on a blank board or in a loader."""
    if place.state == "loader" or not place.serial_url or not job.target.answers():
        return None
    try:
        return ask_running(place.serial_url, deadline_s=job.left(ASK_S), tap=job.tap)
    except (NoReply, PortGone):
        return None
    except ReplError as error:
        raise FlashError(
            f"{job.target.id}: it runs something that is no MicroPython: {error}"
        ) from (error)


def _is_known(target: BoardHandle, image: Image, ledger: Ledger) -> bool:
    last = ledger.last(target.id)
    return (
        last is not None and last.sha256 == image.sha256 and last.identity == target.identity.text
    )


def _require_uid(target: BoardHandle, uid: str, place: Place) -> None:
    expected = target.identity.text
    if not expected and target.model.flash.method == "none":
        return  # nothing is written, and the unix port has no id
    if not expected:
        raise WrongBoard(
            f"{target.id}: its file names neither mac nor uid under [identity], so no chip can be "
            f"proven to be it (the one there says {uid or 'nothing'}); nothing was written"
        )
    if uid != expected:
        where = place.hub_path or place.serial_url
        raise WrongBoard(
            f"{target.id}: the board at {where} says it is {uid or 'nobody'}, expected {expected}; "
            "nothing was written"
        )


def _await_boot(job: Job) -> Running:
    target = job.target
    try:
        running = await_running(target, deadline_s=job.left(_BOOT_S), tap=job.tap)
    except (WrongBoard, PortError) as error:
        raise FlashError(f"{target.id}: written, but it did not come back: {error}") from error
    if running.uid != (target.identity.text):
        raise FlashError(
            f"{target.id}: written, but the board that booted says it is {running.uid}, expected "
            f"{target.identity.text}: look at the desk before anything else is flashed"
        )
    if not running.machine.endswith(target.model.machine):
        raise FlashError(
            f"{target.id}: it booted as {running.machine!r}, a board of model {target.model.id} "
            f"ends in {target.model.machine!r}"
        )
    if job.image.version and job.image.version not in running.version.split():
        raise FlashError(
            f"{target.id}: it booted {running.version!r}, and {job.image.path.name} is "
            f"{job.image.version}: the flash holds something else"
        )
    return running
