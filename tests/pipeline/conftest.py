"""One Spark for all, and the tables of the desk, written once."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from motemq_pipeline import rollups, windows
from motemq_pipeline.job import Sources, Written, write_tables
from motemq_pipeline.registry import BUILT_IN, load_registry
from motemq_pipeline.schemas import TABLES
from motemq_pipeline.sessions import spark_session
from motemq_pipeline.storage import Storage
from tests.pipeline.desk import write_journal, write_rig


@dataclass(frozen=True)
class Tables:
    """Tables, what they were made from, and what was said while they were."""

    sources: Sources
    folder: Path
    progress: list[Written]

    @property
    def place(self) -> Storage:
        return Storage.at(self.folder)

    def rows(self, table: str) -> list[dict[str, Any]]:
        return rows_of(self.folder, table)


def rows_of(tables: Path | str, table: str) -> list[dict[str, Any]]:
    """Return a table as a program that knows nothing of us reads it; in order of its columns."""
    rows: list[dict[str, Any]] = DeltaTable(f"{tables}/{table}").to_pyarrow_table().to_pylist()

    def key(row: dict[str, Any]) -> tuple[tuple[bool, Any], ...]:
        return tuple((value is None, 0 if value is None else value) for value in row.values())

    return sorted(rows, key=key)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark") / "spark.log") as session:
        yield session


@pytest.fixture(scope="session")
def desk(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    root = tmp_path_factory.mktemp("desk")
    write_journal(root / "journal")
    write_rig(root / "rig")
    sources = Sources(root / "journal", root / "rig", load_registry(BUILT_IN))
    progress: list[Written] = []
    write_tables(spark, sources, Storage.at(root / "tables"), progress.append)
    return Tables(sources, root / "tables", progress)


def rolled_up(silver: DataFrame, table: str) -> DataFrame:
    """Return a roll-up of readings, made as executors make it."""
    readings = rollups.together(rollups.readings(silver))

    def made(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for found in windows.rolled_up(batches, [table], is_counted=False, settled_us=0):
            yield found.rows

    return readings.mapInArrow(made, TABLES[table].removesuffix(", date date"))
