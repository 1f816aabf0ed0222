"""Flash a UF2 by copying it onto the drive that an RP2 board shows in BOOTSEL mode.

The drive names the chip family and not the board, so this is for exactly one drive whose board is
known: a virtual board's own folder, or the only BOOTSEL drive of a desk.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

from boards.flash.target import FlashError, Progress

__all__ = ["FlashError", "flash_uf2_drive"]

_CHUNK = 65536
_LOOK_S = 0.05


def flash_uf2_drive(
    image: Path, drive: Path, *, deadline_s: float, progress: Progress, family: str = "RPI-RP2"
) -> None:
    """Copy ``image`` onto ``drive`` (which may be still to appear) and wait until it vanishes.

    The drive goes when the boot loader has all blocks and starts them. ``family`` is the Board-ID
    that the drive must show. Raises ``FlashError`` if the drive does not appear, is no such drive,
    says that it does not take the file, or is still there after ``deadline_s`` seconds.
    """
    until = time.monotonic() + deadline_s
    info = drive / "INFO_UF2.TXT"
    _wait(info.exists, until, f"no BOOTSEL drive at {drive}; is the board in BOOTSEL mode?")
    board_id = info.read_text(errors="replace")
    if f"Board-ID: {family}" not in board_id.splitlines():
        raise FlashError(
            f"{info} names no {family} board: {board_id.strip()!r}; nothing was written"
        )
    size = image.stat().st_size
    written = 0
    try:
        with image.open("rb") as source, (drive / image.name).open("wb") as target:
            while chunk := source.read(_CHUNK):
                target.write(chunk)
                written += len(chunk)
                progress(f"UF2 {written * 100 // size} %")
            target.flush()
            os.fsync(target.fileno())
    except OSError as error:
        # A real drive may vanish with the last block, before our close.
        if written < size:
            raise FlashError(
                f"{drive}: writing failed at {written} of {size} bytes: {error}"
            ) from (error)
    _wait(
        lambda: not info.exists(),
        until,
        f"the boot loader did not take {image.name}: the drive {drive} is still there",
    )


def _wait(condition: Callable[[], bool], until: float, failure: str) -> None:
    while not condition():
        if time.monotonic() > until:
            raise FlashError(failure)
        time.sleep(_LOOK_S)
