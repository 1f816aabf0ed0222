"""The hostile names through what the pipeline shows: queries, exports, report, live page."""

import csv
import dataclasses
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from motemq_pipeline.cli_look import _print
from motemq_pipeline.live.figure import _plain
from motemq_pipeline.report import page, write_report
from motemq_pipeline.report.export import _as_text
from motemq_pipeline.report.facts import Facts, read_facts
from tests.hostile_names import HOSTILE, harm
from tests.pipeline.conftest import Tables

_SAID = ("board", "board_id", "message", "reason", "path", "text", "sensor", "kind", "rig", "unit")


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_a_query(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows: Iterator[tuple[Any, ...]] = iter([(name, name.encode(), 1.5) for name in HOSTILE])
    _print(["board", "payload", "value"], rows, form)
    text = capsys.readouterr().out
    assert harm(text) == ""
    if form == "csv":
        found = list(csv.reader(io.StringIO(text)))
        assert len(found) == len(HOSTILE) + 1
        assert all(cell[:1] not in ("=", "+", "-", "@") for row in found for cell in row)
    elif form == "json":
        assert [json.loads(line)["board"] for line in text.splitlines()] == list(HOSTILE)
    else:
        assert len(text.splitlines()) == len(HOSTILE) + 2


def test_an_export() -> None:
    texts = pa.array([*HOSTILE, None], pa.string())
    raw = pa.array([*(name.encode() for name in HOSTILE), b"\xff\x1b"], pa.binary())
    schema = pa.schema([("board", pa.string()), ("payload", pa.string())])
    batch = _as_text(pa.RecordBatch.from_arrays([texts, raw], names=["board", "payload"]), schema)
    for column in batch.columns:
        for cell in column.to_pylist():
            assert cell is None or (harm(cell) == "" and cell[:1] not in "=+-@")
    assert batch.column(0).to_pylist()[-1] is None


def test_the_report(desk: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hostile(value: Any, name: str, word: str) -> Any:
        if isinstance(value, str):
            return word if name in _SAID else value
        if isinstance(value, dict):
            return {key: hostile(one, str(key), word) for key, one in value.items()}
        if isinstance(value, list):
            return [hostile(one, name, word) for one in value]
        return value

    facts = read_facts(desk.place)
    for word in HOSTILE:
        changed: Facts = dataclasses.replace(
            facts,
            failures=hostile(facts.failures, "", word),
            health=hostile(facts.health, "", word),
            alerts=hostile(facts.alerts, "", word),
            quarantine=hostile(facts.quarantine, "", word),
            latest=hostile(facts.latest, "", word),
            round_trips={word: [1000.0, 2000.0]},
        )
        monkeypatch.setattr(page, "read_facts", lambda _, shown=changed: shown)
        write_report(desk.place, tmp_path / "report.html")
        text = (tmp_path / "report.html").read_text()
        assert harm(text) == "", ascii(word)
        assert "<script>alert" not in text
        assert "<img src=x" not in text


def test_the_live_page() -> None:
    for name in HOSTILE:
        assert harm(_plain(name)) == ""
        assert "<" not in _plain(name)
