"""Tables as DataFrames, for notebooks and programs; Spark is imported when a function is called.

Every function takes a Spark session that sees the place ``tables``, a folder or a URI, and raises
``PipelineError`` if the table was never written, or by a MoteMQ whose columns were others.
"""

import os
from datetime import datetime
from typing import TYPE_CHECKING

from motemq_pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_Place = str | os.PathLike[str]


def table(
    spark: "SparkSession", tables: _Place, name: str, at: int | datetime | None = None
) -> "DataFrame":
    """Return the table ``name`` (docs/tables.md); ``at``: as it was at a version or a time."""
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


def rollup(spark: "SparkSession", tables: _Place, window: str = "minute") -> "DataFrame":
    """Return ``gold_rollup_minute`` or, with ``window`` "hour", ``gold_rollup_hour``."""
    if window not in ("minute", "hour"):
        raise PipelineError(f"a roll-up is by 'minute' or by 'hour', not by {window!r}")
    return table(spark, tables, f"gold_rollup_{window}")
