"""``motemq rig run --checks my_checks.py``: a file of the user's own, good, failing and wrong."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from boards.checks.own_file import OwnChecksError, load_checks
from boards.reports.junit import junit_xml
from boards.reports.record import read_run
from tests.boards.desk_files import motemq_rig
from tests.boards.rig_process import Broker, outcomes, rows, run_rig

_EXAMPLE = Path(__file__).parents[3] / "examples" / "thermometer" / "my_checks.py"
_CHECKS = """
from __future__ import annotations

import sys
from dataclasses import dataclass

from boards.checks.declared import Check, Measurement, Samples
from words import GREETING

BOOT = Measurement("said", "count", "higher")

@dataclass
class Greeting:
    text: str = GREETING

def greets(board):
    \"\"\"It greets.\"\"\"
    with board.app() as app:
        app.install("{app}")
        app.reset()
        app.expect(Greeting().text, timeout_s=60)
    return [Samples(BOOT, [1.0])]

CHECKS = (
    Check("greets", greets, measures=(BOOT,)),
    Check("on_a_line", greets, needs=frozenset({{"serial"}})),
)

def check_the_node_is_still_there(board):
    assert board.call("info")["client"]

def check_holds_not(board):
    value = 1
    assert value == 2

def check_is_not_said(board):
    with board.app() as app:
        app.expect("never said", timeout_s=0)

def check_is_wrong(board):
    board.no_such_thing()

def check_answers(board):
    return 5

def check_measures_nothing_real(board):
    return [Samples(BOOT, [1.0, float("nan")])]

def check_measures_what_is_not_said(board):
    return [Samples("said", [1.0])]

def check_says_much(board):
    assert False, "much " * 300_000

def check_is_no_function(board):
    yield board.call("info")

def check_ends_the_program(board):
    sys.exit("no more of this")
"""
_NAMED = """\
from boards.checks.declared import Check
CHECKS = (Check({!r}, print),)
"""


def test_a_file_of_ones_own_is_judged_and_reported_as_ours(broker: Broker, tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "main.py").write_text("while True:\n    print('hello')\n")
    (tmp_path / "words.py").write_text("GREETING = 'hello'\n")
    file = tmp_path / "my_checks.py"
    file.write_text(_CHECKS.format(app=app))
    words = ["--virtual", "esp32:1", "--retries", "0", "--checks", f"ping,{file},{_EXAMPLE}"]
    result = run_rig(tmp_path / "out", broker, *words)
    assert result.returncode == 1, result.stdout
    judged = outcomes(tmp_path / "out", "vesp32-1", "check_finished", "check")
    assert judged == {
        "ping": "passed",
        "greets": "passed",
        "on_a_line": "skipped",
        "the_node_is_still_there": "passed",
        "holds_not": "failed",
        "is_not_said": "failed",
        "is_wrong": "error",
        "answers": "error",
        "measures_nothing_real": "error",
        "measures_what_is_not_said": "error",
        "says_much": "failed",
        "is_no_function": "error",
        "ends_the_program": "error",
        "temperature": "passed",
    }
    # After programs of others the node is on the board again, and does its part.
    steps = outcomes(tmp_path / "out", "vesp32-1", "step_finished", "step")
    assert steps["telemetry"] == "passed"
    said = {
        row["check"]: row["message"]
        for row in rows(tmp_path / "out", "events.jsonl")
        if row["event"] == "check_finished"
    }
    assert said["holds_not"].endswith(": assert value == 2")
    assert "did not say 'never said'" in said["is_not_said"]
    assert said["answers"] == "invalid: the check returned 5, not a list of Samples, or nothing"
    assert said["measures_nothing_real"].endswith("measured said as nan, which is no number")
    assert said["measures_what_is_not_said"].endswith("'said', which is no Measurement")
    assert said["says_much"].endswith(" … 1490000 more characters")
    assert "invalid: the check returned <generator object" in said["is_no_function"]
    assert said["ends_the_program"].startswith("SystemExit: no more of this (")
    assert "AttributeError" in said["is_wrong"] and "board.no_such_thing()" in said["is_wrong"]
    samples = [row for row in rows(tmp_path / "out", "samples.jsonl") if row["check"] == "greets"]
    assert [(row["metric"], row["value"]) for row in samples] == [("said", 1.0)]
    # Whatever a check says, each failure is in the report for a CI.
    (run,) = (tmp_path / "out" / "rig").glob("*/*/*")
    junit = ET.fromstring(junit_xml(read_run(run)))
    assert {
        case.get("name") for case in junit.iter("testcase") if case.find("failure") is not None
    } == {name for name, outcome in judged.items() if outcome == "failed"}
    # A file is chosen as a whole when it is run again.
    (again,) = [line for line in result.stdout.splitlines() if line.startswith("again: ")]
    assert str(file) in again


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def check_x(board)\n    pass\n", r"wrong\.py:1: expected ':'"),
        ("import json\nimport no_such_module\n", r"wrong\.py:2: ModuleNotFoundError: No module"),
        ("x = 1\n", r"wrong\.py: no check in it: write 'def check_NAME\(board\): …'"),
        ("CHECKS = ['x']\n", r"wrong\.py: CHECKS has 'x', which is no Check"),
        ("CHECKS = 5\n", r"wrong\.py: CHECKS is 5, not a tuple of Check"),
        ("def check_flash(board): pass\n", r"'flash': this is the name of a step of each run"),
        (_NAMED.format(""), r"check '': a name is 1 to 80 characters"),
        (_NAMED.format("two words"), r"check 'two words': .* without a space"),
        (_NAMED.format("one,two"), r"check 'one,two': .* without a space or a comma"),
        (_NAMED.format("bell\a"), r"check 'bell\\x07': .* that can be printed"),
        # Python 3.11.2 does not say in which line.
        ("x = 1\0\n", r"wrong\.py(:1|: ValueError): source code string cannot contain null bytes"),
        ("import sys\nsys.exit(0)\n", r"wrong\.py:2: SystemExit: 0"),
    ],
)
def test_a_wrong_file_is_told_with_its_line(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(text)
    with pytest.raises(OwnChecksError, match=why):
        load_checks(file)


def test_a_check_that_hangs_is_named_and_the_log_says_where(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "my_checks.py"
    file.write_text(
        "import threading\n"
        "def check_before(board): pass\n"
        "def check_hangs(board): threading.Event().wait()\n"
        "def check_after(board): pass\n"
    )
    out = tmp_path / "out"
    words = ["--virtual", "esp32:1", "--checks", str(file), "--limit", "check=1"]
    result = run_rig(out, broker, *words)
    assert result.returncode == 3, result.stdout
    assert outcomes(out, "vesp32-1", "check_finished", "check") == {
        "before": "passed",
        "hangs": "error",
        "after": "skipped",
    }
    assert "vesp32-1 check hangs error: the worker overstayed its time" in result.stdout
    log = (out / "logs" / "vesp32-1.worker.log").read_text()
    assert f'File "{file}", line 3 in check_hangs' in log


def test_a_wrong_file_is_a_usage_error_and_nothing_is_started(tmp_path: Path) -> None:
    twice = tmp_path / "twice.py"
    twice.write_text("def check_ping(board): pass\n")
    for file, why in ((tmp_path / "none.py", "no such file"), (twice, "a check 'ping' already")):
        words = ("--virtual", "esp32:1", "--out", tmp_path / "out", "--checks", file)
        done = motemq_rig("run", *words)
        assert done.returncode == 2, done.stdout
        assert why in " ".join(done.stdout.split()).replace("│ ", "")
    assert not (tmp_path / "out" / "logs").exists()
