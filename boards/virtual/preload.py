"""A board that comes with firmware: its flash as it is after flashing, without the dialogue."""

from pathlib import Path

from boards.virtual.address import BoardKind
from boards.virtual.esp32.chip import IMAGE_OFFSET
from boards.virtual.esp32.flash import SIZE, Flash
from boards.virtual.rp2040 import flash_image, uf2
from firmware.build.vesp32 import UF2_FAMILY

FLASH = "flash.bin"


def firmware_of(kind: BoardKind) -> str:
    """Return the name of a kind's firmware, for ``firmware.build.ensure``."""
    return {"rp2040": "rpi_pico", "rp2040w": "vpico_w"}.get(kind, "vesp32")


def preload(kind: BoardKind, state_dir: Path, image: Path) -> None:
    """Make the flash of a board that has not been started yet, with ``image`` in it.

    Raises ``OSError``, and ``uf2.Uf2Error`` for a wrong file.
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    path = state_dir / FLASH
    if kind == "rp2040":
        flash_image.create_blank(path)
        flash_image.program(path, uf2.parse(image.read_bytes(), flash_image.FLASH_BYTES))
        return
    content = image.read_bytes()
    with Flash(path) as flash:
        if kind == "rp2040w":
            flash.write_pages(uf2.parse(content, SIZE, UF2_FAMILY).pages)
            return
        flash.erase(IMAGE_OFFSET, len(content))
        flash.program(IMAGE_OFFSET, content)
