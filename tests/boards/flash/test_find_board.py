"""A board that was away: found under another name, another USB id, when it has come back."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from boards.flash.find_board import await_running, find_board, open_repl
from boards.flash.target import NotThere
from boards.inventory.board_file import load_board
from boards.inventory.target import BoardHandle
from boards.inventory.usb import UsbDevice
from tests.boards.fault_boards import UnixBoard

_S3_FILE = """\
id = "s3"
model = "ESP32_GENERIC_S3"
[usb]
vid = 0x303a
pid = 0x4001
serial = "348518aabbcc"
[identity]
mac = "34:85:18:aa:bb:cc"
"""
_PICO_FILE = """\
id = "pico"
model = "RPI_PICO"
[usb]
path = "0000:00:14.0-usb-0:1.2"
[identity]
uid = "e66038b713123456"
"""


def _device(vid: int, pid: int, serial: str, tty: str, path: str = "1.2") -> UsbDevice:
    return UsbDevice(
        name=f"1-{path}",
        path=f"0000:00:14.0-usb-0:{path}",
        controller="0000:00:14.0",
        vid=vid,
        pid=pid,
        serial=serial,
        product="a board",
        bus=1,
        address=7,
        ttys=(tty,) if tty else (),
        drive=None,
    )


def _bootsel() -> UsbDevice:
    return _device(0x2E8A, 3, "E0C9125B0D9B", "")


def _pico(tty: str) -> UsbDevice:
    return _device(0x2E8A, 5, "e66038b713123456", tty)


@pytest.fixture
def board(tmp_path: Path) -> Callable[..., BoardHandle]:
    """A board that is seen as ``looks`` say, one after another; the last of them for good."""

    def seen_as(text: str, *looks: Sequence[UsbDevice]) -> BoardHandle:
        path = tmp_path / "board.toml"
        path.write_text(text)
        left = list(looks)
        return BoardHandle(load_board(path), look=lambda: left.pop(0) if left[1:] else left[0])

    return seen_as


def test_a_port_that_comes_back_late_has_another_name(board: Callable[..., BoardHandle]) -> None:
    pico = board(_PICO_FILE, [_pico("/dev/ttyACM0")], [], [], [_pico("/dev/ttyACM1")])
    assert pico.place().serial_url == "/dev/ttyACM0"
    assert find_board(pico, "running", deadline_s=60).serial_url == "/dev/ttyACM1"


def test_a_board_on_its_way_to_and_from_its_loader(board: Callable[..., BoardHandle]) -> None:
    running, without_driver = [_pico("/dev/ttyACM0")], [_pico("")]
    there = board(_PICO_FILE, running, [], [_bootsel()])
    assert find_board(there, "loader", deadline_s=60).state == "loader"
    back = board(_PICO_FILE, [_bootsel()], [], without_driver, running)
    assert find_board(back, "running", deadline_s=60).serial_url == "/dev/ttyACM0"


def test_who_does_not_come_back_is_told_with_what_is_there(
    board: Callable[..., BoardHandle],
) -> None:
    with pytest.raises(NotThere, match=r"usb-0:1\.2, and waits to be flashed"):
        find_board(board(_PICO_FILE, [_bootsel()]), "running", deadline_s=0.0)
    with pytest.raises(NotThere, match="and is not in its loader"):
        find_board(board(_PICO_FILE, [_pico("/dev/ttyACM0")]), "loader", deadline_s=0.0)
    with pytest.raises(NotThere, match="not plugged in"):
        find_board(board(_PICO_FILE, []), "running", deadline_s=0.0)


def test_a_board_that_went_into_its_rom_is_found_once_its_port_is_ours(
    board: Callable[..., BoardHandle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then it is where it was, nowhere, or there before udev has given it to us."""
    tty = tmp_path / "ttyACM1"
    before = _device(0x303A, 0x4001, "348518aabbcc", "/dev/ttyACM0")
    rom = replace(_device(0x303A, 0x1001, "34:85:18:AA:BB:CC", str(tty)), address=8)
    looks: list[list[UsbDevice]] = [[before], [], [rom], [rom]]

    def look() -> list[UsbDevice]:
        if len(looks) == 1:
            tty.touch()
            return looks[0]
        return looks.pop(0)

    s3 = board(_S3_FILE, [before])
    was = s3.place()
    monkeypatch.setattr(s3, "_look", look)
    assert find_board(s3, "anew", deadline_s=60, before=was).serial_url == str(tty)
    assert len(looks) == 1
    with pytest.raises(NotThere, match="has not come anew, with a port that is ours"):
        find_board(board(_S3_FILE, [before]), "anew", deadline_s=0.0, before=was)
    moved = board(_S3_FILE, [replace(rom, path="0000:00:14.0-usb-0:1.3")])
    with pytest.raises(NotThere, match=r"1\.3, and has not come anew"):
        find_board(moved, "anew", deadline_s=0.0, before=was)


def test_a_drive_is_there_once_it_is_mounted(board: Callable[..., BoardHandle]) -> None:
    mounted = replace(_bootsel(), drive=Path("/media/RPI-RP2"))
    pico = board(_PICO_FILE, [_bootsel()], [], [mounted])
    assert find_board(pico, "drive", deadline_s=60).drive == Path("/media/RPI-RP2")
    with pytest.raises(NotThere, match="its drive is not mounted"):
        find_board(board(_PICO_FILE, [_bootsel()]), "drive", deadline_s=0.0)


def test_an_s3_is_the_same_board_under_the_id_of_its_rom(
    board: Callable[..., BoardHandle],
) -> None:
    """In download mode it is USB-Serial/JTAG, and its serial number has colons."""
    rom = _device(0x303A, 0x1001, "34:85:18:AA:BB:CC", "/dev/ttyACM1")
    other = _device(0x303A, 0x1001, "34:85:18:AA:BB:CD", "/dev/ttyACM0", path="1.1")
    assert board(_S3_FILE, [other, rom]).place().serial_url == "/dev/ttyACM1"
    with pytest.raises(NotThere, match="not plugged in"):
        board(_S3_FILE, [other]).place()


def test_a_board_that_comes_and_goes_is_asked_when_it_stays(
    board: Callable[..., BoardHandle], tmp_path: Path, unix_port: Path
) -> None:
    """Its first port is gone again before it can be opened."""
    with UnixBoard(unix_port, tmp_path) as unix:
        looks = [[], [_bootsel()], [_pico("/dev/no-such-tty")], [], [_pico(unix.url)]]
        running = await_running(board(_PICO_FILE, *looks), deadline_s=60)
        assert "MicroPython" in running.version
        with open_repl(board(_PICO_FILE, *looks), deadline_s=60) as repl:
            assert repl.exec("print(6 * 7)", deadline_s=60).strip() == "42"
