"""All tables in their order."""

import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from motemq_pipeline import adding, rig, silver, store
from motemq_pipeline.adding import Target
from motemq_pipeline.derived import FROM_RIG as OF_RIG
from motemq_pipeline.derived import FROM_SILVER, derived
from motemq_pipeline.rules import Registry
from motemq_pipeline.schemas import TABLES, shaped

__all__ = ["ABOUT", "FROM_RIG", "FROM_SILVER", "Sources", "Written", "write_tables"]

ABOUT = "about.json"  # beside the tables: what made them, and when
FROM_RIG = ("rig_events", "rig_samples", *OF_RIG)  # in this order
Builder = Callable[[], DataFrame]
Job = tuple[Sequence[Target], Builder]  # what one job of Spark writes, and what makes its rows
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
    spark: SparkSession, sources: Sources, tables: Path, progress: Callable[[Written], None]
) -> None:
    """Write every table of ``schemas.TABLES`` into ``tables``; ``progress`` is told of each.

    A second run over the same files gives the same rows. Raises what Spark raises; the tables
    written before stay, later ones are those of the previous run.
    """
    tables.mkdir(parents=True, exist_ok=True)
    for targets, rows in jobs(spark, sources, tables):
        started = time.monotonic()
        written = adding.write_each(targets, rows(), tables)
        for target, count in zip(targets, written, strict=True):
            last = target is targets[-1]
            seconds = time.monotonic() - started if last else 0.0
            progress(Written(target.table, count, seconds))
    write_about(spark, tables)


def jobs(spark: SparkSession, sources: Sources, tables: Path) -> list[Job]:
    """Return what makes the tables of ``schemas.TABLES``, in an order in which they can be made."""

    def bronze() -> DataFrame:
        messages = spark.read.format("motemq").option("path", str(sources.journal)).load()
        return shaped(messages, "bronze_messages")

    def readings() -> DataFrame:
        messages = silver.decoded(store.read(spark, "bronze_messages", tables), sources.rules)
        rows = silver.telemetry_and_quarantine(messages)
        for name in ("rig_events", "rig_samples"):
            bad = rig.bad(rig.read_lines(spark, sources.rig, name))
            rows = rows.unionByName(bad, allowMissingColumns=True)
        # Within what a task has, which is a piece of the journal's order. An order of all rows
        # would be looked for in a sample, and to take that is to decode everything twice.
        return rows.sortWithinPartitions(*_ORDER)

    made = builders(spark, tables, sources.rules, rig_folder=sources.rig)
    return [
        ((Target("bronze_messages"),), bronze),
        (silver.TARGETS, readings),
        *(((Target(name),), made[name]) for name in TABLES if name in made),
    ]


def builders(
    spark: SparkSession, tables: Path, rules: Registry, rig_folder: Path | None
) -> dict[str, Builder]:
    """Return what makes each of the tables ``FROM_RIG`` and ``FROM_SILVER``."""

    def table(name: str) -> DataFrame:
        return store.read(spark, name, tables)

    def lines(name: str) -> DataFrame:
        return rig.good(rig.read_lines(spark, rig_folder or Path(), name), name)

    return {
        "rig_events": lambda: lines("rig_events"),
        "rig_samples": lambda: lines("rig_samples"),
        **derived(table, rules),
    }


def write_about(spark: SparkSession, tables: Path) -> None:
    """Say beside the tables what made them, and when."""
    fresh = tables / f".{ABOUT}.new"
    fresh.write_text(json.dumps(_about(spark), indent=1) + "\n")
    os.replace(fresh, tables / ABOUT)


def _about(spark: SparkSession) -> dict[str, str]:
    property_of = "java_method('java.lang.System', 'getProperty', 'java.version')"
    (java,) = spark.sql(f"SELECT {property_of}").collect()[0]
    return {
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "motemq": version("motemq"),
        "spark": spark.version,
        "java": str(java),
        "python": platform.python_version(),
        "pyarrow": version("pyarrow"),
        "machine": f"{platform.system()} {platform.machine()}",
    }
