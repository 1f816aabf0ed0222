"""The REPL wrapper on real MicroPython, and on boards that hang, babble or vanish."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from boards.repl import NoReply, RemoteError, Repl
from boards.serial_port import PortError, PortGone
from firmware import build
from tests.boards.fault_boards import (
    BabblingBoard,
    BootingBoard,
    SilentBoard,
    UnixBoard,
    VanishingBoard,
)

_REPL_S = 60.0
_EXEC_S = 60.0


@pytest.fixture(scope="session")
def interpreter() -> Path:
    return build.ensure("unix")


@pytest.fixture
def unix_board(interpreter: Path, tmp_path: Path) -> Iterator[UnixBoard]:
    with UnixBoard(interpreter, tmp_path) as board:
        yield board


def test_code_runs_and_its_output_comes_back(unix_board: UnixBoard) -> None:
    with Repl.open(unix_board.url, deadline_s=_REPL_S) as repl:
        assert repl.exec("print(6 * 7)\nprint('ä')", deadline_s=_EXEC_S) == "42\nä\n"
        assert repl.exec("pass", deadline_s=_EXEC_S) == ""


def test_the_state_of_the_board_is_kept_between_calls_and_openings(unix_board: UnixBoard) -> None:
    with Repl.open(unix_board.url, deadline_s=_REPL_S) as repl:
        repl.exec("kept = 17", deadline_s=_EXEC_S)
        assert repl.exec("print(kept)", deadline_s=_EXEC_S) == "17\n"
    with Repl.open(unix_board.url, deadline_s=_REPL_S) as repl:
        assert repl.exec("print(kept)", deadline_s=_EXEC_S) == "17\n"


def test_lines_arrive_while_the_code_runs(unix_board: UnixBoard, tmp_path: Path) -> None:
    """It goes on when its first line has been seen, and no sooner."""
    seen: list[str] = []
    go_on = tmp_path / "go on"
    code = (
        "import os, time\nprint('AGENT-READY')\n"
        f"while 'go on' not in os.listdir({str(tmp_path)!r}):\n time.sleep_ms(10)\n"
        "print('end')"
    )

    def look(line: str) -> None:
        seen.append(line)
        go_on.touch()

    with Repl.open(unix_board.url, deadline_s=_REPL_S) as repl:
        repl.exec(code, deadline_s=_EXEC_S, on_line=look)
    assert seen == ["AGENT-READY", "end"]


def test_long_code_and_long_output_are_whole(unix_board: UnixBoard) -> None:
    code = "data = '" + "x" * 20_000 + "'\nprint(len(data))\nprint('y' * 50000)"
    with Repl.open(unix_board.url, deadline_s=_REPL_S) as repl:
        assert repl.exec(code, deadline_s=_EXEC_S) == "20000\n" + "y" * 50_000 + "\n"


def test_an_exception_on_the_board_keeps_its_traceback_and_output(unix_board: UnixBoard) -> None:
    with Repl.open(unix_board.url, deadline_s=_REPL_S) as repl:
        with pytest.raises(RemoteError, match="ValueError: broken sensor") as raised:
            repl.exec("print('before')\nraise ValueError('broken sensor')", deadline_s=_EXEC_S)
        assert "Traceback" in raised.value.traceback
        assert raised.value.output == "before\n"
        assert repl.exec("print(1)", deadline_s=_EXEC_S) == "1\n"


@pytest.mark.parametrize("loop", ["pass", "print('still here')"])
def test_endless_code_is_given_up_and_can_be_interrupted(unix_board: UnixBoard, loop: str) -> None:
    repl = Repl.open(unix_board.url, deadline_s=_REPL_S)
    began = time.monotonic()
    with pytest.raises(NoReply, match=r"not done within 0\.5 s"):
        repl.exec(f"while True:\n {loop}", deadline_s=0.5)
    assert time.monotonic() - began < 10
    repl.close()
    with Repl.open(unix_board.url, deadline_s=_REPL_S) as again:
        assert again.exec("print('alive')", deadline_s=_EXEC_S) == "alive\n"


def test_the_tap_sees_what_the_board_says(unix_board: UnixBoard) -> None:
    seen = bytearray()
    with Repl.open(unix_board.url, deadline_s=_REPL_S, tap=seen.extend) as repl:
        repl.exec("print('tapped')", deadline_s=_EXEC_S)
    assert b"tapped" in seen


@pytest.mark.parametrize("kind", [SilentBoard, BabblingBoard])
def test_no_repl_within_the_deadline_is_a_typed_error(kind: type[SilentBoard]) -> None:
    with kind() as board:
        began = time.monotonic()
        with pytest.raises(NoReply, match=r"no raw REPL within 1 s .* does MicroPython run there"):
            Repl.open(board.url, deadline_s=1)
        assert time.monotonic() - began < 10


def test_a_board_that_was_asked_while_it_booted_is_understood() -> None:
    with BootingBoard() as board, Repl.open(board.url, deadline_s=20) as repl:
        assert repl.exec("print('hi')", deadline_s=10) == "hi\n"


def test_a_board_that_vanishes_is_a_typed_error() -> None:
    with VanishingBoard() as board:
        repl = Repl.open(board.url, deadline_s=_REPL_S)
        with pytest.raises(PortGone, match=board.url):
            repl.exec("print(1)", deadline_s=_EXEC_S)
        repl.close()


def test_a_port_that_is_not_there_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(PortError, match="is the board plugged in"):
        Repl.open(str(tmp_path / "none"), deadline_s=1)
