"""All tables in their order."""

import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from motemq_pipeline import adding, rig, silver, store
from motemq_pipeline.derived import FROM_RIG as OF_RIG
from motemq_pipeline.derived import FROM_SILVER, derived
from motemq_pipeline.rules import Registry
from motemq_pipeline.schemas import TABLES, shaped

__all__ = ["ABOUT", "FROM_RIG", "FROM_SILVER", "Sources", "Written", "write_tables"]

ABOUT = "about.json"  # beside the tables: what made them, and when
FROM_RIG = ("rig_events", "rig_samples", *OF_RIG)  # in this order
Builder = Callable[[], DataFrame]


@dataclass(frozen=True, slots=True)
class Sources:
    """What the tables are made from."""

    journal: Path
    rig: Path
    rules: Registry


@dataclass(frozen=True, slots=True)
class Written:
    """A table that was written: its rows, and the seconds it took."""

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
    for name, rows in all_builders(spark, sources, tables).items():
        started = time.monotonic()
        written = adding.write(name, rows(), tables)
        progress(Written(name, written, time.monotonic() - started))
    write_about(spark, tables)


def all_builders(spark: SparkSession, sources: Sources, tables: Path) -> dict[str, Builder]:
    """Return what makes each table, in the order of ``schemas.TABLES``: they need each other."""
    found = {
        **_from_sources(spark, sources, tables),
        **builders(spark, tables, sources.rules, rig_folder=sources.rig),
    }
    return {name: found[name] for name in TABLES}


def _from_sources(spark: SparkSession, sources: Sources, tables: Path) -> dict[str, Builder]:
    """Return what makes each table that a continuous run has from its streams."""

    def bronze() -> DataFrame:
        messages = spark.read.format("motemq").option("path", str(sources.journal)).load()
        return shaped(messages, "bronze_messages")

    def decoded() -> DataFrame:
        return silver.decoded(store.read(spark, "bronze_messages", tables), sources.rules)

    def quarantine() -> DataFrame:
        refused = silver.quarantine(decoded())
        for name in ("rig_events", "rig_samples"):
            refused = refused.unionByName(rig.bad(rig.read_lines(spark, sources.rig, name)))
        in_order = refused.sort("source", "partition", "message_seq", "path", "payload")
        return shaped(in_order, "silver_quarantine").coalesce(1)

    def readings() -> DataFrame:
        rows = silver.telemetry(decoded())
        return rows.sort("board", "connection", "partition", "message_seq")

    return {
        "bronze_messages": bronze,
        "silver_telemetry": readings,
        "silver_quarantine": quarantine,
    }


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
