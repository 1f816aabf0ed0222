"""Every byte of an image counts: one that is flipped anywhere is refused."""

from pathlib import Path

import pytest

from boards.virtual.esp32.flash import Flash, FlashError
from boards.virtual.esp32.image import ImageError, executable_in, read_image
from firmware.build.esp_image import esp_image

_OFFSET = 0x1000
_END = 0x200000
_PROGRAM = b"\x7fELF" + bytes(range(256)) * 5 + b"!"


def _flash(folder: Path, image: bytes) -> Flash:
    flash = Flash(folder / "flash.bin")
    flash.erase(_OFFSET, len(image))
    flash.program(_OFFSET, image)
    return flash


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 1000])
def test_what_was_packed_comes_out(tmp_path: Path, length: int) -> None:
    program = b"\x7fELF" + bytes(range(256)) * 4
    program = program[: 4 + length]
    with _flash(tmp_path, esp_image(program)) as flash:
        assert executable_in(read_image(flash, _OFFSET, _END)) == program


def test_any_flipped_bit_is_noticed(tmp_path: Path) -> None:
    image = esp_image(_PROGRAM)
    for position in range(len(image)):
        damaged = bytearray(image)
        damaged[position] ^= 1 << position % 8
        with _flash(tmp_path, bytes(damaged)) as flash, pytest.raises(ImageError):
            executable_in(read_image(flash, _OFFSET, _END))


def test_blank_flash_reads_as_the_boot_loader_says(tmp_path: Path) -> None:
    with (
        Flash(tmp_path / "flash.bin") as flash,
        pytest.raises(ImageError, match=r"^invalid header: 0xffffffff$"),
    ):
        read_image(flash, _OFFSET, _END)


def test_an_image_that_reaches_into_the_files_is_refused(tmp_path: Path) -> None:
    image = esp_image(_PROGRAM)
    with _flash(tmp_path, image) as flash:
        read_image(flash, _OFFSET, _OFFSET + len(image))
        with pytest.raises(ImageError):
            read_image(flash, _OFFSET, _OFFSET + len(image) - 1)


def test_an_image_for_a_real_esp32_is_refused_with_the_reason(tmp_path: Path) -> None:
    with (
        _flash(tmp_path, esp_image(b"\x36\x41\x00" * 100)) as flash,
        pytest.raises(ImageError, match=r"ESP32 machine code.*motemq firmware build vesp32"),
    ):
        executable_in(read_image(flash, _OFFSET, _END))


def test_programming_only_clears_bits_and_erasing_sets_whole_sectors(tmp_path: Path) -> None:
    with Flash(tmp_path / "flash.bin") as flash:
        flash.program(4096, b"\xf0\xff")
        flash.program(4096, b"\x3c\xff")
        assert flash.read(4096, 2) == b"\x30\xff"
        flash.program(8191, b"\x00\x00")
        flash.erase(5000, 10)
        assert flash.read(4096, 4096) == b"\xff" * 4096
        assert flash.read(8192, 1) == b"\x00"
        with pytest.raises(FlashError):
            flash.read(4 * 1024 * 1024 - 1, 2)
