"""From blank flash to files, with the real mpremote."""

import hashlib
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import serial

from boards.virtual.board import VirtualBoard

Mpremote = Callable[..., str]


def test_a_blank_board_waits_for_its_firmware_and_boots_it(
    tmp_path: Path, uf2_path: Path, flash: Callable[[VirtualBoard, Path], None], mpremote: Mpremote
) -> None:
    with VirtualBoard.start("rp2040", "blank", tmp_path) as board:
        assert board.control.state() == {"state": "bootsel", "boots": 0}
        folder = board.address.bootsel_dir
        assert folder is not None
        assert "RPI-RP2" in (folder / "INFO_UF2.TXT").read_text()
        flash(board, uf2_path)
        code = "import sys, machine; print(sys.implementation._machine, machine.unique_id().hex())"
        printed = mpremote(board, "exec", code)
    assert printed.split()[-1] == board.address.uid
    assert "Raspberry Pi Pico with RP2040" in printed


def test_two_boards_have_two_uids(tmp_path: Path) -> None:
    with (
        VirtualBoard.start("rp2040", "one", tmp_path / "1") as one,
        VirtualBoard.start("rp2040", "two", tmp_path / "2") as two,
    ):
        assert one.address.uid != two.address.uid
        assert one.address.serial_url != two.address.serial_url
        assert one.address.data_url != two.address.data_url


def test_files_are_copied_both_ways_unchanged(
    board: VirtualBoard, mpremote: Mpremote, tmp_path: Path
) -> None:
    sent, back = tmp_path / "sent.bin", tmp_path / "back.bin"
    sent.write_bytes(random.Random(1).randbytes(20_000))
    mpremote(board, "fs", "cp", str(sent), ":data.bin")
    mpremote(board, "fs", "cp", ":data.bin", str(back))
    assert back.read_bytes() == sent.read_bytes()
    on_board = mpremote(board, "fs", "sha256sum", ":data.bin")
    assert hashlib.sha256(sent.read_bytes()).hexdigest() in on_board


def test_arithmetic_uses_the_floating_point_of_the_rom(
    board: VirtualBoard, mpremote: Mpremote
) -> None:
    code = (
        "import math;"
        "print(1.5+2.25, 7/3, -7//2, 2**0.5, int(-3.7), round(2.5), float(1<<40), 1e10*1e10);"
        "print(math.sin(1.0), math.atan2(1.0, -2.0), math.exp(2.0), math.log(10.0), 1.0 < 2.0);"
        "print(float('nan') == float('nan'), float('inf') > 1, 0.1 + 0.2, divmod(-7.5, 2))"
    )
    first, second, third = mpremote(board, "exec", code).splitlines()
    assert first == "3.75 2.333333 -4 1.414214 -3 2 1.099512e+12 1e+20"
    assert second == "0.841471 2.677945 7.389056 2.302585 True"
    assert third == "False True 0.3 (-4.0, 0.5)"


def test_time_passes_as_on_the_wall(board: VirtualBoard, mpremote: Mpremote) -> None:
    code = (
        "import time; t=time.ticks_ms(); time.sleep(1.5); print(time.ticks_diff(time.ticks_ms(),t))"
    )
    started = time.monotonic()
    slept_ms = int(mpremote(board, "exec", code))
    assert 1500 <= slept_ms <= 1550
    assert time.monotonic() - started >= 1.5


def test_a_soft_reset_keeps_files_and_console(board: VirtualBoard, mpremote: Mpremote) -> None:
    boots = board.control.state()["boots"]
    mpremote(board, "exec", "x = 5\nwith open('kept.txt', 'w') as f: f.write('soft')")
    mpremote(board, "soft-reset")
    assert mpremote(board, "resume", "exec", "print('x' in globals())").strip() == "False"
    assert mpremote(board, "exec", "print(open('kept.txt').read())").strip() == "soft"
    assert board.control.state()["boots"] == boots


def test_a_program_keeps_its_terminal_through_a_reset(
    board: VirtualBoard, wait_for_boots: Callable[[VirtualBoard, int], None]
) -> None:
    boots = board.control.state()["boots"]
    with serial.Serial(board.address.serial_url, timeout=60) as port:
        port.write(b"\r\x03")
        assert port.read_until(b">>> ").endswith(b">>> ")
        board.control.reset()
        wait_for_boots(board, boots + 1)
        port.write(b"\r\x03\r")
        assert port.read_until(b"RP2040").endswith(b"RP2040")
        port.read_until(b">>> ")
        port.reset_input_buffer()
        port.write(b"print(6*7)\r")
        assert port.read_until(b"42").endswith(b"42")


