"""The end of a run for a person: the matrix, why, and the command to run again."""

import shlex
import sys
import time
from io import StringIO
from pathlib import Path
from typing import Any

import click
import pytest
from rich.console import Console

from boards.reports.board_state import BoardState
from boards.reports.live_table import LiveTable, TimeEstimate
from boards.reports.summary import print_summary, rerun_command
from boards.session.event_writer import _event
from boards.session.plan import BoardPlan, Job
from motemq.cli import main

_RUN = ["motemq", "rig", "run", "--fmqp", "127.0.0.1:1", "--lightmq", "127.0.0.1:2", "--out", "o o"]


def _board(id: str = "b1", *, file: str = "", checks: tuple[str, ...] = ("ping", "heap")) -> Any:
    plan = BoardPlan(id, "virtual-rp2040", "fmqp", file)
    job = Job(
        board=plan,
        **dict.fromkeys(("image", "node_dir", "state_dir", "rig_dir", "fmqp", "lightmq"), "x"),
        **dict.fromkeys(("keep_flash", "force", "trust_ledger"), False),
        **{"fw_sha": "", "client_sha": "", "limits_s": {}, "log_dir": "logs"},
        flash_parallel=1,
        retries=1,
        checks=checks,
    )
    return BoardState(job, "virtual-rp2040", True)


def _tell(board: BoardState, step: str, outcome: str, message: str = "", **words: Any) -> None:
    about = {"step": step, "outcome": outcome, "message": message, "duration_s": 1.0, **words}
    event = "check_finished" if "check" in words else "step_finished"
    _event(board, {"event": event, **about})


def _printed(boards: list[BoardState], width: int = 100) -> str:
    out = StringIO()
    console = Console(file=out, width=width, no_color=True)
    print_summary(console, boards, ["ping", "heap"], [*_RUN, "--checks", "ping,heap"])
    return out.getvalue()


def test_a_failed_check_is_run_again_alone() -> None:
    board = _board(file="boards/b1.toml")
    _tell(board, "flash", "passed", attempt=2)
    _tell(board, "check", "failed", "3 lost", check="ping")
    _tell(board, "check", "passed", check="heap")
    board.figures["heap"] = "120 KiB"
    _tell(board, "check", "failed", "1 of 2 failed: ping")
    text = _printed([board])
    assert "ok 120 KiB" in text
    assert "b1 FLAKY: flash passed at attempt 2" in text
    assert "b1 check ping failed: 3 lost" in text
    assert "1 of 2 failed" not in text
    assert "logs: logs/b1.serial.log" in text
    assert f"again: {shlex.join(_RUN)} --board b1 --checks ping\n" in text


def test_boards_that_failed_are_run_again_together() -> None:
    boards = [_board(f"b{number}", file="x.toml") for number in range(3)]
    for board, check in zip(boards, ("ping", "heap"), strict=False):
        _tell(board, "check", "failed", "3 lost", check=check)
    text = _printed(boards)
    assert text.count("again: ") == 1
    assert "--board b0 --board b1 --checks ping,heap\n" in text


def test_a_failed_step_is_run_again_with_everything_that_was_chosen() -> None:
    board = _board()
    _tell(board, "flash", "error", "ToolError: no sync")
    _tell(board, "install", "error", "not run: step flash failed")
    text = _printed([board])
    assert text.count("b1 flash error: ToolError: no sync") == 1
    assert "b1 install" not in text
    assert "NOT RUN" in text
    assert f"again: {shlex.join(_RUN)} --checks ping,heap\n" in text


