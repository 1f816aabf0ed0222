"""The BOOTSEL drive over real files, with the clock as an argument."""

from pathlib import Path

import pytest

from boards.virtual.rp2040.bootsel import BootselDrive


@pytest.fixture
def drive(tmp_path: Path) -> BootselDrive:
    made = BootselDrive(tmp_path / "bootsel")
    made.appear()
    return made


def test_it_shows_what_flashing_tools_look_for(drive: BootselDrive) -> None:
    info = (drive.folder / "INFO_UF2.TXT").read_text()
    assert "Board-ID: RPI-RP2" in info.splitlines()
    assert (drive.folder / "INDEX.HTM").exists()


def test_it_vanishes_with_everything_in_it(drive: BootselDrive) -> None:
    (drive.folder / "note.txt").write_text("hello")
    drive.vanish()
    drive.vanish()
    assert not drive.folder.exists()
    assert list(drive.folder.parent.iterdir()) == []


def test_a_file_is_taken_only_once_it_has_settled(drive: BootselDrive, uf2_path: Path) -> None:
    data, target = uf2_path.read_bytes(), drive.folder / "firmware.uf2"
    target.write_bytes(data[: len(data) // 2])
    assert [drive.poll(now) for now in (0.0, 0.1, 0.3, 1.0)] == [None] * 4  # half, still waiting
    target.write_bytes(data)
    assert drive.poll(1.1) is None  # it has just changed
    image = drive.poll(1.4)
    assert image is not None
    assert len(image.pages) == len(data) // 512
    assert not (drive.folder / "FAIL.TXT").exists()


def test_a_copy_that_was_cut_off_is_refused_with_a_reason(
    drive: BootselDrive, uf2_path: Path
) -> None:
    (drive.folder / "cut.uf2").write_bytes(uf2_path.read_bytes()[: 100 * 512])
    assert [drive.poll(now) for now in (0.0, 1.0, 3.0)] == [None] * 3
    reason = (drive.folder / "FAIL.TXT").read_text()
    assert reason.startswith("cut.uf2: incomplete: it holds 100 of ")
    assert "Nothing was flashed" in reason


def test_other_files_are_refused_once(drive: BootselDrive) -> None:
    (drive.folder / "readme.md").write_text("no firmware " * 100)
    assert [drive.poll(now) for now in (0.0, 0.5)] == [None, None]
    fail = drive.folder / "FAIL.TXT"
    assert "no UF2 block" in fail.read_text()
    fail.unlink()
    assert drive.poll(9.0) is None
    assert not fail.exists()