def test_output_that_nobody_reads_does_not_stop_the_board(
    board: VirtualBoard, mpremote: Mpremote
) -> None:
    # 400 KB, more than any buffer on the way holds; then a pin tells that all was printed.
    code = (
        "from machine import Pin\nflag = Pin(2, Pin.OUT, value=0)\n"
        "for i in range(8000): print('line', i, 'x' * 40)\nflag(1)"
    )
    mpremote(board, "exec", "--no-follow", code)
    deadline = time.monotonic() + 60
    while not board.control.gpio(2):
        assert time.monotonic() < deadline, "the board waits for a reader"
        time.sleep(0.1)
    assert mpremote(board, "exec", "print(1)").endswith("1\n")


def test_pins_are_seen_and_set_from_outside(board: VirtualBoard, mpremote: Mpremote) -> None:
    mpremote(board, "exec", "from machine import Pin; Pin(15, Pin.OUT, value=1)")
    assert board.control.gpio(15) is True
    mpremote(board, "resume", "exec", "Pin(15).value(0)")
    assert board.control.gpio(15) is False
    for level in (True, False):
        board.control.set_gpio(14, level)
        read = mpremote(board, "exec", "from machine import Pin; print(Pin(14, Pin.IN).value())")
        assert int(read) == level


def test_the_board_reads_its_own_pins(board: VirtualBoard, mpremote: Mpremote) -> None:
    code = (
        "from machine import Pin; out = Pin(16, Pin.OUT, value=1); one = out.value(); out(0);"
        "up = Pin(17, Pin.IN, Pin.PULL_UP).value(); down = Pin(18, Pin.IN, Pin.PULL_DOWN).value();"
        "print(one, out.value(), up, down)"
    )
    assert mpremote(board, "exec", code).split() == ["1", "0", "1", "0"]


def test_a_pin_interrupt_fires_at_the_edge(board: VirtualBoard) -> None:
    code = (
        "from machine import Pin\nimport time\nedges = []\n"
        "p = Pin(19, Pin.IN, Pin.PULL_DOWN)\n"
        "p.irq(lambda pin: edges.append(pin.value()), Pin.IRQ_RISING)\nprint('armed')\n"
        "while not edges: time.sleep_ms(5)\nprint('edge', edges[0])\n"
    )
    board.control.set_gpio(19, False)
    with serial.Serial(board.address.serial_url, timeout=60) as port:
        port.write(b"\r\x03\x03\r\x01")
        assert port.read_until(b"raw REPL; CTRL-B to exit\r\n>").endswith(b">")
        port.write(code.encode() + b"\x04")
        assert port.read_until(b"armed\r\n").endswith(b"armed\r\n")
        board.control.set_gpio(19, True)
        assert port.read_until(b"edge 1\r\n").endswith(b"edge 1\r\n")
        port.write(b"\x02")


def test_a_copy_of_the_firmware_in_pieces_is_flashed_once_whole(
    tmp_path: Path, uf2_path: Path
) -> None:
    data = uf2_path.read_bytes()
    with VirtualBoard.start("rp2040", "slow-copy", tmp_path) as board:
        folder = board.address.bootsel_dir
        assert folder is not None
        with (folder / "slow.uf2").open("wb") as file:
            for start in range(0, len(data), len(data) // 4):
                file.write(data[start : start + len(data) // 4])
                file.flush()
                assert board.control.state()["state"] == "bootsel"
                time.sleep(0.35)
        deadline = time.monotonic() + 60
        while board.control.state()["state"] != "running":
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_what_is_not_its_firmware_is_refused_and_not_flashed(
    tmp_path: Path, uf2_path: Path
) -> None:
    data = bytearray(uf2_path.read_bytes())
    wrong = tmp_path / "wrong.uf2"
    for start in range(0, len(data), 512):
        data[start + 28 : start + 32] = (0xE48BFF59).to_bytes(4, "little")  # an RP2350's
    wrong.write_bytes(data)
    cut = tmp_path / "cut.uf2"
    cut.write_bytes(uf2_path.read_bytes()[:-512])
    state_dir = tmp_path / "state"
    with VirtualBoard.start("rp2040", "picky", state_dir) as board:
        folder = board.address.bootsel_dir
        assert folder is not None
        for path, reason in ((wrong, "wrong family id: 0xe48bff59"), (cut, "incomplete")):
            shutil.copy(path, folder)
            fail = folder / "FAIL.TXT"
            deadline = time.monotonic() + 60
            while not fail.exists() or path.name not in fail.read_text():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert reason in fail.read_text()
            assert board.control.state() == {"state": "bootsel", "boots": 0}
        assert set((state_dir / "flash.bin").read_bytes()) == {0xFF}
        assert "wrong family id" in (state_dir / "board.log").read_text()
