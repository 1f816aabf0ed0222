"""What CI reads: JUnit XML per board, and a Markdown matrix that nobody can write into."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from boards.reports.junit import junit_xml
from boards.reports.markdown import markdown
from boards.reports.record import RunRecord, read_run
from tests.boards.desk_files import motemq_rig
from tests.boards.reports.made_run import MadeRun, passing_board


@pytest.fixture
def run(tmp_path: Path) -> RunRecord:
    made = MadeRun(tmp_path)
    made.environment(git="abc")
    passing_board(made, "b1", rtt_us=[1000, 2000, 3000])
    made.board("b2", virtual=False, model="RPI_PICO")
    made.step("flash", 0, 1, "error", message="no sync")
    made.step("flash", 2, 1, attempt=2)
    made.step("install", 3, 1)
    made.check("ping", 4, 1, "failed", "3 \x00lost <b>| `x` @all")
    made.check("pubsub_up", 5, 1, "quarantined", "(quarantined until 2099-01-01: noisy)")
    made.event(6, event="console", step="check", check="ping", message="Trace\x1b[31mback")
    made.step("check", 4, 2, "failed", message="1 of 2 failed: ping")
    made.board("b3")
    made.step("start", 0, 1, "error", message="in use")
    made.step("flash", 1, 0, "error", message="not run: step start failed")
    return read_run(made.end(13, "failed"))


def _suites(run: RunRecord) -> dict[str, ET.Element]:
    return {str(suite.get("name")): suite for suite in ET.fromstring(junit_xml(run))}


def _properties(element: ET.Element) -> dict[str, str]:
    found = element.findall("properties/property")
    return {str(one.get("name")): str(one.get("value")) for one in found}


def test_a_suite_says_which_board_it_was(run: RunRecord) -> None:
    suites = _suites(run)
    assert list(suites) == ["b1", "b2", "b3"]
    assert _properties(suites["b2"]) == {
        "board": "b2",
        "model": "RPI_PICO",
        "chip": "rp2040",
        "virtual": "false",
        "firmware": "",
        "firmware_sha": "f" * 64,
        "client_sha": "c" * 64,
        "flaky": "true",
    }
    assert _properties(suites["b1"])["virtual"] == "true"
    assert _properties(suites["b1"])["flaky"] == "false"


def test_a_failure_is_no_error_and_an_excuse_is_no_pass(run: RunRecord) -> None:
    suites = _suites(run)
    counts = {
        name: tuple(suite.get(one) for one in ("tests", "failures", "errors", "skipped"))
        for name, suite in suites.items()
    }
    assert counts == {
        "b1": ("7", "0", "0", "0"),
        "b2": ("4", "1", "0", "1"),
        "b3": ("2", "0", "2", "0"),
    }
    cases = {case.get("name"): case for case in suites["b2"].iter("testcase")}
    assert _properties(cases["flash"]) == {"flaky": "true"}
    failure = cases["ping"].find("failure")
    assert failure is not None
    assert failure.get("message") == "3 \\x00lost <b>| `x` @all"
    assert cases["ping"].findtext("system-out") == "Trace\\x1b[31mback"
    skipped = cases["pubsub_up"].find("skipped")
    assert skipped is not None
    assert "2099-01-01: noisy" in str(skipped.get("message"))
    assert cases["install"].find("system-out") is None


def test_an_aborted_run_is_an_error(tmp_path: Path) -> None:
    made = MadeRun(tmp_path)
    made.board("b1")
    made.event(1, event="step_started", step="flash")
    suites = _suites(read_run(made.abort()))
    assert suites["rig"].find("testcase/error") is not None
    assert suites["b1"].get("errors") == "1"


def test_the_matrix_names_what_is_virtual_and_why_something_failed(run: RunRecord) -> None:
    lines = markdown(run).splitlines()
    assert lines[0] == "### Rig made: failed"
    assert lines[2] == "| | b1 \\(virtual\\) | b2 | b3 \\(virtual\\) |"
    assert "| ping | ✅ 2 ms | ❌ | · |" in lines
    assert "| flash | ✅ | ✅ flaky | · |" in lines
    assert "| start | ✅ | · | ⚠️ |" in lines
    assert not any(line.startswith("| stop") for line in lines)
    assert "Virtual boards: their times say nothing about hardware." in lines
    assert "- **b2** flash error: `no sync`" in lines
    assert "- **b3 \\(virtual\\)** start error: `in use`" in lines
    assert not any("not run" in line for line in lines)
    # In code nothing is Markdown; the fence is longer than what is inside.
    assert "- **b2** ping failed: `` 3 \\x00lost <b>| `x` @all ``" in lines


def test_a_summary_has_room_at_github(tmp_path: Path) -> None:
    made = MadeRun(tmp_path)
    made.board("b1")
    for number in range(500):
        made.check(f"check_{number}", 1, 1, "failed", "x" * 5000)
    text = markdown(read_run(made.end(5, "failed")))
    assert len(text.encode()) < 200_000
    assert "- … and 300 more" in text


def test_the_command_appends_to_a_summary(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "out")
    passing_board(made, "b1")
    made.end(13)
    summary, junit = tmp_path / "summary.md", tmp_path / "junit.xml"
    summary.write_text("before\n")
    words = ("--markdown", summary, "--junit", junit)
    done = motemq_rig("report", tmp_path / "out", *words)
    assert done.returncode == 0, done.stdout
    assert summary.read_text().startswith("before\n### Rig made: passed")
    assert ET.parse(junit).getroot().tag == "testsuites"
