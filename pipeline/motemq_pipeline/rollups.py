"""Readings to minutes and hours, all of them or only those that changed."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from motemq_pipeline.gold import END
from motemq_pipeline.schemas import shaped

WINDOWS: Final = {"gold_rollup_minute": 60, "gold_rollup_hour": 3600}  # seconds
_HOUR: Final = timedelta(hours=1)
_HOUR_S: Final = 3600
# More hours than that are asked for by their bounds only: a condition of a million values is none.
_LISTED_HOURS: Final = 500


def rollup(silver: DataFrame, table: str) -> DataFrame:
    """Return ``gold_rollup_minute`` or ``gold_rollup_hour``, whichever ``table`` names.

    A row depends on the readings of its hour alone. A reading that came more than once counts once
    an hour. ``gaps`` are the numbers missing between a reading and the one before it in its stream
    and hour, so they add up over sensors and minutes.
    """
    seconds = WINDOWS[table]
    stream = ["board", "connection", "hour"]
    by_number = Window.partitionBy(*stream).orderBy("seq", "sensor", "partition", "message_seq")
    before = F.lag(F.struct("seq", "sensor")).over(by_number)
    readings = (
        silver.where(F.col("sensor") != END)
        .withColumn("hour", _start(_HOUR_S))
        # One shuffle for all that follows.
        .repartition("board", "hour")
        .withColumn("before", before)
        .where(F.col("seq").isNull() | ~F.struct("seq", "sensor").eqNullSafe(F.col("before")))
        .withColumn("missing", F.greatest(F.col("seq") - F.col("before.seq") - 1, F.lit(0)))
        # The first reading of a stream's hour has nothing missing before it.
        .withColumn("missing", F.when(F.col("seq").isNotNull(), F.coalesce("missing", F.lit(0))))
        .withColumn("window_start", _start(seconds))
    )
    percentiles = F.percentile("value", F.array(F.lit(0.5), F.lit(0.95), F.lit(0.99)))
    return (
        readings.groupBy("board", "hour", "sensor", "unit", "window_start")
        .agg(
            F.count("*").alias("count"),
            F.avg("value").alias("mean"),
            F.min("value").alias("min"),
            F.max("value").alias("max"),
            percentiles.alias("percentiles"),
            F.sum("missing").alias("gaps"),
        )
        .withColumns(
            {name: F.col("percentiles")[at] for at, name in enumerate(["p50", "p95", "p99"])}
        )
        .withColumn("rate_per_s", F.col("count") / F.lit(float(seconds)))
        .transform(shaped, table)
        .sort("window_start", "board", "sensor", "unit")
    )


def touched_hours(readings: DataFrame) -> list[datetime]:
    """Return the hours (UTC, their beginnings) in which ``readings`` happened, in order."""
    hours = readings.select(F.unix_seconds(_start(_HOUR_S)).alias("hour")).distinct().collect()
    return sorted(datetime.fromtimestamp(row["hour"], UTC) for row in hours)


def refreshed(
    previous: DataFrame, silver: DataFrame, hours: Sequence[datetime], table: str
) -> DataFrame:
    """Return a roll-up of ``silver``, made again for ``hours`` only, else taken from ``previous``.

    Equal to ``rollup(silver, table)`` if ``previous`` was that of all readings but those of
    ``hours`` (``touched_hours`` of what came since). Reads of ``silver`` what its files' statistics
    say may be of those hours.
    """
    if not hours:
        return previous
    again = rollup(silver.where(_within(F.col("event_time"), hours)), table)
    kept = previous.where(~_within(F.col("window_start"), hours))
    return shaped(kept.unionByName(again), table).sort("window_start", "board", "sensor", "unit")


def _within(time: Column, hours: Sequence[datetime]) -> Column:
    first, last = min(hours), max(hours) + _HOUR
    between = (time >= F.lit(first)) & (time < F.lit(last))
    if len(hours) > _LISTED_HOURS:
        return between
    return between & F.date_trunc("hour", time).isin([F.lit(hour) for hour in hours])


def _start(seconds: int) -> Column:
    since_1970 = F.unix_seconds("event_time")
    return F.timestamp_seconds(since_1970 - F.pmod(since_1970, F.lit(seconds)))
