"""The real esptool, with and without its stub, and what boots afterwards."""

import socket
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from boards.virtual.board import VirtualBoard

Tool = Callable[..., str]


def _said_at(board: VirtualBoard, act: Callable[[], None], end: bytes) -> bytes:
    """Return what the serial line says from ``act`` on until ``end``."""
    url = urlsplit(board.address.serial_urls["socket"])
    with socket.create_connection((url.hostname, url.port), 10) as line:
        board.control.state()  # by now the board has taken our connection
        act()
        deadline = time.monotonic() + 60
        seen = b""
        while end not in seen:
            line.settimeout(max(0.01, deadline - time.monotonic()))
            data = line.recv(4096)
            assert data, f"the line ended after {seen!r}"
            seen += data
    return seen


@pytest.fixture
def loading(blank: VirtualBoard) -> VirtualBoard:
    """A blank board in download mode."""
    blank.control.boot()
    assert blank.control.state() == {"state": "download", "boots": 0}
    return blank


@pytest.mark.parametrize("stub", [[], ["--no-stub"]])
def test_identity(loading: VirtualBoard, esptool: Tool, stub: list[str]) -> None:
    mac = bytes.fromhex(loading.address.uid).hex(":")
    said = esptool(loading, *stub, "read-mac")
    assert f"MAC:                {mac}" in said
    assert "revision v3.0" in said
    assert "Detected flash size: 4MB" in esptool(loading, *stub, "flash-id")
    assert mac in esptool(loading, *stub, "chip-id")


@pytest.mark.parametrize("write", [[], ["--no-compress"]])
@pytest.mark.parametrize("stub", [[], ["--no-stub"]])
def test_write_verify_boot(
    loading: VirtualBoard,
    esptool: Tool,
    mpremote: Tool,
    image: Path,
    stub: list[str],
    write: list[str],
) -> None:
    said = esptool(loading, *stub, "write-flash", *write, "0x1000", image)
    assert "Hash of data verified" in said
    assert "Verification successful" in esptool(loading, *stub, "verify-flash", "0x1000", image)
    loading.control.reset()
    assert loading.control.state() == {"state": "running", "boots": 1}
    assert mpremote(loading, "eval", "6 * 7").strip() == "42"


def test_read_flash_gives_back_what_was_written(
    loading: VirtualBoard, esptool: Tool, tmp_path: Path
) -> None:
    (tmp_path / "in.bin").write_bytes(bytes(range(256)) * 40)
    esptool(loading, "write-flash", "0x300000", tmp_path / "in.bin")
    for stub in ([], ["--no-stub"]):
        esptool(loading, *stub, "read-flash", "0x300000", "10240", tmp_path / "out.bin")
        assert (tmp_path / "out.bin").read_bytes() == (tmp_path / "in.bin").read_bytes()


def test_verify_notices_a_difference(loading: VirtualBoard, esptool: Tool, image: Path) -> None:
    assert "Verification failed" in esptool(loading, "verify-flash", "0x1000", image, fails=True)


def test_erased_firmware_does_not_boot(running: VirtualBoard, esptool: Tool) -> None:
    running.control.boot()
    esptool(running, "erase-flash")
    running.control.reset()
    assert running.control.state() == {"state": "invalid-image", "boots": 1}


def test_a_blank_board_says_so_once_and_waits(blank: VirtualBoard) -> None:
    assert blank.control.state() == {"state": "invalid-image", "boots": 0}
    said = _said_at(blank, blank.control.reset, b"invalid header: 0xffffffff\r\n")
    assert said.startswith(b"ets Jul 29 2019")
    assert b"rst:0x1 (POWERON_RESET),boot:0x13 (SPI_FAST_FLASH_BOOT)" in said
    assert said.count(b"invalid header") == 1
    assert blank.control.state() == {"state": "invalid-image", "boots": 0}


def test_a_corrupt_image_does_not_boot(running: VirtualBoard, state_dir: Path) -> None:
    with (state_dir / "flash.bin").open("r+b") as flash:
        flash.seek(0x1000 + 100_000)
        (byte,) = flash.read(1)
        flash.seek(-1, 1)
        flash.write(bytes([byte ^ 1]))
    said = _said_at(running, running.control.reset, b"checksum failed: ")
    assert b"SPI_FAST_FLASH_BOOT" in said
    assert running.control.state() == {"state": "invalid-image", "boots": 1}


def test_download_mode_announces_itself(blank: VirtualBoard) -> None:
    said = _said_at(blank, blank.control.boot, b"waiting for download\r\n")
    assert b"DOWNLOAD_BOOT" in said


def test_a_running_board_does_not_answer_esptool(running: VirtualBoard, esptool: Tool) -> None:
    assert "Failed to connect" in esptool(
        running, "--connect-attempts", "1", "read-mac", fails=True
    )


def test_reset_leaves_download_mode(running: VirtualBoard, mpremote: Tool) -> None:
    running.control.boot()
    running.control.reset()
    assert mpremote(running, "eval", "1 + 1").strip() == "2"
