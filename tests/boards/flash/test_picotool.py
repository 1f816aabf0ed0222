"""Flashing by picotool, which needs a chip: a stand-in logs the arguments, and answers with what
picotool 2.1.1 prints. The same arguments were given to the real one, which took them."""

from pathlib import Path

import pytest

from boards.flash import methods
from boards.flash.image_identity import check_image
from boards.flash.methods import METHODS, Job
from boards.flash.picotool_flash import Rp2Chip, flash_picotool, read_rp2_chip
from boards.flash.target import FlashError, WrongBoard
from boards.inventory.board_file import load_board
from boards.inventory.target import BoardHandle
from boards.inventory.usb import read_usb
from boards.tool import ToolError
from firmware.build import ensure
from tests.boards.fake_tools import FakeTools
from tests.boards.fake_usb import plug

_UID = "e66038b713123456"
_INFO = f"""\
Program Information
 none

Device Information
 type:        RP2040
 revision:    B2
 flash size:  2048K
 flash id:    0x{_UID.upper()}
"""
_AT = ["--bus", "1", "--address", "7"]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeTools:
    return FakeTools(tmp_path / "bin", monkeypatch)


def test_the_chip_says_who_it_is(tools: FakeTools) -> None:
    tools.add("picotool", {"info": (0, _INFO)})
    assert read_rp2_chip(1, 7, deadline_s=60) == Rp2Chip("RP2040", _UID)
    assert tools.calls() == [["picotool", "info", "-d", *_AT]]
    tools.add("picotool", {"info": (0, "type: RP2350\nflash id: 0x1\nchipid: 0xABC")})
    assert read_rp2_chip(1, 7, deadline_s=60) == Rp2Chip("RP2350", "0000000000000abc")
    tools.add("picotool", {"info": (0, "No accessible RP-series devices")})
    with pytest.raises(FlashError, match="told no chip"):
        read_rp2_chip(1, 7, deadline_s=60)


def test_a_write_is_verified_and_started(tools: FakeTools, tmp_path: Path) -> None:
    tools.add("picotool", {"verify": (1, "Mismatch"), "load": (0, "Loading: 57%\n  OK")})
    said: list[str] = []
    assert flash_picotool(tmp_path / "x.uf2", 1, 7, deadline_s=60, progress=said.append)
    file = str(tmp_path / "x.uf2")
    assert tools.calls() == [
        ["picotool", "verify", file, *_AT],
        ["picotool", "load", "-v", "-x", file, *_AT],
    ]
    assert said == ["picotool 57 %"]


def test_the_same_firmware_is_only_started(tools: FakeTools, tmp_path: Path) -> None:
    tools.add("picotool", {"verify": (0, "OK"), "reboot": (0, "")})
    assert not flash_picotool(tmp_path / "x.uf2", 1, 7, deadline_s=60, progress=str)
    assert tools.calls()[-1] == ["picotool", "reboot", *_AT]


def test_a_failed_verification_is_a_failure(tools: FakeTools, tmp_path: Path) -> None:
    tools.add("picotool", {"verify": (1, ""), "load": (1, "ERROR: The device contents differ")})
    with pytest.raises(ToolError, match="contents differ"):
        flash_picotool(tmp_path / "x.uf2", 1, 7, deadline_s=60, progress=str)


def test_no_picotool_says_where_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FlashError, match=r"install Debian's package picotool.*uf2_drive"):
        read_rp2_chip(1, 7, deadline_s=60)


def _in_bootsel(tmp_path: Path, usb: str) -> BoardHandle:
    plug(tmp_path / "sys", "1-4", vid=0x2E8A, pid=0x0003, serial="E0C9125B0D9B", disk="sda")
    path = tmp_path / "p.toml"
    path.write_text(f'id = "p"\nmodel = "RPI_PICO"\n[usb]\n{usb}\n[identity]\nuid = "{_UID}"\n')
    look = lambda: read_usb(tmp_path / "sys", tmp_path / "mounts")  # noqa: E731
    return BoardHandle(load_board(path), look=look)


def _write(board: BoardHandle) -> bool:
    image = check_image(ensure("rpi_pico"), board.model.flash, virtual=False)
    job = Job(board, image, 1e12, str, None, False)
    return METHODS[board.model.flash.method](job, board.place(), False)


def test_a_blank_board_is_known_by_its_flash_id(tools: FakeTools, tmp_path: Path) -> None:
    tools.add("picotool", {"info": (0, _INFO), "verify": (1, ""), "load": (0, "")})
    assert _write(_in_bootsel(tmp_path, f'serial = "{_UID}"'))
    assert tools.calls()[-1][:4] == ["picotool", "load", "-v", "-x"]
    assert tools.calls()[-1][-4:] == _AT


@pytest.mark.parametrize(
    ("info", "words"),
    [
        (_INFO.replace(_UID.upper(), "E66038B713FFFFFF"), "finds flash id e66038b713ffffff"),
        (_INFO.replace("RP2040", "RP2350"), "finds RP2350, expected RP2040"),
    ],
)
def test_another_chip_is_asked_and_not_written(
    tools: FakeTools, tmp_path: Path, info: str, words: str
) -> None:
    tools.add("picotool", {"info": (0, info), "verify": (1, ""), "load": (0, "")})
    with pytest.raises(WrongBoard, match=words + ".*nothing was written"):
        _write(_in_bootsel(tmp_path, f'serial = "{_UID}"'))
    assert [call[1] for call in tools.calls()] == ["info"]


def test_a_chip_that_tells_no_id_is_known_by_its_port_or_not_at_all(
    tools: FakeTools, tmp_path: Path
) -> None:
    silent = "\n".join(line for line in _INFO.splitlines() if "flash id" not in line)
    tools.add("picotool", {"info": (0, silent), "verify": (1, ""), "load": (0, "")})
    with pytest.raises(WrongBoard, match=r"nothing proves which one it is.*\[usb\] path"):
        _write(_in_bootsel(tmp_path, f'serial = "{_UID}"'))
    assert [call[1] for call in tools.calls()] == ["info"]


def test_its_port_is_proof(tools: FakeTools, tmp_path: Path) -> None:
    silent = "\n".join(line for line in _INFO.splitlines() if "flash id" not in line)
    tools.add("picotool", {"info": (0, silent), "verify": (1, ""), "load": (0, "")})
    assert _write(_in_bootsel(tmp_path, 'path = "0000:00:14.0-usb-0:4"'))


def test_a_drive_that_is_not_mounted_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(methods, "_MOUNT_S", 0.2)
    board = _in_bootsel(tmp_path, 'path = "0000:00:14.0-usb-0:4"\n[flash]\nmethod = "uf2_drive"')
    with pytest.raises(
        FlashError, match=r"its drive was not mounted within 0\.2 s; nothing was written"
    ):
        _write(board)


def test_a_drive_without_a_proven_place_gets_nothing(tmp_path: Path) -> None:
    drive = tmp_path / "drive"
    drive.mkdir()
    (drive / "INFO_UF2.TXT").write_text("Board-ID: RPI-RP2\n")
    (tmp_path / "mounts").write_text(f"/dev/sda1 {drive} vfat rw 0 0\n")
    board = _in_bootsel(tmp_path, f'serial = "{_UID}"\n[flash]\nmethod = "uf2_drive"')
    with pytest.raises(WrongBoard, match="nothing proves which one it is"):
        _write(board)
    assert [path.name for path in drive.iterdir()] == ["INFO_UF2.TXT"]
