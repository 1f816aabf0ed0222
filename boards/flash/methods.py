"""The last steps before the tools: into the loader, ask the chip, look again, write.

One flat function per method, chosen by name. Each returns whether it wrote, and raises
``WrongBoard`` or ``FlashError`` before the first byte if anything does not fit.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from boards.flash.esptool_flash import Before, flash_esptool, pulse_reset, read_esp_chip
from boards.flash.find_board import find_board
from boards.flash.image_identity import Image
from boards.flash.picotool_flash import flash_picotool, read_rp2_chip
from boards.flash.target import FlashError, NotThere, NoWayIn, Place, Progress, WrongBoard
from boards.flash.uf2_drive import flash_uf2_drive
from boards.inventory.models import FlashMethod
from boards.inventory.target import BoardHandle
from boards.repl import NoReply, Repl
from boards.serial_port import PortError, Tap
from boards.tool import ToolError

ASK_S = 8.0  # a board that runs answers in one; a blank one never does
_LOADER_S = 20.0
_ANEW_S = 8.0
_MOUNT_S = 15.0  # a desktop takes a second or two


@dataclass(slots=True)
class Job:
    """One flashing."""

    target: BoardHandle
    image: Image
    until: float
    progress: Progress
    tap: Tap | None
    force: bool

    def left(self, most_s: float = 1e9) -> float:
        """Return the seconds left, at most ``most_s``; raises ``FlashError`` when time is up."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise FlashError(f"{self.target.id}: the time for flashing was up")
        return min(left, most_s)


def _esptool(job: Job, place: Place, _runs: bool) -> bool:
    target = job.target
    if target.buttons is not None:
        target.buttons.boot()
    before: Before = "no-reset" if target.buttons is not None else "default-reset"
    try:
        chip = read_esp_chip(place.serial_url, before=before, deadline_s=job.left())
    except ToolError as failed:
        if target.buttons is not None:
            raise
        try:
            # A chip with USB of its own: the program's port went, and the ROM's has come.
            place = find_board(target, "anew", deadline_s=job.left(_ANEW_S), before=place)
        except NotThere:
            raise failed from None
        before = "no-reset"
        chip = read_esp_chip(place.serial_url, before=before, deadline_s=job.left())
    if chip.name != target.model.chip_name or chip.mac != target.identity.mac:
        if target.buttons is not None:
            target.buttons.reset()
        raise WrongBoard(
            f"{target.id}: esptool finds {chip.name} {chip.mac}, expected "
            f"{target.model.chip_name} {target.identity.mac or '(no mac in its file)'}; "
            "nothing was written"
        )
    written = flash_esptool(
        job.image.path,
        _same_place(target, place).serial_url,
        chip=target.model.kind,
        offset=target.model.flash.offset,
        deadline_s=job.left(),
        progress=job.progress,
        before=before,
        starts=target.buttons is None,
        baud=target.baud,
        force=job.force,
    )
    if target.buttons is not None:
        target.buttons.reset()
    elif before == "no-reset":
        _leave_loader(target, place)
    return written


def _leave_loader(target: BoardHandle, loader: Place) -> None:
    """Reset a chip that esptool found in its loader, unless it has gone from there already.

    Who opens a port asserts DTR, and with that esptool's RTS alone presses nothing.
    """
    with contextlib.suppress(NotThere, PortError):  # it is just going
        now = target.place()
        if now.address == loader.address:
            pulse_reset(now.serial_url)


def _same_place(target: BoardHandle, before: Place) -> Place:
    """Look again, just before writing: between two looks somebody may have moved a plug."""
    now = target.place()
    if now.hub_path != before.hub_path:
        raise WrongBoard(
            f"{target.id}: it moved from {before.hub_path} to {now.hub_path}; nothing was written"
        )
    return now


