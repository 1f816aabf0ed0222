"""Tables as DataFrames, for notebooks and programs; Spark is imported when a function is called.

``session`` gives a Spark session, and ``plot`` needs none. All others take one that sees the place
``tables``, a folder or a URI, and raise ``PipelineError`` if the table was never written, or by a
MoteMQ whose columns were others.
"""

import atexit
import contextlib
import os
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from motemq_pipeline.errors import PipelineError

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from pyspark.sql import DataFrame, SparkSession

_Place = str | os.PathLike[str]


_MADE = contextlib.ExitStack()  # the session that was made here


def session(settings: Mapping[str, str] | None = None) -> "SparkSession":
    """Return the Spark session there is; without one, start a Spark on this machine.

    That one ends with the program, or by its ``stop()``. ``settings`` are Spark's for a session
    that is started: ``{"spark.master": "spark://HOST:7077"}``, or ``sc://HOST`` for a Connect
    server; the one there is keeps its own, and a warning says which are others. Raises
    ``PipelineError`` if it cannot be started.
    """
    from motemq_pipeline.spark_release import check_release

    check_release()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from motemq_pipeline.failures import spark_log, without_json
    from motemq_pipeline.sessions import any_session

    found = SparkSession.getActiveSession()
    if found is None and SparkContext._active_spark_context is not None:
        found = SparkSession.builder.getOrCreate()  # active is one in the thread that made it
    if found is not None:
        _warn_of_others(found, settings or {})
        return found
    _MADE.close()  # what is left of one that was stopped
    with contextlib.ExitStack() as starting:
        log = starting.enter_context(spark_log())
        found = starting.enter_context(any_session(log, brief=False, settings=settings))
        starting.enter_context(without_json())
        _MADE.push(starting.pop_all())
    return found


atexit.register(_MADE.close)


def _warn_of_others(found: "SparkSession", settings: Mapping[str, str]) -> None:
    others = []
    for name, wanted in settings.items():
        has = found.conf.get(name, None)
        # The master of a Connect server is another address than the server's.
        if has != wanted and not wanted.startswith("sc://"):
            others.append(f"{name} is {has}, not {wanted}")
    if others:
        warnings.warn(
            f"the Spark session there is keeps its settings: {'; '.join(others)}; stop() it first "
            "for one with others",
            stacklevel=3,
        )


def read(
    path: _Place, at: int | datetime | None = None, spark: "SparkSession | None" = None
) -> "DataFrame":
    """Return the table at ``path`` (``TABLES/NAME``) as ``table`` does; without ``spark``, by
    ``session()``."""
    place, _, name = os.fspath(path).rstrip("/").rpartition("/")
    return table(spark or session(), place or ".", name, at)


def table(
    spark: "SparkSession", tables: _Place, name: str, at: int | datetime | None = None
) -> "DataFrame":
    """Return the table ``name`` (docs/tables.md); ``at``: as it was at a version or a time.

    A time without a zone is UTC.
    """
    from motemq_pipeline.delta import Table
    from motemq_pipeline.storage import Storage

    found = Table(Storage.at(tables), name)
    found.check_version()
    return found.read(spark, at=at)


def telemetry(spark: "SparkSession", tables: _Place, copies: bool = False) -> "DataFrame":
    """Return the readings (``silver_telemetry``), each once; with ``copies`` every arrival."""
    from motemq_pipeline import silver

    readings = table(spark, tables, "silver_telemetry")
    return readings if copies else silver.distinct(readings)


def health(spark: "SparkSession", tables: _Place) -> "DataFrame":
    """Return ``gold_fleet``: a row a board, who is silent, what was lost, what runs on it."""
    return table(spark, tables, "gold_fleet")


def fleet_alerts(spark: "SparkSession", tables: _Place, open_only: bool = False) -> "DataFrame":
    """Return the alerts, a row each, by their last word; ``open_only``: those not yet cleared."""
    from pyspark.sql import functions as F

    changes = table(spark, tables, "alerts")
    # A change that cleared an alert has its end, the one that raised it has none.
    latest = [
        F.max_by(name, F.coalesce("cleared_at", "raised_at")).alias(name)
        for name in changes.columns
        if name not in ("alert", "cleared_at", "key", "date")
    ]
    found = changes.groupBy("alert").agg(*latest, F.max("cleared_at").alias("cleared_at"))
    return found.where("cleared_at is null") if open_only else found


def rollup(spark: "SparkSession", tables: _Place, window: str = "minute") -> "DataFrame":
    """Return ``gold_rollup_minute`` or, with ``window`` "hour", ``gold_rollup_hour``."""
    if window not in ("minute", "hour"):
        raise PipelineError(f"a roll-up is by 'minute' or by 'hour', not by {window!r}")
    return table(spark, tables, f"gold_rollup_{window}")


def plot(
    tables: _Place, board: str, since: datetime | None = None, until: datetime | None = None
) -> "go.Figure":
    """Return a Plotly figure of a board's sensors and alerts, as the live page has it.

    Without ``since`` it begins where the board's readings do, without ``until`` it ends where they
    do; a time without a zone is UTC. Raises ``PipelineError``, also for a board of which the tables
    have no reading.
    """
    from motemq_pipeline.live.figure import figure
    from motemq_pipeline.live.series import boards, ends, excerpt
    from motemq_pipeline.storage import Storage

    place = Storage.at(tables)
    since, until = (
        at.replace(tzinfo=UTC) if at is not None and at.tzinfo is None else at
        for at in (since, until)
    )
    if since is None or until is None:
        found = ends(place, board)
        if found is None:
            there = ", ".join(one.name for one in boards(place)) or "none"
            raise PipelineError(f"there are no readings of a board {board!r}; there are: {there}")
        since, until = since or found[0], until or found[1]
    if since > until:
        raise PipelineError(f"a plot from {since} until {until} ends before it begins")
    return figure(excerpt(place, board, since, until))
