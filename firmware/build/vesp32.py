"""The virtual ESP32's firmware: the unix port inside a real ESP32 flash image."""

from collections.abc import Callable
from pathlib import Path

from firmware.build.commands import BuildError, Runner
from firmware.build.esp_image import esp_image
from firmware.build.unixport import build_unix_port

_FILESYSTEM_OFFSET = 0x200000  # boards/virtual/esp32 keeps the board's files from here on
_IMAGE_OFFSET = 0x1000


def build_vesp32(
    sources: Path,
    mpy_cross: Path,
    folder: Path,
    runner: Runner,
    progress: Callable[[str], None],
) -> None:
    """Build ``folder/firmware.bin``, to be written at 0x1000 by ``esptool write-flash``."""
    build_unix_port(sources, mpy_cross, "vesp32", folder, runner, progress)
    program = folder / "micropython"
    image = esp_image(program.read_bytes())
    if _IMAGE_OFFSET + len(image) > _FILESYSTEM_OFFSET:
        raise BuildError(
            f"the virtual ESP32's image has {len(image)} bytes, more than fit before its "
            f"filesystem at {_FILESYSTEM_OFFSET:#x}; trim firmware/unixport/vesp32"
        )
    (folder / "firmware.bin").write_bytes(image)
    program.unlink()
