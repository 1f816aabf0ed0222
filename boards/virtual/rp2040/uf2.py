"""UF2 files as the RP2040's boot ROM judges them: right family, every block there, then flash.

Format: https://github.com/microsoft/uf2 (512-byte blocks, little-endian).
"""

import struct
from dataclasses import dataclass

RP2040_FAMILY = 0xE48BFF56
FLASH_BASE = 0x10000000
BLOCK_BYTES = 512

_HEADER = struct.Struct("<8I")
_MAGIC_0, _MAGIC_1, _MAGIC_END = 0x0A324655, 0x9E5D5157, 0x0AB16F30
_NOT_MAIN_FLASH, _FAMILY_PRESENT = 0x00000001, 0x00002000
_PAGE_BYTES = 256
_SECTOR_BYTES = 4096


class Uf2Error(Exception):
    """The file can never be flashed: no UF2, another chip's, or contradicting itself."""


class Uf2Incomplete(Exception):
    """Blocks are missing; the file may still be being written."""


@dataclass(frozen=True, slots=True)
class Image:
    """What a UF2 puts into flash: pages of 256 bytes by their offset from the start of flash."""

    pages: dict[int, bytes]

    def apply(self, flash: bytearray) -> None:
        """Erase the sectors it touches and program its pages, in place."""
        for sector in sorted({offset // _SECTOR_BYTES for offset in self.pages}):
            start = sector * _SECTOR_BYTES
            flash[start : start + _SECTOR_BYTES] = b"\xff" * _SECTOR_BYTES
        for offset, page in self.pages.items():
            flash[offset : offset + len(page)] = page


def parse(data: bytes, flash_bytes: int, family: int = RP2040_FAMILY) -> Image:
    """Return the image in ``data`` for a flash of ``flash_bytes`` of a chip of this UF2 family.

    Raises ``Uf2Error`` if it can never become one, ``Uf2Incomplete`` if more of the same file
    could make it whole. Both messages say what is wrong.
    """
    whole = len(data) // BLOCK_BYTES * BLOCK_BYTES
    pages: dict[int, bytes] = {}
    numbers: set[int] = set()
    total = 0
    for start in range(0, whole, BLOCK_BYTES):
        block = data[start : start + BLOCK_BYTES]
        if not any(block):
            continue  # a hole: the file's size is set before its contents arrive
        fields = _fields(block, start, family)
        if fields is None:
            continue
        number, count, offset, page = fields
        if total and count != total:
            raise Uf2Error(f"block at byte {start} says {count} blocks, earlier ones say {total}")
        if number >= count:
            raise Uf2Error(f"block at byte {start} is number {number} of only {count}")
        if offset + len(page) > flash_bytes:
            raise Uf2Error(
                f"block {number} is for flash address {FLASH_BASE + offset:#x}, "
                f"behind the end of a {flash_bytes // 1024} KB flash"
            )
        total = count
        numbers.add(number)
        pages[offset] = page
    if not total or len(numbers) < total:
        have = f"{len(numbers)} of {total} blocks" if total else "no block"
        raise Uf2Incomplete(f"incomplete: it holds {have}")
    return Image(pages)


def _fields(block: bytes, start: int, chip: int) -> tuple[int, int, int, bytes] | None:
    """Return (number, count, flash offset, page) of one block; None if it is not for flash."""
    magic_0, magic_1, flags, address, size, number, count, family = _HEADER.unpack_from(block)
    (magic_end,) = struct.unpack_from("<I", block, BLOCK_BYTES - 4)
    if magic_0 != _MAGIC_0 or magic_1 != _MAGIC_1:
        raise Uf2Error(f"no UF2 block at byte {start} (wrong magic number)")
    if magic_end != _MAGIC_END:
        raise Uf2Incomplete(f"incomplete: the block at byte {start} has no end mark")
    if flags & _NOT_MAIN_FLASH:
        return None
    if not flags & _FAMILY_PRESENT or family != chip:
        shown = f"{family:#010x}" if flags & _FAMILY_PRESENT else "none"
        raise Uf2Error(
            f"wrong family id: {shown}, this board takes {chip:#010x}; the file is for another chip"
        )
    if size != _PAGE_BYTES or address % _PAGE_BYTES:
        raise Uf2Error(f"block {number} is not one 256-byte page ({size} bytes at {address:#x})")
    if address < FLASH_BASE:
        raise Uf2Error(f"block {number} is for address {address:#x}, which is not flash")
    return number, count, address - FLASH_BASE, block[_HEADER.size : _HEADER.size + size]
