"""The files that the pipeline reads, against docs/rig-events.md itself."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from boards.session.event_writer import RunFiles

_PAGE = Path(__file__).parents[3] / "docs" / "rig-events.md"


def _documented_columns() -> list[str]:
    events = _PAGE.read_text().partition("\n`samples.jsonl`")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", events, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_line_has_every_documented_column(tmp_path: Path) -> None:
    files = RunFiles(tmp_path, "desk")
    files.event(event="run_started")
    files.event(event="step_finished", board_id="b", step="flash", outcome="passed", duration_s=1.5)
    files.sample(board_id="b", check="ping", metric="rtt", unit="us", value=5.0, seq=3)
    first, second = _rows(files.folder / "events.jsonl")
    (sample,) = _rows(files.folder / "samples.jsonl")
    files.close()
    assert list(first) == list(second) == _documented_columns()
    assert (first["board_id"], first["duration_s"], first["virtual"]) == ("", None, False)
    assert (second["attempt"], second["duration_s"]) == (1, 1.5)
    lead = _documented_columns()[: _documented_columns().index("event")]
    tail = ["check", "attempt", "metric", "unit", "value", "seq", "outcome", "better", "limit"]
    assert list(sample) == lead + tail
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", first["ts"])


def test_the_folder_names_date_rig_and_run(tmp_path: Path) -> None:
    files = RunFiles(tmp_path, "desk")
    files.close()
    date, rig, run = files.folder.relative_to(tmp_path / "rig").parts
    assert re.fullmatch(r"date=\d{4}-\d\d-\d\d", date)
    assert rig == "rig=desk"
    assert run == f"run={files.run_id}"


def test_two_runs_at_once_do_not_meet(tmp_path: Path) -> None:
    runs = [RunFiles(tmp_path, "desk") for _ in range(2)]
    for files in runs:
        files.close()
    assert runs[0].folder != runs[1].folder


def test_an_unknown_column_is_a_bug(tmp_path: Path) -> None:
    files = RunFiles(tmp_path, "desk")
    with pytest.raises(TypeError, match="colour"):
        files.event(event="run_started", colour="red")
    files.close()
