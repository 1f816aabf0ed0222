"""Every way to start again; what must survive, survives."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import serial

from boards.virtual.board import BoardError, BoardState, VirtualBoard

Mpremote = Callable[..., str]
Flash = Callable[[VirtualBoard, Path], None]
WaitForBoots = Callable[[VirtualBoard, int], None]

READ = "print(open('kept.txt').read())"


@pytest.fixture(autouse=True)
def kept_file(board: VirtualBoard, mpremote: Mpremote) -> None:
    mpremote(board, "exec", "with open('kept.txt', 'w') as f: f.write('still here')")


@pytest.mark.parametrize(
    ("way", "cause"),
    [
        ("import machine; machine.reset()", 3),
        ("import machine; machine.WDT(timeout=300)\nwhile True: pass", 3),
    ],
)
def test_the_firmware_resets_itself(
    board: VirtualBoard, mpremote: Mpremote, wait_for_boots: WaitForBoots, way: str, cause: int
) -> None:
    boots = board.control.state()["boots"]
    mpremote(board, "exec", "--no-follow", way)
    wait_for_boots(board, boots + 1)
    assert int(mpremote(board, "exec", "import machine; print(machine.reset_cause())")) == cause
    assert mpremote(board, "exec", READ).strip() == "still here"
    assert board.control.state() == {"state": "running", "boots": boots + 1}


def test_mpremote_resets_it(
    board: VirtualBoard, mpremote: Mpremote, wait_for_boots: WaitForBoots
) -> None:
    boots = board.control.state()["boots"]
    mpremote(board, "reset")
    wait_for_boots(board, boots + 1)
    assert mpremote(board, "exec", READ).strip() == "still here"


def test_the_reset_button_is_a_power_on(
    board: VirtualBoard, mpremote: Mpremote, wait_for_boots: WaitForBoots
) -> None:
    boots = board.control.state()["boots"]
    board.control.reset()
    wait_for_boots(board, boots + 1)
    assert int(mpremote(board, "exec", "import machine; print(machine.reset_cause())")) == 1
    assert mpremote(board, "exec", READ).strip() == "still here"


def test_a_fed_watchdog_does_not_bite(board: VirtualBoard, mpremote: Mpremote) -> None:
    boots = board.control.state()["boots"]
    code = (
        "import machine, time\nw = machine.WDT(timeout=1000)\n"
        "for _ in range(12):\n time.sleep_ms(100)\n w.feed()\nprint('alive')"
    )
    # What follows the program is not fed, so the board's state is asked by the line it prints.
    mpremote(board, "exec", "--no-follow", code)
    with serial.Serial(board.address.serial_url, timeout=60) as port:
        assert port.read_until(b"alive").endswith(b"alive")
    assert board.control.state()["boots"] == boots
    _wait_for_state(board, lambda state: state["boots"] == boots + 1)


def test_bootloader_and_reflash_keep_files(
    board: VirtualBoard, mpremote: Mpremote, flash: Flash, uf2_path: Path
) -> None:
    mpremote(board, "bootloader")
    _wait_for_state(board, lambda state: state["state"] == "bootsel")
    flash(board, uf2_path)
    assert mpremote(board, "exec", READ).strip() == "still here"


def test_the_boot_button_and_reflash_keep_files(
    board: VirtualBoard, mpremote: Mpremote, flash: Flash, uf2_path: Path
) -> None:
    board.control.boot()
    assert board.control.state()["state"] == "bootsel"
    flash(board, uf2_path)
    assert mpremote(board, "exec", READ).strip() == "still here"


def test_reset_leaves_bootsel_when_the_flash_is_good(
    board: VirtualBoard, mpremote: Mpremote
) -> None:
    board.control.boot()
    board.control.reset()
    assert board.control.state()["state"] == "running"
    assert mpremote(board, "exec", READ).strip() == "still here"


def test_files_survive_a_restart_of_the_process(
    tmp_path: Path, uf2_path: Path, flash: Flash, mpremote: Mpremote
) -> None:
    with VirtualBoard.start("rp2040", "again", tmp_path) as board:
        flash(board, uf2_path)
        mpremote(board, "exec", "with open('kept.txt', 'w') as f: f.write('over night')")
    with VirtualBoard.start("rp2040", "again", tmp_path) as board:
        assert board.control.state() == {"state": "running", "boots": 1}
        assert mpremote(board, "exec", READ).strip() == "over night"


def test_a_wrong_request_is_refused_with_a_reason(board: VirtualBoard) -> None:
    with pytest.raises(BoardError, match="there is no GPIO 30"):
        board.control.gpio(30)


def _wait_for_state(board: VirtualBoard, wanted: Callable[[BoardState], bool]) -> None:
    deadline = time.monotonic() + 60
    while not wanted(state := board.control.state()):
        assert time.monotonic() < deadline, state
        time.sleep(0.02)