def test_many_boards_are_shown_in_several_tables() -> None:
    boards = [_board(f"board-{number:02}") for number in range(12)]
    text = _printed(boards, width=80)
    assert all(board.id in text for board in boards)
    assert text.count("boards and checks") == 3
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "on_desk", "kept"),
    [
        (["-b", "x", "--board=y", "-bz", "--board", "w"], True, []),
        (["--cap", "wifi", "--junit", "j.xml", "--junit=j"], True, []),
        (["--rig", "r.toml", "--keep-flash"], True, ["--rig", "r.toml", "--keep-flash"]),
        (["--virtual", "rp2040:2", "--checks=x"], False, ["--virtual", "rp2040:2"]),
        (["--limit", "flash=3"], True, ["--limit", "flash=3"]),
    ],
)
def test_what_a_run_again_keeps(
    words: list[str],
    on_desk: bool,
    kept: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.toml").touch()
    again = rerun_command([*_RUN, *words], ["b1"] if on_desk else [], ["ping"])
    board = ["--board", "b1"] if on_desk else []
    assert shlex.split(again) == [*_RUN, *kept, *board, "--checks", "ping"]
    run = main.get_command(click.Context(main), "rig")
    assert isinstance(run, click.Group)
    command = run.get_command(click.Context(run), "run")
    assert command is not None
    context = command.make_context("run", shlex.split(again)[3:])  # it takes all of these words
    assert context.params["patterns"] == ("ping",)


def test_a_module_is_run_again_as_one() -> None:
    again = rerun_command(["/x/motemq/__main__.py", "rig"], [], [])
    assert shlex.split(again) == [sys.executable, "-m", "motemq", "rig"]


def test_progress_follows_what_former_runs_took() -> None:
    board = _board()
    usual = {("b1", name): 10.0 for name in ("start", "flash", "install", "ping", "heap", "stop")}
    assert TimeEstimate(usual).left_s(board) is None  # of telemetry nothing is known
    usual["b1", "telemetry"] = 40.0
    pace = TimeEstimate(usual)
    assert pace.left_s(board) == pytest.approx(100, abs=1)
    assert pace.fraction(board) == pytest.approx(0, abs=0.01)
    for step in ("start", "flash", "install"):
        _tell(board, step, "passed")
    assert pace.fraction(board) == pytest.approx(0.3, abs=0.01)
    _tell(board, "check", "passed", check="ping")
    assert board.remaining() == ["heap", "telemetry", "stop"]
    assert pace.left_s(board) == pytest.approx(60, abs=1)
    board.since_s = time.monotonic() - 1000  # it hangs: almost done, and never less than nothing
    assert pace.left_s(board) == pytest.approx(50, abs=1)
    assert pace.fraction(board) == pytest.approx(0.495, abs=0.01)
    _event(board, {"event": "board_finished", "outcome": "passed", "duration_s": 1.0})
    assert pace.fraction(board) == 1
    assert pace.left_s(board) is None


def test_a_dumb_terminal_gets_plain_lines() -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=True, _environ={"TERM": "dumb"})
    with LiveTable(console, [_board()], TimeEstimate({})) as show:
        show.line("b1: flash …")
        show.refresh()
    assert out.getvalue() == "b1: flash …\n"


def test_what_is_done_goes_below_the_edge_of_a_low_terminal() -> None:
    boards = [_board(f"b{number}") for number in range(9)]
    for board in boards[:6]:
        _event(board, {"event": "board_finished", "outcome": "passed", "duration_s": 1.0})
    out = StringIO()
    console = Console(
        file=out, force_terminal=True, width=120, height=8, _environ={"TERM": "xterm"}
    )
    with LiveTable(console, boards, TimeEstimate({})):
        drawn = out.getvalue()
    assert [board.id in drawn for board in boards[6:]] == [True] * 3
    assert "b5" not in drawn


def test_a_second_try_is_counted() -> None:
    board = _board()
    assert _event(board, {"event": "step_started", "step": "flash"}) == ["b1: flash …"]
    again = {"event": "step_started", "step": "flash", "attempt": 2}
    assert _event(board, again) == ["b1: flash, attempt 2 …"]
    assert board.retries == 1
    assert board.state == "running"
