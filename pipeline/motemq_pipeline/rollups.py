"""Readings to windows: minutes, hours, and the simulated time of boards.

A row depends on the readings of its hour of ``event_time`` alone, so only hours in which something
new happened are made again. Percentiles are from KLL sketches (rank error below 1 %), which merge:
hours are made of minutes, and ``sketch`` of any rows gives the percentiles of all of them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from motemq_pipeline.schemas import shaped

HOUR: Final = timedelta(hours=1)
WINDOW_MS: Final = 10_000  # of simulated time
SKETCH_K: Final = 400  # of a KLL sketch: 0.6 % of rank, single-sided, at 99 % confidence
_MINUTE_S, _HOUR_S = 60, 3600
_SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
# More hours than that are asked for by their bounds only: a condition of a million values is none.
_LISTED_HOURS: Final = 500
IS_READING: Final = "last is not true"  # and no message that ends a stream
_BY_HASH: Final = "spark.sql.execution.useObjectHashAggregateExec"
_WINDOW: Final = ["board", "sensor", "unit", "window_start"]
_SIMULATED: Final = ["hour", "board", "connection", "sensor", "unit", "window_start_ms"]


def by_minute(silver: DataFrame) -> DataFrame:
    """Return ``gold_rollup_minute``.

    A reading that came more than once counts once an hour. ``gaps`` are the numbers missing between
    a reading and the one before it in its stream and hour, so they add up over sensors and minutes.
    """
    readings = (
        _once_an_hour(silver)
        .withColumn("missing", F.greatest(F.col("seq") - F.col("before.seq") - 1, F.lit(0)))
        # The first reading of a stream's hour has nothing missing before it.
        .withColumn("missing", F.when(F.col("seq").isNotNull(), F.coalesce("missing", F.lit(0))))
        .withColumn("window_start", _start(_MINUTE_S))
    )
    found = readings.groupBy("hour", *_WINDOW).agg(
        F.count("*").alias("count"),
        F.avg("value").alias("mean"),
        F.min("value").alias("min"),
        F.max("value").alias("max"),
        F.sum("missing").alias("gaps"),
        F.kll_sketch_agg_double("value", F.lit(SKETCH_K)).alias("sketch"),
    )
    return _finished(found, "gold_rollup_minute", _MINUTE_S)


def by_hour(minutes: DataFrame) -> DataFrame:
    """Return ``gold_rollup_hour`` from rows of ``gold_rollup_minute``, of whole hours."""
    hour = F.date_trunc("hour", "window_start")
    found = (
        minutes.withColumn("window_start", hour)
        .repartitionByRange("window_start", "board")
        .groupBy(*_WINDOW)
        .agg(
            (F.sum(F.col("mean") * F.col("count")) / F.sum("count")).alias("mean"),
            F.sum("count").alias("count"),
            F.min("min").alias("min"),
            F.max("max").alias("max"),
            F.sum("gaps").alias("gaps"),
            F.kll_merge_agg_double("sketch", F.lit(SKETCH_K)).alias("sketch"),
        )
    )
    return _finished(found, "gold_rollup_hour", _HOUR_S)


def by_simulated_time(silver: DataFrame) -> DataFrame:
    """Return ``gold_sensor_rollup``: each reading counts once an hour, however often it arrived."""
    window_ms = (F.floor(F.col("t_ms") / WINDOW_MS) * WINDOW_MS).cast("long")
    found = (
        _once_an_hour(silver)
        .withColumn("window_start_ms", window_ms)
        .groupBy(*_SIMULATED)
        .agg(
            F.count("*").alias("count"),
            F.avg("value").alias("mean"),
            F.min("value").alias("min"),
            F.max("value").alias("max"),
            F.kll_sketch_agg_double("value", F.lit(SKETCH_K)).alias("sketch"),
        )
    )
    found = shaped(_with_percentiles(found), "gold_sensor_rollup")
    return found.sortWithinPartitions(*_SIMULATED)


def fullest(rows: DataFrame, table: str) -> DataFrame:
    """Return of several rows for one window the one that is made of the most readings."""
    key = _SIMULATED if table == "gold_sensor_rollup" else _WINDOW
    most = Window.partitionBy(*key).orderBy(F.desc("count"))
    found = rows.withColumn("rank", F.row_number().over(most)).where("rank = 1").drop("rank")
    return found.sortWithinPartitions(*key)


@contextmanager
def by_sorting(spark: SparkSession) -> Iterator[None]:
    """Let Spark aggregate what is planned in the block by sorting, not by hashing.

    Where groups are nearly as many as rows (``gold_sensor_rollup``), Spark gives up hashing after
    128 of them and sorts after all; the result is in no order, so it is sorted once more.
    """
    before = spark.conf.get(_BY_HASH, "true") or "true"
    spark.conf.set(_BY_HASH, "false")
    try:
        yield
    finally:
        spark.conf.set(_BY_HASH, before)


def _once_an_hour(silver: DataFrame) -> DataFrame:
    """Return the readings with their ``hour``, each once a stream and hour: as it came first.

    ``before`` is the one before it, by number.
    """
    by_number = Window.partitionBy("board", "connection", "hour").orderBy(
        "seq", "sensor", "partition", "message_seq"
    )
    return (
        silver.where(IS_READING)
        .withColumn("hour", _start(_HOUR_S))
        .transform(_by_hour_and_board)
        .withColumn("before", F.lag(F.struct("seq", "sensor")).over(by_number))
        .where(F.col("seq").isNull() | ~F.struct("seq", "sensor").eqNullSafe(F.col("before")))
    )


def _by_hour_and_board(readings: DataFrame) -> DataFrame:
    """Return readings in the one shuffle for all that follows: hours of a board stay together.

    By ranges, so that files have few hours each. To sort the result instead would make all of it
    twice, because Spark looks for ranges in a sample.
    """
    return readings.repartitionByRange("hour", "board")


def touched_hours(readings: DataFrame) -> list[datetime]:
    """Return the hours (UTC, their beginnings) in which ``readings`` happened, in order."""
    hours = readings.select(F.unix_seconds(_start(_HOUR_S)).alias("hour")).distinct().collect()
    return sorted(datetime.fromtimestamp(row["hour"], UTC) for row in hours)


def within(time: Column, hours: Sequence[datetime]) -> Column:
    """Return whether ``time`` is in one of ``hours``; of very many, in their whole span."""
    between = (time >= F.lit(min(hours))) & (time < F.lit(max(hours) + HOUR))
    if len(hours) > _LISTED_HOURS:
        return between
    return between & F.date_trunc("hour", time).isin([F.lit(hour) for hour in hours])


def all_between(hours: Sequence[datetime]) -> list[datetime]:
    """Return the hours that ``within`` means by ``hours``."""
    if len(hours) <= _LISTED_HOURS:
        return list(hours)
    count = (max(hours) - min(hours)) // HOUR + 1
    return [min(hours) + at * HOUR for at in range(count)]


def _finished(rows: DataFrame, table: str, seconds: int) -> DataFrame:
    rate = F.col("count") / F.lit(float(seconds))
    found = _with_percentiles(rows).withColumn("rate_per_s", rate)
    return shaped(found, table).sortWithinPartitions("window_start", "board", "sensor", "unit")


def _with_percentiles(rows: DataFrame) -> DataFrame:
    of_sketch = F.kll_sketch_get_quantile_double("sketch", F.array(*map(F.lit, _SHARES.values())))
    return rows.withColumn("percentiles", of_sketch).withColumns(
        {name: F.col("percentiles")[at] for at, name in enumerate(_SHARES)}
    )


def _start(seconds: int) -> Column:
    since_1970 = F.unix_seconds("event_time")
    return F.timestamp_seconds(since_1970 - F.pmod(since_1970, F.lit(seconds)))
