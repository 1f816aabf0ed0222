"""The tables as views for Spark SQL, and notebooks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from motemq_pipeline import store
from motemq_pipeline.errors import PipelineError


def register(spark: SparkSession, tables: Path) -> list[str]:
    """Make every table that is in the folder a temporary view of its name; return the names.

    A view is the table at this moment. Raises ``PipelineError`` if there is none.
    """
    present = [table for table in store.TABLES if (tables / table).is_dir()]
    if not present:
        raise PipelineError(
            f"there are no tables in {tables}; 'motemq pipeline run' and "
            "'motemq pipeline backfill' write them"
        )
    for table in present:
        store.read(spark, table, tables).createOrReplaceTempView(table)
    return present


def answer(
    spark: SparkSession, sql: str, tables: Path, limit: int
) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
    """Return the names of the columns, and at most ``limit`` rows (0: all) as they come.

    With a limit, one row more follows if there are more. Raises what Spark raises.
    """
    register(spark, tables)
    found = spark.sql(sql)
    if limit:
        found = found.limit(limit + 1)
    rows = (tuple(row) for row in found.toLocalIterator())
    return found.columns, rows
