"""Tables as Parquet folders ``TABLES/NAME``, each replaced as a whole."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from motemq_pipeline.errors import PipelineError
from motemq_pipeline.schemas import TABLES


def write(table: str, rows: DataFrame, tables: Path) -> int:
    """Replace the table and return its number of rows.

    Readers see the old table or the new one, never a part; between the two renames, a few
    microseconds, none. A run that is killed leaves the old one.
    """
    final = tables / table
    fresh, previous = tables / f".{table}.new", tables / f".{table}.previous"
    if previous.exists() and not final.exists():  # killed between the renames
        previous.rename(final)
    for leftover in (fresh, previous):
        shutil.rmtree(leftover, ignore_errors=True)
    rows.write.mode("overwrite").parquet(str(fresh))
    if final.exists():
        final.rename(previous)
    fresh.rename(final)
    shutil.rmtree(previous, ignore_errors=True)
    return count(table, tables)


def read(spark: SparkSession, table: str, tables: Path) -> DataFrame:
    """Return a table as Spark reads it, with the columns of ``schemas``."""
    return spark.read.schema(TABLES[table]).parquet(str(tables / table))


def count(table: str, tables: Path) -> int:
    """Return the number of rows of a table from its Parquet footers; no Spark needed.

    Raises ``PipelineError`` if the table is not there.
    """
    files = sorted((tables / table).glob("*.parquet"))
    if not files:
        raise PipelineError(
            f"there is no table {table} in {tables}; "
            "'motemq pipeline run --journal DIR --rig DIR --tables DIR' writes it"
        )
    return sum(pq.ParquetFile(file).metadata.num_rows for file in files)
