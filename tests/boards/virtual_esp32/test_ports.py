"""The three plugs of a virtual ESP32's serial line, with the real tools; DTR and RTS as buttons."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import serial

from boards.serial_port import SerialPort
from boards.virtual.board import VirtualBoard

_TOOL_S = 90.0

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(*argv: str | Path) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *argv],
            capture_output=True,
            text=True,
            timeout=_TOOL_S,
            env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def _await_state(board: VirtualBoard, state: str, within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while (seen := board.control.state()["state"]) != state:
        assert time.monotonic() < deadline, f"{seen}, not {state}"
        time.sleep(0.02)


@pytest.mark.parametrize("way", ["socket", "pty", "rfc2217"])
def test_mpremote_by_every_way(running: VirtualBoard, run: Run, way: str) -> None:
    url = running.address.serial_urls[way]
    assert run("mpremote", "connect", url, "resume", "eval", "6 * 7").strip() == "42"
    assert running.control.state() == {"state": "running", "boots": 1}


def test_esptool_by_the_terminal(running: VirtualBoard, run: Run, image: Path) -> None:
    running.control.boot()
    port = running.address.serial_urls["pty"]
    head = ["esptool", "--chip", "esp32", "--port", port, "--after", "no-reset"]
    said = run(*head, "--before", "no-reset", "write-flash", "0x1000", image)
    assert "Hash of data verified" in said


def test_esptool_resets_by_rfc2217(running: VirtualBoard, run: Run) -> None:
    """Nobody presses a button: esptool's default-reset finds the loader, its hard reset boots."""
    # Not more than this: pyserial polls, and each of esptool's commands takes 0.2 s.
    head = ["esptool", "--chip", "esp32", "--port", running.address.serial_urls["rfc2217"]]
    said = run(*head, "--no-stub", "--connect-attempts", "1", "read-mac")
    assert bytes.fromhex(running.address.uid).hex(":") in said
    assert "Hard resetting via RTS pin" in said
    _await_state(running, "running")
    assert running.control.state()["boots"] == 2


@pytest.mark.filterwarnings("ignore:set(Daemon|Name):DeprecationWarning")  # pyserial's own
def test_a_chip_held_in_reset_is_silent_and_boots_when_the_port_is_closed(
    running: VirtualBoard,
) -> None:
    port = serial.serial_for_url(running.address.serial_urls["rfc2217"], do_not_open=True)
    port.dtr, port.rts, port.timeout = False, True, 0.2
    with port:
        _await_state(running, "held")
        port.reset_input_buffer()
        port.write(b"\r\x03print(1)\r")
        assert port.read(1) == b""
        assert running.control.state()["state"] == "held"
    _await_state(running, "running")
    assert running.control.state()["boots"] == 2


def test_what_the_board_says_is_heard_at_every_plug(running: VirtualBoard) -> None:
    urls = running.address.serial_urls
    with (
        serial.serial_for_url(urls["socket"], timeout=60) as tcp,
        serial.serial_for_url(urls["pty"], timeout=60) as terminal,
    ):
        terminal.reset_input_buffer()
        tcp.write(b"\x03\r\x01")  # the raw REPL, which echoes nothing
        for port in (tcp, terminal):
            assert b"raw REPL; CTRL-B to exit\r\n>" in port.read_until(b"exit\r\n>")
        terminal.write(b"print(bytes(range(250, 256)))\x04")
        for port in (tcp, terminal):
            assert b"OKb'\\xfa" in port.read_until(b"\x04>")
        tcp.write(b"import sys; sys.stdout.buffer.write(b'\\xff\\xff\\xf0')\x04")
        for port in (tcp, terminal):
            assert port.read_until(b"\x04>").startswith(b"OK\xff\xff\xf0")


def test_who_opens_a_flooded_terminal_hears_what_is_said_from_then_on(
    running: VirtualBoard,
) -> None:
    """Flushing its input makes room in the terminal, which wakes nobody."""
    url = running.address.serial_urls["pty"]
    with closing(SerialPort.open(url)) as port:
        port.write_all(b"\x03\r\x01", 60)
        _read_until(port, b"exit\r\n>")
        port.write_all(b"while True: print('x' * 100)\n\x04", 60)
        _read_until(port, b"xxx\r\n")
    for _ in range(3):
        time.sleep(0.7)  # until what nobody reads is dropped; a shorter wait passes too
        with closing(SerialPort.open(url)) as port:  # flushes
            assert port.read(60.0)


@pytest.mark.parametrize("way", ["socket", "pty"])
def test_a_program_that_reads_slowly_loses_nothing(running: VirtualBoard, way: str) -> None:
    """As at a baud rate: the board waits for its line."""
    count = 20_000
    with closing(SerialPort.open(running.address.serial_urls[way])) as port:
        port.write_all(b"\x03\r\x01", 60)
        _read_until(port, b"exit\r\n>")
        port.write_all(b"for i in range(%d): print('line', i, '.' * 60)\n\x04" % count, 60)
        got = _read_until(port, b"\x04\x04>", pause_s=0.002)
    lines = got.removeprefix(b"OK").removesuffix(b"\x04\x04>").splitlines()
    assert [line.split()[1] for line in lines] == [b"%d" % i for i in range(count)]


def test_a_program_that_does_not_read_does_not_stop_the_board(running: VirtualBoard) -> None:
    urls = running.address.serial_urls
    with (
        closing(SerialPort.open(urls["socket"])) as idle,
        closing(SerialPort.open(urls["pty"])) as port,
    ):
        port.write_all(b"\x03\r\x01", 60)
        _read_until(port, b"exit\r\n>")
        port.write_all(b"for i in range(200_000): print('.' * 100)\nprint('done')\n\x04", 60)
        _read_until(port, b"done\r\n\x04\x04>")
        assert idle.read(60)


def _read_until(port: SerialPort, end: bytes, *, pause_s: float = 0.0) -> bytes:
    got = bytearray()
    deadline = time.monotonic() + 60
    while not got.endswith(end):
        assert time.monotonic() < deadline, f"no {end!r} after {bytes(got[-100:])!r}"
        got += port.read(1.0)
        time.sleep(pause_s)  # a slow reader is what some tests are about
    return bytes(got)
