"""The rig's JSON lines (docs/rig-events.md) to tables."""

from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from motemq_pipeline.schemas import RIG_LINE_SCHEMAS, shaped

_FILES = {"rig_events": "events.jsonl", "rig_samples": "samples.jsonl"}
_CORRUPT = "_corrupt"
_CHECK = ["run_id", "board_id", "check"]
_ABOUT = ["rig", "model", "virtual", "fw_sha", "client_sha"]


def files(folder: Path | None, table: str) -> list[Path]:
    """Return the files below a rig's folder with lines of ``table``; none if it is not there yet.

    date=, rig= and run= folders are for people; the lines carry the same as columns.
    """
    return [] if folder is None else sorted(folder.rglob(_FILES[table]))


def read_lines(spark: SparkSession, folder: Path | None, table: str) -> DataFrame:
    """Return every line of ``files``, with a column ``_corrupt``: null for a good line, else it."""
    schema = f"{RIG_LINE_SCHEMAS[table]}, {_CORRUPT} string"
    paths = [str(file) for file in files(folder, table)]
    if paths:
        reader = spark.read.schema(schema).option("columnNameOfCorruptRecord", _CORRUPT)
        lines = reader.json(paths).withColumn("file", F.col("_metadata.file_name"))
    else:
        lines = spark.createDataFrame([], f"{schema}, file string")
    return lines.withColumn("at", F.try_to_timestamp(F.col("ts")))


def good(lines: DataFrame, table: str) -> DataFrame:
    """Return the rows of ``rig_events`` or ``rig_samples``."""
    return (
        lines.where(_is_good())
        .withColumn("ts", F.col("at"))
        .transform(shaped, table)
        .sort("run_id", "mono_ns")
    )


def bad(lines: DataFrame) -> DataFrame:
    """Return the ``silver_quarantine`` rows for lines that are not what docs/rig-events.md says."""
    refused = lines.where(~_is_good()).select(
        F.lit("rig").alias("source"),
        F.lit(None).cast("int").alias("partition"),
        F.lit(None).cast("long").alias("message_seq"),
        F.lit(None).cast("timestamp").alias("received_at"),
        F.col("file").alias("path"),
        F.coalesce(_CORRUPT, F.to_json(F.struct("run_id", "board_id", "ts")))
        .cast("binary")
        .alias("payload"),
        F.lit("the line is not of the rig's schema version 1").alias("reason"),
    )
    return shaped(refused, "silver_quarantine")


def _is_good() -> Column:
    return (
        F.col(_CORRUPT).isNull()
        & F.col("at").isNotNull()
        & F.coalesce(F.col("schema_version") == 1, F.lit(False))
    )


def checks(events: DataFrame) -> DataFrame:
    """Return ``gold_checks``: how each check ended, by its last attempt."""
    last = [
        F.max_by(name, F.struct("attempt", "mono_ns")).alias(name)
        for name in [*_ABOUT, "outcome", "duration_s", "message"]
    ]
    return (
        events.where(F.col("event") == "check_finished")
        .groupBy(*_CHECK)
        .agg(
            *last,
            F.max("attempt").alias("attempts"),
            F.max("ts").alias("finished_at"),
        )
        .transform(shaped, "gold_checks")
        .sort(*_CHECK)
    )


def rtt(samples: DataFrame) -> DataFrame:
    """Return ``gold_rtt``: percentiles of what each check measured in its last attempt."""
    measured = [*_CHECK, "metric", "unit"]
    attempts = Window.partitionBy(*measured).rowsBetween(
        Window.unboundedPreceding, Window.unboundedFollowing
    )
    return (
        samples.withColumn("last_attempt", F.max("attempt").over(attempts))
        .where(F.col("attempt") == F.col("last_attempt"))
        .where(F.col("value").isNotNull())
        .groupBy(*measured)
        .agg(
            *[F.max_by(name, "mono_ns").alias(name) for name in [*_ABOUT, "better", "outcome"]],
            F.max("ts").alias("finished_at"),
            F.count("*").alias("count"),
            F.min("value").alias("min"),
            F.percentile("value", 0.5).alias("p50"),
            F.percentile("value", 0.9).alias("p90"),
            F.percentile("value", 0.95).alias("p95"),
            F.percentile("value", 0.99).alias("p99"),
            F.max("value").alias("max"),
        )
        .transform(shaped, "gold_rtt")
        .sort(*measured)
    )
