"""All tables in their order, once: ``motemq pipeline backfill``."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from motemq_pipeline import rig, silver
from motemq_pipeline.decoding_arrow import silver_rows
from motemq_pipeline.delta import Table
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.parquet_files import (
    FOUND,
    File,
    Target,
    TargetFiles,
    collected,
    finished,
    writing,
)
from motemq_pipeline.refresh import FROM_RIG, Refresh
from motemq_pipeline.registry import load_registry
from motemq_pipeline.rules import Registry, Rule
from motemq_pipeline.storage import Storage
from pyspark_motemq.options import Options
from pyspark_motemq.source import JournalReader
from pyspark_motemq.tasks import read_task

_TARGETS: Final = (Target("bronze_messages"), *silver.TARGETS)
_QUARANTINE: Final = silver.TARGETS[-1]


@dataclass(frozen=True, slots=True)
class Sources:
    """What the tables are made from."""

    journal: Path
    rig: Path
    rules: Registry


@dataclass(frozen=True, slots=True)
class Written:
    """A table that was written: its rows, and the seconds it took.

    Tables of one job have its seconds together: each but the last took none.
    """

    table: str
    rows: int
    seconds: float


def write_tables(
    spark: SparkSession, sources: Sources, place: Storage, progress: Callable[[Written], None]
) -> None:
    """Write every table of ``schemas.TABLES`` into ``place``; ``progress`` is told of each.

    A second run over the same files gives the same rows. Whoever calls has had the place prove
    itself (``Storage.prove``), which needs no Spark. Raises what Spark raises, and
    ``PipelineError``; the tables written before stay, later ones are those of the previous run.
    """
    _refuse_fed(place)
    began = time.monotonic()
    files = _read_journal(spark, sources, place)
    for name in FROM_RIG[:2]:
        if rig.files(sources.rig, name):
            bad = rig.bad(rig.read_lines(spark, sources.rig, name))
            (found,) = collected(writing(bad, place, [_QUARANTINE]), place, [_QUARANTINE])
            files[-1] += found
    for target, each in zip(_TARGETS, files, strict=True):
        Table(place, target.table).replace(each)
        seconds = time.monotonic() - began if target is _QUARANTINE else 0.0
        progress(Written(target.table, sum(file.rows for file in each), seconds))
    refresh = Refresh(spark, place, sources.rules, sources.rig)
    refresh.everything(lambda table, rows, seconds: progress(Written(table, rows, seconds)))
    Table(place, "alerts").create()


def _read_journal(spark: SparkSession, sources: Sources, place: Storage) -> list[list[File]]:
    """Write the files of ``_TARGETS`` in one job; return them."""
    spark.dataSource.register(_JournalTables)
    written = (
        spark.read.format(_JournalTables.name())
        .option("journal", str(sources.journal))
        .option("registry", str(sources.rules.file))
        .option("tables", place.uri)
        .option("storage", json.dumps(dict(place.given)))
        .load()
    )
    return collected(written, place, _TARGETS)


class _JournalTables(DataSource):
    """Files of ``_TARGETS`` that tasks write as they read a journal; rows are those of ``FOUND``.

    Messages go from the journal to Parquet in the Python of one task. Through Spark's own rows they
    would be copied twice for bronze, and twice again for silver.
    """

    @classmethod
    def name(cls) -> str:
        return "motemq_journal_tables"

    def schema(self) -> str:
        return FOUND

    def reader(self, schema: StructType) -> DataSourceReader:
        place = Storage.at(self.options["tables"], json.loads(self.options["storage"]))
        rules = load_registry(Path(self.options["registry"]))
        return _TablesWriter(self.options["journal"], rules.rules, place)


class _TablesWriter(DataSourceReader):
    def __init__(self, journal: str, rules: tuple[Rule, ...], place: Storage) -> None:
        self._journal = journal
        self._rules = rules
        self._place = place

    def partitions(self) -> list[InputPartition]:
        return JournalReader(Options.read({"path": self._journal})).partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        bronze, *others = writers = [TargetFiles(self._place, target) for target in _TARGETS]

        def messages() -> Iterator[pa.RecordBatch]:
            for batch in read_task(partition):
                bronze.add(batch)
                yield batch

        for rows in silver_rows(self._rules)(messages()):
            for each in others:
                each.add(rows)
        yield finished(writers)


def _refuse_fed(place: Storage) -> None:
    """Refuse tables that a continuous run feeds: it would go on in the middle of others."""
    bronze = Table(place, "bronze_messages")
    if bronze.exists() and bronze.owner():
        raise PipelineError(
            f"the tables in {place.uri} are those of 'motemq pipeline run'; choose another place"
        )
