"""The main job, watched from outside: blank flash -> install -> checks -> journal -> Spark tables.

One run of ``motemq demo`` with its three virtual boards and the real tools; then every promise
of the README is read back from what it left behind.
"""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.processes import command_lines

pytestmark = pytest.mark.timeout(1200)

_BOARDS = ["vesp32-1", "vpico-1", "vpico-2"]
_CHECKS = {"pubsub_up", "boards_together", "ping", "will_clean", "will_silent", "heap_free"}
_TELEMETRY = 600


@dataclass(frozen=True)
class _Journey:
    out: Path
    printed: str

    def rig_lines(self, name: str) -> list[dict[str, Any]]:
        (path,) = (self.out / "rig").glob(f"date=*/rig=*/run=*/{name}")
        return [json.loads(line) for line in path.read_text().splitlines()]

    def table(self, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = (
            DeltaTable(self.out / "tables" / name).to_pyarrow_table().to_pylist()
        )
        return rows


@pytest.fixture(scope="module")
def journey(tmp_path_factory: pytest.TempPathFactory) -> _Journey:
    out = tmp_path_factory.mktemp("journey") / "demo"
    result = subprocess.run(
        [sys.executable, "-m", "motemq", "demo", "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1100,
    )
    assert result.returncode == 0, result.stdout[-6000:]
    return _Journey(out, result.stdout)


def test_it_names_the_dashboard_at_the_end(journey: _Journey) -> None:
    while_it_ran, at_the_end = re.findall(r"^dashboard: .*$", journey.printed, re.MULTILINE)
    assert re.fullmatch(r"dashboard: http://127\.0\.0\.1:\d+/ while the demo runs", while_it_ran)
    again = f"motemq broker --data {journey.out}/broker --set http.rig={journey.out}"
    assert at_the_end == f"dashboard: http://127.0.0.1:8765/ after: {again}"
    assert journey.printed.splitlines()[-1] == at_the_end


def test_every_board_passed_every_step_from_blank_flash(journey: _Journey) -> None:
    finished = [line for line in journey.rig_lines("events.jsonl") if line["outcome"]]
    for board in _BOARDS:
        steps = {
            line["step"]: line["outcome"]
            for line in finished
            if line["board_id"] == board and line["event"] == "step_finished"
        }
        assert steps.items() >= {
            ("flash", "passed"),
            ("install", "passed"),
            ("check", "passed"),
            ("telemetry", "passed"),
        }
    assert finished[-1]["event"] == "run_finished"
    assert finished[-1]["outcome"] == "passed"


def test_every_line_says_that_the_boards_are_virtual_and_what_they_run(journey: _Journey) -> None:
    lines = [line for line in journey.rig_lines("events.jsonl") if line["board_id"]]
    assert {line["virtual"] for line in lines} == {True}
    checked = [line for line in lines if line["event"] == "check_finished"]
    assert {len(line["fw_sha"]) for line in checked} == {64}
    assert {len(line["client_sha"]) for line in checked} == {64}


def test_every_check_of_every_board_reached_the_gold_table(journey: _Journey) -> None:
    rows = journey.table("gold_checks")
    made = [
        (row["board_id"], row["check"])
        for row in journey.rig_lines("events.jsonl")
        if row["event"] == "check_finished"
    ]
    assert sorted((row["board_id"], row["check"]) for row in rows) == sorted(made)
    assert {(board, check) for board in _BOARDS for check in _CHECKS} <= set(made)
    not_run = {(row["board_id"], row["check"]) for row in rows if row["outcome"] == "skipped"}
    # Boards that speak FMQP have no requests, and their cells say so.
    assert not_run == {(board, "request_up") for board in _BOARDS if board != "vpico-2"}
    assert {row["outcome"] for row in rows} == {"passed", "skipped"}


def test_round_trips_are_measured_by_the_boards(journey: _Journey) -> None:
    pings = [row for row in journey.table("gold_rtt") if row["check"] == "ping"]
    assert sorted(row["board_id"] for row in pings) == _BOARDS
    for row in pings:
        assert row["count"] == 50
        assert 0 < row["p50"] <= row["p90"] <= row["p99"] <= row["max"]


def test_all_telemetry_went_through_the_journal_without_a_gap(journey: _Journey) -> None:
    rows = journey.table("silver_telemetry")
    for board in _BOARDS:
        numbers = sorted(row["seq"] for row in rows if row["board"] == board)
        readings = [number for number in numbers if number < _TELEMETRY]
        assert readings == list(range(_TELEMETRY)), board
    health = {row["board"]: row for row in journey.table("gold_board_health")}
    assert sorted(health) == _BOARDS
    assert {row["gaps"] for row in health.values()} == {0}
    assert {row["duplicates"] for row in health.values()} == {0}
    assert journey.table("silver_quarantine") == []


def test_bronze_holds_what_silver_came_from(journey: _Journey) -> None:
    bronze = journey.table("bronze_messages")
    silver = journey.table("silver_telemetry")
    keys = {(row["partition"], row["seq"]) for row in bronze}
    assert len(keys) == len(bronze) > len(silver)
    protocols = {row["client"] or row["protocol"]: row["protocol"] for row in bronze}
    assert protocols["vpico-2"] == "lightmq"
    assert "fmqp" in protocols.values()


def test_the_report_is_one_self_contained_file(journey: _Journey) -> None:
    html = (journey.out / "report.html").read_text()
    assert [board for board in _BOARDS if board not in html] == []
    assert re.findall(r"""(?:src|href)\s*=\s*["']?(?!#|data:)[^"'>\s]+""", html) == []
    assert "virtual" in html
    assert str(journey.out / "report.html") in journey.printed


def test_the_printed_table_shows_boards_and_percentiles(journey: _Journey) -> None:
    for board in _BOARDS:
        assert board in journey.printed
    assert "p50" in journey.printed
    assert "p99" in journey.printed


def test_ctrl_c_while_boards_are_flashed_leaves_no_process(tmp_path: Path) -> None:
    out = tmp_path / "interrupted-demo"
    demo = subprocess.Popen(
        [sys.executable, "-m", "motemq", "demo", "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert demo.stdout is not None
    with demo.stdout:
        seen = []
        for line in demo.stdout:
            seen.append(line)
            if "flash" in line and "vpico-1" in line:
                break
        else:
            pytest.fail("the demo ended before it flashed: " + "".join(seen))
        # What a terminal does on Ctrl-C: the whole foreground group gets the signal.
        os.killpg(demo.pid, signal.SIGINT)
        rest = demo.stdout.read()
    assert demo.wait(120) == 130, rest
    assert "Traceback" not in rest
    assert not command_lines(str(out))
