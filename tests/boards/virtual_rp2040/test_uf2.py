"""UF2 judged without a board: what is flashed, what is refused, what may still become whole."""

import random
import struct

import pytest

from boards.virtual.rp2040 import uf2
from boards.virtual.rp2040.flash_image import boot2_checksum

FLASH = 64 * 1024
PAGES = [bytes([n]) * 256 for n in range(8)]


def block(
    number: int,
    count: int,
    page: bytes,
    *,
    family: int = uf2.RP2040_FAMILY,
    flags: int = 0x2000,
    address: int | None = None,
    end: int = 0x0AB16F30,
) -> bytes:
    where = uf2.FLASH_BASE + 256 * number if address is None else address
    head = struct.pack(
        "<8I", 0x0A324655, 0x9E5D5157, flags, where, len(page), number, count, family
    )
    return head + page.ljust(476, b"\0") + struct.pack("<I", end)


WHOLE = [block(n, len(PAGES), page) for n, page in enumerate(PAGES)]


def test_a_whole_file_gives_every_page() -> None:
    assert uf2.parse(b"".join(WHOLE), FLASH).pages == {256 * n: p for n, p in enumerate(PAGES)}


def test_the_order_of_blocks_does_not_matter() -> None:
    shuffled = random.Random(4).sample(WHOLE, len(WHOLE))
    assert uf2.parse(b"".join(shuffled), FLASH) == uf2.parse(b"".join(WHOLE), FLASH)


@pytest.mark.parametrize("length", range(0, 8 * 512, 100))
def test_every_prefix_is_incomplete(length: int) -> None:
    with pytest.raises(uf2.Uf2Incomplete, match="incomplete"):
        uf2.parse(b"".join(WHOLE)[:length], FLASH)


def test_a_repeated_block_does_not_stand_in_for_a_missing_one() -> None:
    with pytest.raises(uf2.Uf2Incomplete, match="7 of 8 blocks"):
        uf2.parse(b"".join([*WHOLE[:-1], WHOLE[0]]), FLASH)


def test_a_hole_of_zeros_is_incomplete() -> None:
    with pytest.raises(uf2.Uf2Incomplete, match="6 of 8 blocks"):
        uf2.parse(b"".join([*WHOLE[:3], bytes(1024), *WHOLE[5:]]), FLASH)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (block(3, 8, PAGES[3], family=0xE48BFF59), "wrong family id: 0xe48bff59"),
        (block(3, 8, PAGES[3], flags=0), "wrong family id: none"),
        (block(3, 9, PAGES[3]), "says 9 blocks"),
        (block(9, 8, PAGES[3]), "number 9 of only 8"),
        (block(3, 8, PAGES[3], address=uf2.FLASH_BASE + FLASH), "behind the end"),
        (block(3, 8, PAGES[3], address=0x20000000), "behind the end"),
        (block(3, 8, PAGES[3], address=0x1000), "not flash"),
        (block(3, 8, PAGES[3], address=uf2.FLASH_BASE + 1), "256-byte page"),
        (block(3, 8, PAGES[3][:100]), "256-byte page"),
        (b"x" * 512, "no UF2 block at byte 1536"),
    ],
)
def test_what_can_never_be_flashed_is_an_error(bad: bytes, message: str) -> None:
    with pytest.raises(uf2.Uf2Error, match=message):
        uf2.parse(b"".join([*WHOLE[:3], bad, *WHOLE[4:]]), FLASH)


def test_blocks_that_are_not_for_flash_are_passed_over() -> None:
    comment = block(0, 1, b"comment", flags=0x2001)
    assert uf2.parse(comment + b"".join(WHOLE), FLASH) == uf2.parse(b"".join(WHOLE), FLASH)


def test_applying_erases_whole_sectors_and_nothing_else() -> None:
    flash = bytearray(b"\x55" * FLASH)
    uf2.Image({0x1100: b"\x01" * 256}).apply(flash)
    assert flash[:0x1000] == b"\x55" * 0x1000
    assert flash[0x1000:0x1100] == b"\xff" * 0x100
    assert flash[0x1100:0x1200] == b"\x01" * 0x100
    assert flash[0x1200:0x2000] == b"\xff" * 0xE00
    assert flash[0x2000:] == b"\x55" * (FLASH - 0x2000)


def test_the_checksum_of_boot2_is_crc32_mpeg2() -> None:
    assert boot2_checksum(b"123456789") == 0x0376E6E7  # the catalogue's check value
