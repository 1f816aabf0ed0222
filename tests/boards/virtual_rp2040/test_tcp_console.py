"""The Pico's console by ``socket://``: as good as its terminal, and no way to lose bytes."""

import os
import subprocess
import sys
import time
from pathlib import Path

import serial

from boards.repl import Repl
from boards.virtual.board import VirtualBoard

_TOOL_S = 60.0


def _mpremote(board: VirtualBoard, home: Path, *arguments: str | Path) -> str:
    url = board.address.serial_urls["socket"]
    done = subprocess.run(
        [sys.executable, "-m", "mpremote", "connect", url, *arguments],
        capture_output=True,
        text=True,
        timeout=_TOOL_S,
        env={**os.environ, "XDG_CONFIG_HOME": str(home)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_mpremote_copies_both_ways(board: VirtualBoard, tmp_path: Path) -> None:
    content = bytes(range(256)) * 20
    (tmp_path / "in.bin").write_bytes(content)
    _mpremote(board, tmp_path, "fs", "cp", tmp_path / "in.bin", ":tcp.bin")
    _mpremote(board, tmp_path, "fs", "cp", ":tcp.bin", tmp_path / "out.bin")
    assert (tmp_path / "out.bin").read_bytes() == content


def test_a_reader_that_waits_loses_nothing(board: VirtualBoard) -> None:
    with Repl.open(board.address.serial_urls["socket"], deadline_s=60) as repl:
        out = repl.exec("for i in range(4000): print('line', i)", deadline_s=40)
    assert out.splitlines() == [f"line {i}" for i in range(4000)]


def test_terminal_and_port_in_turn(board: VirtualBoard) -> None:
    for way in ("socket", "pty", "socket", "pty"):
        with Repl.open(board.address.serial_urls[way], deadline_s=60) as repl:
            assert repl.exec("print(6 * 7)", deadline_s=60) == "42\n"


def test_the_port_stays_while_the_board_resets(board: VirtualBoard) -> None:
    url = board.address.serial_urls["socket"]
    boots = board.control.state()["boots"]
    with serial.serial_for_url(url, timeout=0.2) as port:
        board.control.reset()
        assert board.control.state()["boots"] == boots + 1
        deadline = time.monotonic() + 60
        port.write(b"\r")
        while not port.read_until(b">>> ").endswith(b">>> "):
            assert time.monotonic() < deadline
            port.write(b"\r")
        port.timeout = 20
        port.write(b"print(7 * 6)\r")
        assert port.read_until(b"\n42\r\n").endswith(b"\n42\r\n")
