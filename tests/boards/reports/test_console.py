"""The serial log in the run's events: cut at its marks, and short."""

import json
from pathlib import Path

from boards.reports.console import read_sections, sections
from boards.reports.environment import environment
from boards.session.serial_log import SerialLog


def test_a_log_is_cut_at_the_marks_that_the_rig_made(tmp_path: Path) -> None:
    log = SerialLog(tmp_path / "b.serial.log")
    log.tap(b"boot\r\n")
    log.mark("step install")
    log.mark("19 files")  # a mark, but not the beginning of anything
    log.mark("step check")
    log.mark("check ping")
    log.tap(b">>> <script>\n")
    log.mark("check pubsub_up")
    log.mark("check will")
    log.tap(b"bye")
    log.close()
    found = read_sections(log.path)
    names = [(section.step, section.check) for section in found]
    assert names == [("start", ""), ("install", ""), ("check", "ping"), ("check", "will")]
    assert found[0].text.endswith(" boot")
    assert found[1].text.endswith(" ---- 19 files")
    assert found[2].text.endswith(" >>> <script>")
    assert found[3].text.endswith(" bye")


def test_of_a_long_section_the_beginning_and_the_end_are_kept() -> None:
    (found,) = sections(f"line {number}\n" for number in range(1000))
    lines = found.text.splitlines()
    assert lines[:2] == ["line 0", "line 1"]
    assert lines[30] == "… 910 lines"
    assert lines[31] == "line 940"
    assert lines[-1] == "line 999"


def test_a_board_cannot_fill_the_disk() -> None:
    """4 MiB of log, of long lines and forged marks, end as a bounded text."""
    forged = ["12:00:00.000 ---- check forged\n", "x" * 4000 + "\n"] * 1000
    found = list(sections(forged))
    assert len(found) <= 401
    assert sum(len(json.dumps(section.text)) for section in found) < 400_000


def test_no_log_says_nothing(tmp_path: Path) -> None:
    assert read_sections(tmp_path / "none") == []


def test_the_environment_can_be_repeated() -> None:
    about = environment(["motemq", "rig", "run", "--name", "my desk"])
    assert about["command"] == "motemq rig run --name 'my desk'"
    assert {"python", "system", "cores", "motemq", "esptool", "mpremote"} <= set(about)
    assert len(about.get("git", "0" * 40).split()[0]) == 40
