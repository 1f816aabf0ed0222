"""docs/tables.ipynb: its cells run, one after the other, and end in what they promise."""

import ast
import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest
from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

import motemq_pipeline
from motemq_pipeline import notebook, sessions
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.failures import JSON_LOGGERS
from tests.pipeline.conftest import Tables

_NOTEBOOK = Path(__file__).parents[2] / "docs" / "tables.ipynb"


def _cells() -> Iterator[dict[str, Any]]:
    found = json.loads(_NOTEBOOK.read_text())
    assert found["nbformat"] == 4
    for cell in found["cells"]:
        yield {**cell, "text": "".join(cell["source"])}


def _shown(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does: the value of its last line is what is shown."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(_NOTEBOOK), "exec"), names)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), str(_NOTEBOOK), "eval"), names)


def test_the_notebook_runs(
    spark: SparkSession, desk: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out" / "demo").mkdir(parents=True)
    (tmp_path / "out" / "demo" / "tables").symlink_to(desk.folder)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    shown = [_shown(cell["text"], names) for cell in _cells() if cell["cell_type"] == "code"]
    assert names["spark"].sparkContext is spark.sparkContext
    figures = [one for one in shown if isinstance(one, go.Figure)]
    frames = [one for one in shown if isinstance(one, pd.DataFrame)]
    assert (len(figures), len(frames)) == (3, 3)
    points = [sum(len(trace.x) for trace in figure.data) for figure in figures]
    # All that the last board said came in one record: a mean and its band, of three sensors.
    assert points[0] == 3 * 3
    assert min(points[1:]) > 30
    assert all(figure.to_json() for figure in figures)
    fleet, lost, sensors = frames
    assert list(fleet["board"].sort_values()) == list(names["boards"])
    assert list(lost["gaps"]) == [2]
    assert "temperature" in set(sensors["sensor"])


def test_the_notebook_is_kept_without_outputs() -> None:
    for cell in _cells():
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None


def test_a_plot_is_of_a_board_that_there_is(desk: Tables, tmp_path: Path) -> None:
    whole = motemq_pipeline.plot(desk.folder, "vpico-2")
    assert {trace.name for trace in whole.data} == {None, "humidity", "pressure", "temperature"}
    begin, end = whole.layout.xaxis.range
    part = motemq_pipeline.plot(desk.folder, "vpico-2", until=begin)
    assert len(part.data) == 0
    assert begin < end
    naive = motemq_pipeline.plot(desk.folder, "vpico-2", since=begin.replace(tzinfo=None))
    assert naive.layout.xaxis.range == whole.layout.xaxis.range
    with pytest.raises(PipelineError, match="ends before it begins"):
        motemq_pipeline.plot(desk.folder, "vpico-2", since=end, until=begin)
    with pytest.raises(PipelineError, match=r"no readings of a board 'x'; there are: .*vpico-1"):
        motemq_pipeline.plot(desk.folder, "x")


def test_the_session_there_is_is_that_of_other_threads_too(spark: SparkSession) -> None:
    """A server's, for one: to start a second one would end the first."""
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(motemq_pipeline.session).result()
    assert found.sparkContext is spark.sparkContext
    assert spark.range(3).count() == 3


def test_a_session_of_our_own_prints_no_pages_before_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PySpark's own way is seven kilobytes of JSON for a mistyped column."""
    started = object()
    monkeypatch.setattr(sessions, "any_session", lambda *_, **__: contextlib.nullcontext(started))
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    loggers = [PySparkLogger.getLogger(name) for name in JSON_LOGGERS]
    assert [logger.disabled for logger in loggers] == [False, False]
    try:
        assert motemq_pipeline.session() is started
        assert [logger.disabled for logger in loggers] == [True, True]
    finally:
        notebook._MADE.close()
    assert [logger.disabled for logger in loggers] == [False, False]
