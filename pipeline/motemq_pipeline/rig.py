"""The rig's JSON lines (docs/rig-events.md) to tables of a run, and of many runs side by side."""

from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

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


# The statistic of gold_regressions, docs/tables.md. tests/pipeline/test_tables_history.py measures
# how often it is wrong.
RUNS_BEFORE: Final = 20
FEWEST_BEFORE: Final = 7
SIGMAS: Final = 4.0
LEAST_CHANGE: Final = 0.1  # of the median: less is no news, however steady the runs before were
TAIL_COUNT: Final = 50  # samples, before their p99 is compared
_TO_SIGMA: Final = 1.4826  # of a MAD, for normal values
_PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def latency(samples: DataFrame) -> DataFrame:
    """Return ``gold_latency``: what passed checks measured, by board, firmware and client."""
    key = ["board_id", "model", "virtual", "fw_sha", "client_sha", "check", "metric", "unit"]
    return (
        samples.where((F.col("outcome") == "passed") & F.col("value").isNotNull())
        .groupBy(*key)
        .agg(
            F.countDistinct("run_id").alias("runs"),
            F.min("ts").alias("first_at"),
            F.max("ts").alias("last_at"),
            F.count("*").alias("count"),
            F.min("value").alias("min"),
            *[F.percentile("value", share).alias(name) for name, share in _PERCENTILES.items()],
            F.max("value").alias("max"),
        )
        .transform(shaped, "gold_latency")
        .sort(*key)
    )


def flakes(checks: DataFrame) -> DataFrame:
    """Return ``gold_flakes`` from ``gold_checks``.

    A run is flaky if its check passed only when tried again, or failed although the same firmware
    and client passed it in another run. Quarantined checks are counted, not judged; those that
    were not run are no part of it.
    """
    key = ["rig", "board_id", "check", "fw_sha", "client_sha"]
    passed, tried = F.col("outcome") == "passed", F.col("attempts") > 1
    judged = F.col("outcome").isin("passed", "failed", "error")
    return (
        checks.where(F.col("outcome") != "skipped")
        .groupBy(*key)
        .agg(
            *[F.max_by(name, "finished_at").alias(name) for name in ("model", "virtual")],
            F.count_if(judged).alias("runs"),
            F.count_if(passed).alias("passed"),
            F.count_if(passed & tried).alias("retried"),
            F.count_if(judged & ~passed).alias("failed"),
            F.count_if(F.col("outcome") == "quarantined").alias("quarantined"),
            F.max("finished_at").alias("last_at"),
        )
        .withColumn(
            "flaky",
            F.col("retried") + F.when(F.col("passed") > 0, F.col("failed")).otherwise(0),
        )
        .withColumn("flake_rate", F.try_divide("flaky", "runs"))
        .transform(shaped, "gold_flakes")
        .sort(*key)
    )


def regressions(rtt: DataFrame) -> DataFrame:
    """Return ``gold_regressions`` from ``gold_rtt``: every run beside the runs before it.

    ``value`` is ``worse`` (or ``better``) than the median of the up to ``RUNS_BEFORE`` passed runs
    before it if it is further from it than ``SIGMAS`` (1 + 4/n) standard deviations, estimated
    from the MAD of these n runs, and than ``LEAST_CHANGE``; with fewer than ``FEWEST_BEFORE`` runs
    before it is ``too few``.
    """
    series = ["rig", "board_id", "model", "virtual", "check", "metric", "unit", "statistic"]
    by_time = Window.partitionBy(*series).orderBy("finished_at", "run_id")
    before = F.collect_list("value").over(by_time.rowsBetween(-RUNS_BEFORE, -1))
    figures = F.array(
        F.struct(F.lit("p50").alias("statistic"), F.col("p50").alias("value")),
        F.struct(
            F.lit("p99").alias("statistic"),
            F.when(F.col("count") >= TAIL_COUNT, F.col("p99")).alias("value"),
        ),
    )
    off = F.col("value") - F.col("center")
    sigmas = F.lit(SIGMAS) * (1 + F.lit(4.0) / F.col("runs_before"))
    usual = F.greatest(
        sigmas * F.lit(_TO_SIGMA) * F.col("spread"), F.lit(LEAST_CHANGE) * F.abs("center")
    )
    is_worse = F.when(F.col("better") == "higher", off < 0).otherwise(off > 0)
    return (
        rtt.where(F.col("outcome") == "passed")
        .select("*", F.inline(figures))
        .where(F.col("value").isNotNull())
        .withColumn("changed", _changed(by_time))
        .withColumn("before", F.array_sort(before))
        .withColumn("runs_before", F.size("before"))
        .withColumn("center", _median(F.col("before")))
        .withColumn("spread", _median(F.array_sort(_distances("before", "center"))))
        .withColumn("change", F.try_divide(off, F.abs("center")))
        .withColumn(
            "verdict",
            F.when(F.col("runs_before") < FEWEST_BEFORE, "too few")
            .when(F.abs(off) <= usual, "usual")
            .when(is_worse, "worse")
            .otherwise("better"),
        )
        .transform(shaped, "gold_regressions")
        .sort(*series, "finished_at", "run_id")
    )


def _changed(by_time: WindowSpec) -> Column:
    """Return what is not as in the run before: the first suspects."""
    parts = []
    for column, word in (("fw_sha", "firmware"), ("client_sha", "client")):
        before = F.lag(column).over(by_time)
        parts.append(F.when(before.isNotNull() & (before != F.col(column)), F.lit(word)))
    return F.concat_ws(", ", *parts)


def _median(values: Column) -> Column:
    """Return the median of a sorted array, null of an empty one."""
    size = F.size(values)
    low, high = F.floor((size + 1) / 2).cast("int"), F.floor(size / 2).cast("int") + 1
    both = F.try_element_at(values, low) + F.try_element_at(values, high)
    return F.when(size > 0, both / F.lit(2.0))


def _distances(values: str, center: str) -> Column:
    return F.transform(values, lambda value: F.abs(value - F.col(center)))