def _in_loader(job: Job, place: Place, runs: bool) -> Place:
    """Bring an RP2 board into BOOTSEL mode and return where it is then."""
    target = job.target
    if place.state == "loader":
        return place
    if runs:
        repl = Repl.open(place.serial_url, deadline_s=job.left(ASK_S), tap=job.tap)
        try:
            # It goes without a farewell: no answer is the answer.
            with contextlib.suppress(NoReply, PortError):
                repl.exec("import machine\nmachine.bootloader()", deadline_s=job.left(1.0))
        finally:
            repl.close(friendly=False)
    elif target.buttons is not None:
        target.buttons.boot()
    else:
        raise NoWayIn(
            f"{target.id}: no MicroPython answers at {place.serial_url}, and this board has no "
            "button that the rig can press; hold BOOTSEL while plugging it in. Nothing was written"
        )
    try:
        return find_board(target, "loader", deadline_s=job.left(_LOADER_S))
    except NotThere as error:
        raise FlashError(
            f"{target.id}: asked to, it did not show up in BOOTSEL mode within {_LOADER_S:g} s "
            f"({error}); nothing was written"
        ) from None


def _picotool(job: Job, place: Place, runs: bool) -> bool:
    target = job.target
    loader = _same_hub(target, place, _in_loader(job, place, runs))
    chip = read_rp2_chip(loader.bus, loader.address, deadline_s=job.left())
    if chip.name != target.model.chip_name:
        raise WrongBoard(
            f"{target.id}: picotool finds {chip.name}, expected {target.model.chip_name}; "
            "nothing was written"
        )
    if chip.uid and chip.uid != target.identity.uid:
        raise WrongBoard(
            f"{target.id}: picotool finds flash id {chip.uid}, expected "
            f"{target.identity.uid or '(no uid in its file)'}; nothing was written"
        )
    if not chip.uid and not runs:
        _require_place(target, loader)
    return flash_picotool(
        job.image.path,
        loader.bus,
        loader.address,
        deadline_s=job.left(),
        progress=job.progress,
        force=job.force,
    )


def _uf2_drive(job: Job, place: Place, runs: bool) -> bool:
    target = job.target
    loader = _same_hub(target, place, _in_loader(job, place, runs))
    if not runs:
        _require_place(target, loader)
    flash_uf2_drive(
        job.image.path,
        _mounted_drive(job, loader),
        deadline_s=job.left(),
        progress=job.progress,
        family=target.model.flash.drive,
    )
    return True


def _mounted_drive(job: Job, loader: Place) -> Path:
    """Return the loader's drive, once whoever mounts drives here has mounted it."""
    try:
        there = find_board(job.target, "drive", deadline_s=job.left(_MOUNT_S))
    except NotThere:
        raise FlashError(
            f"{job.target.id}: it is in BOOTSEL mode, but its drive was not mounted within "
            f"{_MOUNT_S:g} s; nothing was written"
        ) from None
    return cast(Path, _same_hub(job.target, loader, there).drive)


def _same_hub(target: BoardHandle, before: Place, loader: Place) -> Place:
    if before.hub_path and loader.hub_path != before.hub_path:
        raise WrongBoard(
            f"{target.id}: a board in BOOTSEL mode is at {loader.hub_path}, it was at "
            f"{before.hub_path}; nothing was written"
        )
    return loader


def _require_place(target: BoardHandle, place: Place) -> None:
    """A loader that tells no id is this board only if its place is known and says so."""
    if not target.place_is_proof:
        raise WrongBoard(
            f"{target.id}: a board waits in BOOTSEL mode at {place.hub_path or place.drive}, and "
            "nothing proves which one it is: give [usb] path in the board's file, or install "
            "picotool; nothing was written"
        )


def _none(job: Job, _place: Place, runs: bool) -> bool:
    if not runs:
        raise NoWayIn(f"{job.target.id}: no MicroPython answers, and it is not to be flashed")
    return False


METHODS: Mapping[FlashMethod, Callable[[Job, Place, bool], bool]] = {
    "esptool": _esptool,
    "picotool": _picotool,
    "uf2_drive": _uf2_drive,
    "none": _none,
}
