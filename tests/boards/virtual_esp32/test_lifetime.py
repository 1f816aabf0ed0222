"""However a board ends, nothing of it is left; and no two boards share one flash."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from boards.virtual.board import BoardError, VirtualBoard
from tests.processes import command_lines

Tool = Callable[..., str]


def _wait_until_none(folder: Path) -> None:
    deadline = time.monotonic() + 60
    while left := command_lines(str(folder)):
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.02)


def test_stop_leaves_nothing(running: VirtualBoard, state_dir: Path) -> None:
    assert len(command_lines(str(state_dir))) == 2  # the supervisor and the interpreter
    running.stop()
    assert not command_lines(str(state_dir))


@pytest.mark.parametrize("busy", [False, True])
def test_a_killed_supervisor_takes_the_interpreter_with_it(
    running: VirtualBoard, state_dir: Path, mpremote: Tool, busy: bool
) -> None:
    if busy:
        mpremote(running, "exec", "--no-follow", "while True: pass")
    os.kill(running.pid, signal.SIGKILL)
    _wait_until_none(state_dir)


def test_a_killed_parent_takes_the_board_with_it(state_dir: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom boards.virtual.board import VirtualBoard\n"
        "board = VirtualBoard.start('esp32', 'orphan', Path(sys.argv[1]))\n"
        "print('ready', flush=True)\nsys.stdin.read()"
    )
    argv = [sys.executable, "-c", program, str(state_dir)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        assert len(command_lines(str(state_dir))) == 3
        parent.kill()
    _wait_until_none(state_dir)


def test_a_second_board_on_the_same_folder_is_refused(
    running: VirtualBoard, state_dir: Path
) -> None:
    with pytest.raises(BoardError, match="is in use by a running board"):
        VirtualBoard.start("esp32", "esp32-2", state_dir)


def test_a_crash_is_told_and_the_board_boots_again(
    running: VirtualBoard, state_dir: Path, mpremote: Tool
) -> None:
    (interpreter,) = [pid for pid in command_lines(str(state_dir)) if pid != running.pid]
    os.kill(interpreter, signal.SIGSEGV)
    deadline = time.monotonic() + 60
    while running.control.state()["boots"] != 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert mpremote(running, "eval", "1 + 1").strip() == "2"


def test_a_board_that_resets_for_ever_does_not_storm(
    running: VirtualBoard, state_dir: Path, mpremote: Tool
) -> None:
    mpremote(
        running,
        "exec",
        "with open('boot.py', 'w') as f: f.write('import machine; machine.reset()')",
    )
    before = running.control.state()["boots"]
    running.control.reset()
    start = time.monotonic()
    while running.control.state()["boots"] < before + 4:
        assert time.monotonic() - start < 60
        time.sleep(0.02)
    assert time.monotonic() - start > 0.5  # at most five starts a second
    running.control.boot()
    assert running.control.state()["state"] == "download"


def test_an_unknown_request_is_refused(running: VirtualBoard) -> None:
    with pytest.raises(BoardError, match="refused: a request is"):
        running.control._call("fly")
