"""Firmware images: where each is, and for which chip it says it is, before a byte is written.

An ESP image names its chip in the extended header (esptool documentation, "Firmware Image
Format"), a UF2 its family in every block (the UF2 specification).
"""

import hashlib
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from boards.flash.target import FlashError
from boards.inventory.models import Loader, is_file_name
from boards.inventory.target import BoardHandle
from firmware import build
from firmware.images import fetch_image

_ESP_MAGIC = 0xE9
_ESP_HEADER = struct.Struct("<BBBBI")
_ESP_EXTENDED = struct.Struct("<B3xHBHH4xB")
_ESP_SEGMENT = struct.Struct("<II")
_UF2_BLOCK = 512
_UF2_HEADER = struct.Struct("<IIIIIIII")
_UF2_MAGIC = (0x0A324655, 0x9E5D5157)
_UF2_END_MAGIC = 0x0AB16F30
_UF2_NOT_MAIN_FLASH = 0x0001
_UF2_HAS_FAMILY = 0x2000
_ELF = b"\x7fELF"  # at the head of the first segment's payload: the virtual ESP32's application
# E.g. RPI_PICO-20250415-v1.25.0.uf2; of a preview build more stands behind it.
_VERSION = re.compile(r"-\d{8}-(?:[a-z]+-)?(v\d+\.\d+\S*)\.(?:uf2|bin)$")
_MAX_BYTES = 64 * 1024 * 1024

_ESP_CHIPS = {0: "ESP32", 2: "ESP32-S2", 5: "ESP32-C3", 9: "ESP32-S3", 12: "ESP32-C2"}
_ESP_CHIPS |= {13: "ESP32-C6", 16: "ESP32-H2", 18: "ESP32-P4"}
_UF2_FAMILIES = {
    0xE48BFF56: "RP2040",
    0xE48BFF57: "RP2xxx (absolute)",
    0xE48BFF59: "RP2350 (Arm)",
    0xE48BFF5A: "RP2350 (RISC-V)",
    0x1C5F21B0: "ESP32",
    0xC47E5767: "ESP32-S3",
}


@dataclass(frozen=True, slots=True)
class Image:
    """A firmware file that may be written to boards of the model it was checked for."""

    path: Path
    sha256: str
    size_bytes: int
    about: str  # the chips it names
    version: str = ""  # of MicroPython, as an official file's name has it


def check_image(path: Path, loader: Loader, *, virtual: bool, sha256: str = "") -> Image:
    """Return what ``path`` is, if boards with this ``loader`` may be given it.

    ``sha256`` (hex), if not empty, is what the file must hash to. Raises ``FlashError`` if it is
    another file, for another chip, damaged, or for virtual boards only and this one is not.
    """
    if loader.method == "none":
        return Image(path, "", 0, "nothing: its model is not flashed")
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise FlashError(f"{path}: larger than 64 MiB, so it is no firmware")
        data = path.read_bytes()
    except OSError as error:
        raise FlashError(f"{path}: cannot be read: {error.strerror}") from None
    digest = hashlib.sha256(data).hexdigest()
    if sha256 and digest != sha256.lower():
        raise FlashError(
            f"{path}: its SHA-256 is {digest}, the board's file wants {sha256.lower()}; "
            "nothing was written"
        )
    if loader.method == "esptool":
        ids, names = {_esp_chip_id(path, data, virtual=virtual)}, _ESP_CHIPS
    else:
        ids, names = _uf2_families(path, data), _UF2_FAMILIES
    about = ", ".join(names.get(id, f"{id:#x}") for id in sorted(ids))
    if not ids <= set(loader.chip_ids) or loader.chip_ids[0] not in ids:
        wanted = names.get(loader.chip_ids[0], f"{loader.chip_ids[0]:#x}")
        raise FlashError(f"{path}: is for {about}, the board is {wanted}; nothing was written")
    version = _VERSION.search(path.name)
    return Image(path, digest, len(data), about, version[1] if version else "")


def image_for(target: BoardHandle, path: Path, *, is_its_own: bool = True) -> Image:
    """``check_image`` for a board of the desk.

    ``is_its_own``: ``path`` is what the board's file names, so that the SHA-256 there counts.
    """
    sha256 = target.board.sha256 if is_its_own else ""
    return check_image(path, target.model.flash, virtual=target.model.virtual, sha256=sha256)


def _esp_chip_id(path: Path, data: bytes, *, virtual: bool) -> int:
    if len(data) < _ESP_HEADER.size + _ESP_EXTENDED.size or data[0] != _ESP_MAGIC:
        raise FlashError(
            f"{path}: is no ESP image (its first byte is not 0xe9); nothing was written. "
            "Of the files on a download page take the .bin, not .app-bin, .elf or .uf2"
        )
    (chip_id,) = _ESP_EXTENDED.unpack_from(data, _ESP_HEADER.size)[1:2]
    payload = _ESP_HEADER.size + _ESP_EXTENDED.size + _ESP_SEGMENT.size
    is_virtual = data[payload + 4 : payload + 8] == _ELF
    if is_virtual != virtual:
        only = "virtual ESP32s only" if is_virtual else "real chips, which a virtual ESP32 is not"
        raise FlashError(f"{path}: is for {only}; nothing was written")
    return int(chip_id)


def _uf2_families(path: Path, data: bytes) -> set[int]:
    if not data or len(data) % _UF2_BLOCK:
        raise FlashError(f"{path}: is no UF2 (not whole blocks of 512 bytes); nothing was written")
    families = set()
    seen = 0
    for start in range(0, len(data), _UF2_BLOCK):
        head = _UF2_HEADER.unpack_from(data, start)
        (end,) = struct.unpack_from("<I", data, start + _UF2_BLOCK - 4)
        if head[:2] != _UF2_MAGIC or end != _UF2_END_MAGIC:
            raise FlashError(f"{path}: block {start // _UF2_BLOCK} is no UF2; nothing was written")
        flags, number, count, family = head[2], head[5], head[6], head[7]
        if flags & _UF2_NOT_MAIN_FLASH:
            continue
        if not flags & _UF2_HAS_FAMILY:
            raise FlashError(f"{path}: names no chip family; nothing was written")
        if number >= count:
            raise FlashError(f"{path}: block {number} of {count}: damaged; nothing was written")
        families.add(family)
        seen += 1
    if not seen:
        raise FlashError(f"{path}: holds nothing for the flash; nothing was written")
    return families


def image_of(
    name: str, folder: Path, progress: Callable[[str], None], *, lock: Path | None = None
) -> Path:
    """Return the file for ``name``: a path (relative to ``folder``), a build, an official image.

    ``lock``: the desk's lock file, for official images.

    Raises ``BuildError``, ``ImageUnknown``.
    """
    if not name:
        return Path()  # models that are not flashed
    if is_file_name(name):
        return folder / name
    if name in build.NAMES:
        return build.ensure(name, progress)
    return fetch_image(name, progress, lock=lock)
