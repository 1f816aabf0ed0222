"""Tables as DataFrames, for notebooks and programs; Spark is imported when a function is called.

Every function takes a Spark session that sees the folder ``tables`` and raises ``PipelineError`` if
the table was never written, or by a MoteMQ whose columns were others.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from motemq_pipeline.errors import PipelineError
from motemq_pipeline.schemas import TABLES, VERSIONS, columns, version_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_Folder = str | os.PathLike[str]


def table(spark: "SparkSession", tables: _Folder, name: str) -> "DataFrame":
    """Return the table ``name`` (docs/tables.md)."""
    from motemq_pipeline import store

    if name not in TABLES:
        raise PipelineError(f"there is no table {name!r}; there are {', '.join(TABLES)}")
    folder = Path(tables).absolute()
    if not (folder / name).is_dir():
        raise PipelineError(
            f"there is no table {name} in {folder}; 'motemq pipeline' writes it (docs/pipeline.md)"
        )
    files = sorted((folder / name).glob("*.parquet"))
    for file in {*files[:1], *files[-1:]}:
        _check(file, name)
    return store.read(spark, name, folder)


def telemetry(spark: "SparkSession", tables: _Folder, copies: bool = False) -> "DataFrame":
    """Return the readings (``silver_telemetry``), each once; with ``copies`` every arrival."""
    from motemq_pipeline import silver

    readings = table(spark, tables, "silver_telemetry")
    return readings if copies else silver.distinct(readings)


def health(spark: "SparkSession", tables: _Folder) -> "DataFrame":
    """Return ``gold_fleet``: a row a board, who is silent, what was lost, what runs on it."""
    return table(spark, tables, "gold_fleet")


def rollup(spark: "SparkSession", tables: _Folder, window: str = "minute") -> "DataFrame":
    """Return ``gold_rollup_minute`` or, with ``window`` "hour", ``gold_rollup_hour``."""
    if window not in ("minute", "hour"):
        raise PipelineError(f"a roll-up is by 'minute' or by 'hour', not by {window!r}")
    return table(spark, tables, f"gold_rollup_{window}")


def _check(file: Path, name: str) -> None:
    import pyarrow.parquet as pq

    version = version_of(file)
    missing = set(columns(name)) - set(pq.read_schema(file).names)
    if missing or version not in (None, VERSIONS[name]):
        found = f"version {version}" if version else f"no column {', '.join(sorted(missing))}"
        raise PipelineError(
            f"the table {name} in {file.parent.parent} has {found}, this MoteMQ reads version "
            f"{VERSIONS[name]}; make the tables again from the journal"
        )
