"""docs/tables.ipynb: its cells run, one after the other, and end in what they promise."""

import base64
import contextlib
import json
import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

import motemq_pipeline
from motemq_pipeline import notebook, sessions
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.failures import JSON_LOGGERS
from tests.pipeline.conftest import Tables

_NOTEBOOK = Path(__file__).parents[2] / "docs" / "tables.ipynb"
_PLOTLY = "application/vnd.plotly.v1+json"
_END_S = 400
# What the cells before have shown, to compare.
_ASKED = """
import json
frames = [one for one in Out.values() if type(one).__name__ == "DataFrame"]
print(json.dumps([list(boards), [one.astype(str).to_dict("list") for one in frames]]))
"""


def _notebook() -> nbformat.NotebookNode:
    return nbformat.read(_NOTEBOOK, nbformat.NO_CONVERT)


def _points(trace: dict[str, Any]) -> int:
    """Return the number of points of a trace; Plotly writes numbers as bytes."""
    values = trace["y"]
    if isinstance(values, dict):
        return len(np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"]))
    return len(values)


def test_the_notebook_runs_in_jupyter(
    desk: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jupyter starts the kernel in the folder of the notebook, from wherever it was opened."""
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "jupyter"))
    (tmp_path / "out" / "demo").mkdir(parents=True)
    (tmp_path / "out" / "demo" / "tables").symlink_to(desk.folder)
    (tmp_path / "docs").mkdir()
    document = _notebook()
    cells = [cell for cell in document.cells if cell.cell_type == "code"]
    asked = nbformat.v4.new_code_cell(_ASKED)
    document.cells.append(asked)
    where = {"metadata": {"path": str(tmp_path / "docs")}}
    client = NotebookClient(document, timeout=_END_S, startup_timeout=_END_S, resources=where)
    client.execute()
    assert [cell.outputs for cell in cells if not cell.outputs] == [[]]  # of the first alone
    shown = [output for cell in cells for output in cell.outputs]
    assert {output.output_type for output in shown} == {"execute_result", "display_data"}, shown
    figures = [output.data[_PLOTLY] for output in shown if _PLOTLY in output.data]
    (said,) = asked.outputs
    boards, frames = json.loads(said.text)
    assert (len(figures), len(frames)) == (3, 3)
    points = [sum(map(_points, figure["data"])) for figure in figures]
    # All that the last board said came in one record: a mean and its band, of three sensors.
    assert points[0] == 3 * 3
    assert min(points[1:]) > 30
    fleet, lost, sensors = frames
    assert sorted(fleet["board"]) == boards
    assert lost["gaps"] == ["2"]
    assert "temperature" in set(sensors["sensor"])


def test_the_notebook_is_kept_without_outputs() -> None:
    for cell in _notebook().cells:
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


def test_who_gives_settings_to_a_session_that_is_there_is_told(spark: SparkSession) -> None:
    zone, master = str(spark.conf.get("spark.sql.session.timeZone")), spark.sparkContext.master
    with pytest.warns(UserWarning, match=rf"spark.master is {re.escape(master)}, not spark://x:1;"):
        motemq_pipeline.session({"spark.master": "spark://x:1", "spark.sql.session.timeZone": zone})
    with warnings.catch_warnings(action="error"):
        motemq_pipeline.session({"spark.sql.session.timeZone": zone})
        motemq_pipeline.session({"spark.master": "sc://127.0.0.1:15002"})
        motemq_pipeline.session()


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
