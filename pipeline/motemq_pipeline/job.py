"""All tables in their order."""

import json
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from motemq_pipeline import rig, silver, store
from motemq_pipeline.derived import derived
from motemq_pipeline.rules import Registry
from motemq_pipeline.schemas import shaped

ABOUT = "about.json"  # beside the tables: what made them, and when


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
    for name, rows in _builders(spark, sources, tables).items():
        started = time.monotonic()
        written = store.write(name, rows(), tables)
        progress(Written(name, written, time.monotonic() - started))
    (tables / ABOUT).write_text(json.dumps(_about(spark), indent=1) + "\n")


def _builders(
    spark: SparkSession, sources: Sources, tables: Path
) -> dict[str, Callable[[], DataFrame]]:
    """Return what makes each table, in the order in which they need each other."""

    def table(name: str) -> DataFrame:
        return store.read(spark, name, tables)

    def lines(name: str) -> DataFrame:
        return rig.read_lines(spark, sources.rig, name)

    def bronze() -> DataFrame:
        messages = spark.read.format("motemq").option("path", str(sources.journal)).load()
        return shaped(messages, "bronze_messages")

    def quarantine() -> DataFrame:
        refused = silver.quarantine(silver.decoded(table("bronze_messages"), sources.rules))
        refused = refused.unionByName(rig.bad(lines("rig_events")))
        refused = refused.unionByName(rig.bad(lines("rig_samples")))
        in_order = refused.sort("source", "partition", "message_seq", "path", "payload")
        return shaped(in_order, "silver_quarantine").coalesce(1)

    def readings() -> DataFrame:
        messages = silver.decoded(table("bronze_messages"), sources.rules)
        rows = silver.telemetry(messages)
        return rows.sort("board", "connection", "partition", "message_seq")

    return {
        "bronze_messages": bronze,
        "silver_telemetry": readings,
        "rig_events": lambda: rig.good(lines("rig_events"), "rig_events"),
        "rig_samples": lambda: rig.good(lines("rig_samples"), "rig_samples"),
        "silver_quarantine": quarantine,
        **derived(table, sources.rules),
    }


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
