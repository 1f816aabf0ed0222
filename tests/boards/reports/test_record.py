"""A run is read from its files, whatever state they are in."""

import json
from pathlib import Path
from typing import Any

import pytest

from boards.reports.record import _SERIES_LIMIT, Series, read_run
from tests.boards.reports.made_run import MadeRun, passing_board


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = MadeRun(tmp_path)
    made.environment(git="abc", python="3.11")
    passing_board(made, "b1", rtt_us=[1000, 2000, 3000])
    made.event(12, event="console", step="check", check="ping", message="hello")
    run = read_run(made.end(13))
    assert (run.rig, run.outcome, run.seconds) == ("made", "passed", 13)
    assert run.environment == {"git": "abc", "python": "3.11"}
    assert run.unreadable == 0
    (board,) = run.boards.values()
    assert (board.id, board.virtual, board.outcome) == ("b1", True, "passed")
    steps = ["start", "flash", "install", "check", "pubsub_up", "ping", "telemetry", "stop"]
    assert list(board.last()) == steps
    assert board.last()["flash"].seconds == 2
    assert board.console == [("check", "ping", "hello")]
    series = board.series["ping", "rtt"]
    assert (series.unit, list(series.values), series.outcome) == (
        "us",
        [1000, 2000, 3000],
        "passed",
    )


def test_a_run_that_was_killed_is_aborted_and_its_step_never_ended(tmp_path: Path) -> None:
    made = MadeRun(tmp_path)
    made.board("b1")
    made.event(1, event="board_started")
    made.event(2, event="step_started", step="flash")
    made.event(5, event="console", step="flash", message="still here")
    folder = made.abort()
    with (folder / "events.jsonl").open("a") as file:
        file.write('{"schema_version": 1, "run_id": "cut he')
    run = read_run(folder)
    assert run.outcome == "aborted"
    assert run.unreadable == 0
    (interval,) = run.boards["b1"].intervals
    assert (interval.name, interval.shown_outcome, interval.seconds) == ("flash", "unfinished", 3)


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 2},
        {"mono_ns": "soon"},
        {"mono_ns": 2**63},
        {"attempt": None},
        {"message": 7},
        {"board_id": None},
    ],
    ids=str,
)
def test_a_line_that_is_not_as_documented_is_counted_and_left_out(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    made = MadeRun(tmp_path)
    passing_board(made, "b1")
    folder = made.end(13)
    lines = (folder / "events.jsonl").read_text().splitlines()
    bad = {**json.loads(lines[1]), "board_id": "bad", **change}
    (folder / "events.jsonl").write_text("\n".join([*lines, json.dumps(bad), "[]", "{", ""]))
    run = read_run(folder)
    assert run.unreadable == 3
    assert list(run.boards) == ["b1"]
    assert run.outcome == "passed"


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    made = MadeRun(tmp_path)
    folder = made.end(1)
    with (folder / "events.jsonl").open("a") as file:
        file.write("x" * 3_000_000 + "\n")
        file.write((folder / "events.jsonl").read_text().splitlines()[0] + "\n")
    run = read_run(folder)
    assert run.unreadable == 3  # in three pieces
    assert run.outcome == "passed"


def test_only_the_last_attempt_counts(tmp_path: Path) -> None:
    made = MadeRun(tmp_path)
    made.board("b1")
    made.step("flash", 0, 1, "error", attempt=1, message="no")
    made.step("flash", 2, 1, "passed", attempt=2)
    made.samples("ping", "rtt", "us", [1, 2], 3)
    made.samples("ping", "rtt", "us", [9], 4, attempt=2)
    board = read_run(made.end(5)).boards["b1"]
    assert board.last()["flash"].shown_outcome == "flaky"
    assert list(board.series["ping", "rtt"].values) == [9]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "3"], ids=str)
def test_what_is_no_number_is_no_value(tmp_path: Path, value: Any) -> None:
    made = MadeRun(tmp_path)
    made.board("b1")
    made.event(1, event="board_started")
    made.samples("ping", "rtt", "us", [value, 5], 2)
    board = read_run(made.end(3)).boards["b1"]
    assert list(board.series["ping", "rtt"].values) == [5]


def test_very_many_values_are_thinned_evenly() -> None:
    series = Series("c", "m", "us")
    count = 5 * _SERIES_LIMIT
    for number in range(count):
        series.add(number, number)
    assert series.count == count
    assert _SERIES_LIMIT // 2 < len(series.values) <= _SERIES_LIMIT
    gaps = {b - a for a, b in zip(series.values, series.values[1:], strict=False)}
    assert gaps == {8.0}
    assert list(series.at_ns) == [int(value) for value in series.values]


def test_there_may_be_no_samples(tmp_path: Path) -> None:
    made = MadeRun(tmp_path)
    folder = made.end(1)
    (folder / "samples.jsonl").unlink()
    assert read_run(folder).outcome == "passed"
    with pytest.raises(FileNotFoundError):
        read_run(tmp_path)
