"""``python -m benchmarks rig``: what counts as a flake."""

import json
import re
from pathlib import Path

from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.rig.runs import Run, judge, read_run
from tests.boards.lan_possible import require_lan


def _event(board: str, event: str, outcome: str, **columns: object) -> dict[str, object]:
    row = {"board_id": board, "event": event, "outcome": outcome, "attempt": 1, "message": ""}
    row |= {"duration_s": 1.0}
    return {**row, "step": "", "check": "", **columns}


def _read(folder: Path, *rows: dict[str, object]) -> Run:
    run = folder / "rig" / "date=2026-01-01" / "rig=runs" / "run=1"
    run.mkdir(parents=True)
    (run / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_run(folder, 3, 12.0, ("vpico-",), ("flaky-",))


def test_every_verdict_that_is_not_right_is_named(tmp_path: Path) -> None:
    run = _read(
        tmp_path,
        _event("vpico-1", "check_finished", "passed", step="check", check="ping"),
        _event("vpico-1", "check_finished", "failed", step="check", check="pubsub_up"),
        _event("vpico-2", "step_finished", "passed", step="flash", attempt=2),
        _event("wedged-1", "step_finished", "error", step="flash"),
        _event("vpico-1", "board_finished", "failed"),
        _event("vpico-2", "board_finished", "passed"),
        _event("wedged-1", "board_finished", "error"),
        _event("silent-1", "board_finished", "passed"),
        _event("flaky-1", "board_finished", "passed"),
    )
    assert run.checks == 2
    assert [flake.partition(":")[0] for flake in run.flakes] == [
        "vpico-1 pubsub_up failed (attempt 1)",
        "vpico-2 flash passed (attempt 2)",
    ]
    assert run.untold == ("silent-1",)
    said: list[str] = []
    assert not judge([run, run], said.append)
    assert "| 2 | 4 | 12 | 12 | 12 | 2 |" in said
    assert "- 2 x vpico-1 pubsub_up failed" in said


def test_a_run_in_which_nothing_ran_is_no_good_one(tmp_path: Path) -> None:
    run = _read(tmp_path, _event("", "run_started", ""))
    assert run.flakes == ("nothing ran, exit code 3",)
    assert not judge([], lambda line: None)


def test_what_was_left_out_is_no_flake_and_what_was_demanded_is(tmp_path: Path) -> None:
    run = tmp_path / "rig" / "date=2026-01-01" / "rig=runs" / "run=1"
    run.mkdir(parents=True)
    left_out = {"step": "check", "duration_s": 0.0}
    rows = [
        _event("vpico-1", "check_finished", "skipped", check="topics_utf8", **left_out),
        _event("vpico-1", "check_finished", "skipped", check="will_power", **left_out),
        _event("vpico-1", "check_finished", "skipped", step="check", check="boards_together"),
        _event("vpico-1", "board_finished", "passed"),
        _event("vpico-2", "check_finished", "passed", step="check", check="will_power"),
        _event("vpico-2", "board_finished", "passed"),
    ]
    (run / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = read_run(tmp_path, 0, 1.0, ("vpico-",), (), ("will_power",))
    assert read.checks == 2
    assert [flake.partition(":")[0] for flake in read.flakes] == [
        "vpico-1 boards_together skipped (attempt 1)",
        "vpico-1 will_power was not passed",
    ]


def test_a_run_on_a_lan_that_loses_frames(tmp_path: Path) -> None:
    """Two boards on it, by TLS to the run's own broker, a Pico by one cable and one by UART."""
    require_lan()
    checks = "pubsub_up,boards_together,will_power"
    arguments = ["rig", "--lan", "--runs", "1", "--checks", checks, "--out", str(tmp_path)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert re.search(r"^\| 1 \| 12 \| \d+ \| \d+ \| \d+ \| 0 \|$", result.output, re.MULTILINE)


def test_two_runs_of_one_board(tmp_path: Path) -> None:
    arguments = ["rig", "--runs", "2", "--virtual", "esp32:1", "--checks", "pubsub_up"]
    result = CliRunner().invoke(main, [*arguments, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert re.search(r"^\| 2 \| 2 \| \d+ \| \d+ \| \d+ \| 0 \|$", result.output, re.MULTILINE)
