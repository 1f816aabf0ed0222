"""The virtual ESP32's firmware: the unix port inside a real ESP32 flash image.

The virtual Pico W's is the same, as a UF2 file.
"""

import struct
from collections.abc import Callable
from pathlib import Path

from firmware.build.commands import BuildError, Runner
from firmware.build.esp_image import esp_image
from firmware.build.unixport import build_unix_port

_FILESYSTEM_OFFSET = 0x200000  # boards/virtual/esp32 keeps the board's files from here on
_IMAGE_OFFSET = 0x1000
UF2_FAMILY = 0x76697274  # "virt": no real chip's, so that none takes it
_UF2 = struct.Struct("<8I256s220xI")
_UF2_MAGIC = (0x0A324655, 0x9E5D5157, 0x0AB16F30)
_UF2_HAS_FAMILY = 0x2000
_UF2_PAGE = 256
_FLASH_BASE = 0x10000000


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


def as_uf2(image: bytes) -> bytes:
    """Return the UF2 file that puts ``image`` into a virtual Pico W's flash."""
    pages = [image[at : at + _UF2_PAGE] for at in range(0, len(image), _UF2_PAGE)]
    first, second, last = _UF2_MAGIC
    return b"".join(
        _UF2.pack(
            first,
            second,
            _UF2_HAS_FAMILY,
            _FLASH_BASE + _IMAGE_OFFSET + number * _UF2_PAGE,
            _UF2_PAGE,
            number,
            len(pages),
            UF2_FAMILY,
            page,
            last,
        )
        for number, page in enumerate(pages)
    )
