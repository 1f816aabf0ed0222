"""The BOOTSEL drive as a folder that a boot loader watches."""

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from boards.flash.uf2_drive import FlashError, flash_uf2_drive

_INFO = "UF2 Bootloader v3.0\nModel: Raspberry Pi RP2\nBoard-ID: RPI-RP2\n"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "firmware.uf2"
    path.write_bytes(bytes(range(256)) * 1024)
    return path


def _drive(tmp_path: Path, info: str = _INFO) -> Path:
    drive = tmp_path / "drive"
    drive.mkdir()
    (drive / "INFO_UF2.TXT").write_text(info)
    return drive


def _boot_loader(drive: Path, taken: list[bytes], size: int) -> Callable[[], None]:
    def watch() -> None:
        until = time.monotonic() + 60
        target = drive / "firmware.uf2"
        while not (target.exists() and target.stat().st_size == size):
            if time.monotonic() > until:
                return
            time.sleep(0.01)
        taken.append(target.read_bytes())
        shutil.rmtree(drive)

    return watch


def test_the_whole_image_is_copied_and_the_drive_vanishes(tmp_path: Path, image: Path) -> None:
    drive = _drive(tmp_path)
    taken: list[bytes] = []
    said: list[str] = []
    loader = threading.Thread(target=_boot_loader(drive, taken, image.stat().st_size))
    loader.start()
    flash_uf2_drive(image, drive, deadline_s=60, progress=said.append)
    loader.join(20)
    assert taken == [image.read_bytes()]
    assert said[-1] == "UF2 100 %"


def test_no_drive_is_one_clear_line(tmp_path: Path, image: Path) -> None:
    with pytest.raises(FlashError, match="is the board in BOOTSEL mode"):
        flash_uf2_drive(image, tmp_path / "drive", deadline_s=0.2, progress=str)


def test_another_chips_drive_gets_nothing(tmp_path: Path, image: Path) -> None:
    drive = _drive(tmp_path, "Board-ID: SAMD21G18A-Xyz\n")
    with pytest.raises(FlashError, match=r"names no RPI-RP2 board.*nothing was written"):
        flash_uf2_drive(image, drive, deadline_s=60, progress=str)
    assert [path.name for path in drive.iterdir()] == ["INFO_UF2.TXT"]


def test_an_image_that_is_not_taken_is_a_failure(tmp_path: Path, image: Path) -> None:
    with pytest.raises(FlashError, match=r"did not take firmware\.uf2"):
        flash_uf2_drive(image, _drive(tmp_path), deadline_s=0.5, progress=str)
