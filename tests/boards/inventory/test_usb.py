"""Which of the things that are plugged in is the board that is meant."""

from collections.abc import Callable
from pathlib import Path

import pytest

from boards.flash.target import NotThere, Place
from boards.inventory.board_file import load_board
from boards.inventory.target import BoardHandle
from boards.inventory.usb import UsbDevice, read_usb
from tests.boards.fake_usb import plug

_PICO, _BOOTSEL = {"vid": 0x2E8A, "pid": 0x0005}, {"vid": 0x2E8A, "pid": 0x0003}
_CP210X = {"vid": 0x10C4, "pid": 0xEA60}
_UID = "e66038b713123456"


@pytest.fixture
def board(tmp_path: Path) -> Callable[..., BoardHandle]:
    def load(model: str, usb: str) -> BoardHandle:
        kind = f'uid = "{_UID}"' if "PICO" in model else 'mac = "24:0a:c4:12:34:56"'
        path = tmp_path / "b.toml"
        path.write_text(f'id = "b"\nmodel = "{model}"\n[usb]\n{usb}\n[identity]\n{kind}\n')
        return BoardHandle(load_board(path), look=lambda: read_usb(tmp_path, tmp_path / "mounts"))

    return load


def test_a_device_is_read_whole(tmp_path: Path) -> None:
    plug(tmp_path, "1-1", vid=0x1D6B, pid=2, device_class="09")  # a hub
    plug(tmp_path, "1-1.2", **_PICO, serial=_UID, product="Board in FS mode", tty="ttyACM0")
    plug(tmp_path, "1-1.3", **_CP210X, serial="0001", tty="ttyUSB3", address=9)
    pico, uart = read_usb(tmp_path, tmp_path / "none")
    assert pico == UsbDevice(
        name="1-1.2",
        path="0000:00:14.0-usb-0:1.2",
        controller="0000:00:14.0",
        vid=0x2E8A,
        pid=5,
        serial=_UID,
        product="Board in FS mode",
        bus=1,
        address=7,
        ttys=("/dev/ttyACM0",),
        drive=None,
    )
    assert (uart.ttys, uart.address) == (("/dev/ttyUSB3",), 9)


def test_no_usb_is_no_error(tmp_path: Path) -> None:
    assert read_usb(tmp_path / "sys", tmp_path / "mounts") == []


def test_a_drive_is_found_where_it_is_mounted(
    tmp_path: Path, board: Callable[..., BoardHandle]
) -> None:
    plug(tmp_path, "1-4", **_BOOTSEL, serial="E0C9125B0D9B", disk="sda")
    (tmp_path / "mounts").write_text("/dev/sda1 /media/me/RPI-RP2\\040x vfat rw 0 0\n")
    found = board("RPI_PICO", 'path = "pci-0000:00:14.0-usb-0:4:1.0"').place()
    assert found == Place(
        state="loader",
        hub_path="0000:00:14.0-usb-0:4",
        bus=1,
        address=7,
        drive=Path("/media/me/RPI-RP2 x"),
        own_usb=True,
    )


def test_a_board_is_found_by_its_serial_number(
    tmp_path: Path, board: Callable[..., BoardHandle]
) -> None:
    plug(tmp_path, "1-1", **_PICO, serial="0000000000000000", tty="ttyACM0")
    plug(tmp_path, "1-2", **_PICO, serial=_UID, tty="ttyACM1")
    plug(tmp_path, "1-3", **_BOOTSEL, disk="sda")  # another board, waiting
    found = board("RPI_PICO", f'serial = "{_UID}"')
    assert found.place().serial_url == "/dev/ttyACM1"
    assert found.controller() == "0000:00:14.0"
    assert not found.place_is_proof


def test_two_alike_are_told_apart_by_their_ports_only(
    tmp_path: Path, board: Callable[..., BoardHandle]
) -> None:
    plug(tmp_path, "1-1", **_CP210X, serial="0001", tty="ttyUSB0")
    plug(tmp_path, "1-1.2", **_CP210X, serial="0001", tty="ttyUSB1", controller="0000:00:15.0")
    both = 'vid = 0x10c4\npid = 0xea60\nserial = "0001"'
    with pytest.raises(NotThere, match=r"2 devices could be it.*ttyUSB0.*ttyUSB1.*nothing was"):
        board("ESP32_GENERIC", both).place()
    place = 'path = "pci-0000:00:15.0-usb-0:1.2"'
    assert board("ESP32_GENERIC", f"{both}\n{place}").place().serial_url == "/dev/ttyUSB1"


def test_an_absent_board_is_told_with_what_is_there(
    tmp_path: Path, board: Callable[..., BoardHandle]
) -> None:
    with pytest.raises(NotThere, match="no RPI_PICO at all"):
        board("RPI_PICO", f'serial = "{_UID}"').place()
    plug(tmp_path, "1-1", **_PICO, serial="0000000000000000", tty="ttyACM0")
    with pytest.raises(NotThere, match=r"serial 'e66.*There is 2e8a:0005 Board at .*ttyACM0"):
        board("RPI_PICO", f'serial = "{_UID}"').place()


def test_two_boards_in_bootsel_mode_are_a_doubt_without_a_path(
    tmp_path: Path, board: Callable[..., BoardHandle]
) -> None:
    plug(tmp_path, "1-1", **_BOOTSEL, disk="sda")
    plug(tmp_path, "1-2", **_BOOTSEL, disk="sdb")
    with pytest.raises(NotThere, match="2 devices could be it"):
        board("RPI_PICO", f'serial = "{_UID}"').place()
    assert board("RPI_PICO", 'path = "0000:00:14.0-usb-0:2"').place().state == "loader"


def test_another_model_in_the_boards_port_is_not_it(
    tmp_path: Path, board: Callable[..., BoardHandle]
) -> None:
    plug(tmp_path, "1-1", **_CP210X, serial="0001", tty="ttyUSB0")
    with pytest.raises(NotThere, match="not plugged in"):
        board("RPI_PICO", 'path = "0000:00:14.0-usb-0:1"').place()


def test_a_board_without_a_serial_port_names_the_usual_reason(
    tmp_path: Path, board: Callable[..., BoardHandle]
) -> None:
    plug(tmp_path, "1-1", **_CP210X, serial="0001")
    with pytest.raises(NotThere, match="is its driver loaded, and does the cable carry data"):
        board("ESP32_GENERIC", 'serial = "0001"').place()
