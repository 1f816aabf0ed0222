"""Ask and flash an RP2 board in BOOTSEL mode with the real picotool, by its place on the USB.

Bus and address name one device, where a BOOTSEL drive or an RP2040's BOOTSEL serial number name
only the chip family.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from boards.flash.target import FlashError, Progress
from boards.tool import ToolError, run_tool

_PERCENT = re.compile(r"(\d+)%")
_TYPE = re.compile(r"^\s*type:\s*(\S+)", re.MULTILINE)
# What MicroPython calls unique_id: the flash chip's on RP2040, the chip's own on RP2350.
_UIDS = {
    "RP2040": re.compile(r"^\s*flash id:\s*(?:0x)?([0-9a-fA-F]+)", re.MULTILINE),
    "RP2350": re.compile(r"^\s*chipid:\s*(?:0x)?([0-9a-fA-F]+)", re.MULTILINE),
}
_UID_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Rp2Chip:
    """What picotool read out of a chip; ``uid`` is lower-case hex, "" if it does not tell."""

    name: str
    uid: str


def read_rp2_chip(bus: int, address: int, *, deadline_s: float) -> Rp2Chip:
    """Ask the board in BOOTSEL mode at ``bus`` and ``address`` who it is. Writes nothing.

    Raises ``FlashError`` if picotool is not installed or its answer is not understood,
    ``ToolError``, ``ToolTimeout``.
    """
    output = _picotool(["info", "-d", *_at(bus, address)], deadline_s=deadline_s)
    name = _TYPE.search(output)
    if name is None:
        raise FlashError(f"picotool told no chip: {output.strip()[-300:]!r}")
    pattern = _UIDS.get(name[1])
    uid = pattern.search(output) if pattern else None
    return Rp2Chip(name[1], uid[1].lower().rjust(_UID_DIGITS, "0") if uid else "")


def flash_picotool(
    image: Path,
    bus: int,
    address: int,
    *,
    deadline_s: float,
    progress: Progress,
    force: bool = False,
) -> bool:
    """Write and verify the UF2 ``image`` and start it; False if the flash held it already.

    Raises ``FlashError``, ``ToolError``, ``ToolTimeout``.
    """
    at = _at(bus, address)
    if not force and _verified(image, at, deadline_s):
        _picotool(["reboot", *at], deadline_s=deadline_s)
        return False

    def show(line: str) -> None:
        if percent := _PERCENT.search(line):
            progress(f"picotool {percent[1]} %")

    # -v reads back and compares, -x starts it; a difference is an exit code, so a ToolError.
    _picotool(["load", "-v", "-x", str(image), *at], deadline_s=deadline_s, on_line=show)
    return True


def _verified(image: Path, at: list[str], deadline_s: float) -> bool:
    try:
        _picotool(["verify", str(image), *at], deadline_s=deadline_s)
    except ToolError:
        return False  # other content, or blank: to be written
    return True


def _at(bus: int, address: int) -> list[str]:
    return ["--bus", str(bus), "--address", str(address)]


def _picotool(arguments: list[str], *, deadline_s: float, on_line: Progress | None = None) -> str:
    try:
        return run_tool(
            "picotool", ["picotool", *arguments], deadline_s=deadline_s, on_line=on_line
        )
    except FileNotFoundError:
        raise FlashError(
            "picotool is not installed; install Debian's package picotool (13 and newer), or set "
            'flash.method = "uf2_drive" in the board\'s file'
        ) from None
