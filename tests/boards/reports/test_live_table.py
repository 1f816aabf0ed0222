"""``motemq rig run`` on a terminal: one table, drawn anew, and the cursor back at the end."""

import re
import shutil
from pathlib import Path

from boards.reports.history import find_run, read_runs, runs_before
from boards.reports.page import html_page
from boards.reports.record import read_run
from tests.boards.reports.made_run import MadeRun
from tests.boards.rig_process import Broker, rig_command
from tests.boards.terminal import Terminal

_RUN_S = 240.0
_STEPS = ("start", "flash", "install", "telemetry", "stop")


def _command(out: Path, broker: Broker) -> list[str]:
    return rig_command(out, broker, "--virtual", "esp32:1", "--checks", "ping")


def _former_run(out: Path) -> None:
    made = MadeRun(out, "desk", "20260101T000000Z-aaaaaa")
    made.board("vesp32-1", model="virtual-esp32")
    for step in _STEPS:
        made.step(step, 0, 70)
    made.check("ping", 0, 70)
    made.end(100)


def test_a_run_is_one_table_with_progress_and_then_the_matrix(
    broker: Broker, tmp_path: Path
) -> None:
    _former_run(tmp_path)
    with Terminal(_command(tmp_path, broker), columns=110) as terminal:
        assert terminal.wait(_RUN_S) == 0, terminal.screen.text
        screen = terminal.screen
    assert screen.is_cursor_shown
    assert screen.text.count("RTT p50/p99") == 1  # what was drawn before is gone
    rows = [line for line in screen.lines if line.startswith("vesp32-1 (virtual)")]
    assert len(rows) == 1
    assert re.search(r"passed +━{12} +1/1 +\S+ .s/\S+ .s +- +\d:\d\d$", rows[0].rstrip())
    table = [line for line in screen.lines if line.startswith("│ ping")]
    assert re.match(r"│ ping +│ ok \S+ [µm]s", table[0])
    assert "virtual boards: their times say nothing about hardware" in screen.text

    folder = find_run(tmp_path)
    assert f"report: {folder}/report.html" in screen.text.replace("\n", "")
    # The page is of the two files alone: elsewhere and later it is the same.
    (tmp_path / "elsewhere").mkdir()
    for name in ("events.jsonl", "samples.jsonl"):
        shutil.copy(folder / name, tmp_path / "elsewhere")
    page = html_page(read_run(tmp_path / "elsewhere"), read_runs(runs_before(folder, 9)))
    assert page == (folder / "report.html").read_text()
    assert "raw REPL; CTRL-B to exit" in page  # what the board said
    assert f"--out {tmp_path}" in page

    live = "\n".join(terminal.frames)
    assert re.search(r"vesp32-1 \(virtual\) +running +install", live)
    assert re.search(r"vesp32-1 \(virtual\) +running +telemetry", live)
    # 6 x 70 s were needed before, so minutes are left, and fewer of them as it goes.
    left = [int(minutes) for minutes in re.findall(r" \+(\d):\d\d", live)]
    assert left[0] >= 6
    assert left == sorted(left, reverse=True)
    assert left[-1] <= 1
    assert "vesp32-1: check passed in" in live  # the last event, below the table
    assert not any("vesp32-1: " in line for line in screen.lines if "passed in" not in line)


def test_ctrl_c_leaves_a_terminal_that_can_be_used(broker: Broker, tmp_path: Path) -> None:
    with Terminal(_command(tmp_path, broker), columns=80) as terminal:
        terminal.read_until(lambda text: "running" in text and "flash" in text, _RUN_S)
        assert not terminal.screen.is_cursor_shown
        terminal.type(b"\x03")
        assert terminal.wait(_RUN_S) == 130
        assert terminal.screen.is_cursor_shown
    assert terminal.screen.text.count("RTT p50") == 1
    assert "virtual: vesp32-1" in terminal.screen.text  # 80 columns have no room for it at the id
    assert "rig: interrupted, every board is stopped" in terminal.screen.text
