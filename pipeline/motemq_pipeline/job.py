"""All tables in their order, once: ``motemq pipeline backfill``."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from motemq_pipeline import rig, silver
from motemq_pipeline.delta import Table
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.parquet_files import Target, collected, writing
from motemq_pipeline.refresh import Refresh
from motemq_pipeline.rules import Registry
from motemq_pipeline.schemas import shaped
from motemq_pipeline.storage import Storage

_ORDER = ("board", "connection", "partition", "message_seq", "path", "payload")


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

    A second run over the same files gives the same rows. Raises what Spark raises, and
    ``PipelineError``; the tables written before stay, later ones are those of the previous run.
    """
    place.prove()
    _refuse_fed(place)
    messages = spark.read.format("motemq").option("path", str(sources.journal)).load()
    _write(place, [Target("bronze_messages")], shaped(messages, "bronze_messages"), progress)
    bronze = Table(place, "bronze_messages").read(spark)
    rows = silver.decoded(bronze, sources.rules)
    for name in ("rig_events", "rig_samples"):
        bad = rig.bad(rig.read_lines(spark, sources.rig, name))
        rows = rows.unionByName(bad, allowMissingColumns=True)
    # Within what a task has, which is a piece of the journal's order. An order of all rows
    # would be looked for in a sample, and to take that is to decode everything twice.
    _write(place, silver.TARGETS, rows.sortWithinPartitions(*_ORDER), progress)
    refresh = Refresh(spark, place, sources.rules, sources.rig)
    refresh.everything(lambda table, rows, seconds: progress(Written(table, rows, seconds)))
    Table(place, "alerts").create()


def _write(
    place: Storage,
    targets: Sequence[Target],
    rows: DataFrame,
    progress: Callable[[Written], None],
) -> None:
    started = time.monotonic()
    for target, files in zip(
        targets, collected(writing(rows, place, targets), place, targets), strict=True
    ):
        Table(place, target.table).replace(files)
        seconds = time.monotonic() - started if target is targets[-1] else 0.0
        progress(Written(target.table, sum(file.rows for file in files), seconds))


def _refuse_fed(place: Storage) -> None:
    """Refuse tables that a continuous run feeds: it would go on in the middle of others."""
    bronze = Table(place, "bronze_messages")
    if bronze.exists() and bronze.owner():
        raise PipelineError(
            f"the tables in {place.uri} are those of 'motemq pipeline run'; choose another place"
        )
