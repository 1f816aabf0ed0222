"""Readings to windows: minutes, hours, and the simulated time of boards.

Spark brings together what belongs together; what is made of it, ``windows`` makes of columns.

A row depends on the readings of its hour of ``event_time`` alone, so only hours in which something
new happened are made again. Percentiles of minutes and hours are from KLL sketches (rank error
below 1 %), which merge: hours are made of minutes, and ``sketch`` of any rows gives the percentiles
of all of them.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from motemq_pipeline import windows
from motemq_pipeline.schemas import shaped
from motemq_pipeline.table_source import TableSource

HOUR: Final = timedelta(hours=1)
READINGS_OF_TASK: Final = 500_000  # Python holds about 200 bytes of each
SKETCH_K: Final = 400  # of a KLL sketch: 0.6 % of rank, single-sided, at 99 % confidence
_MINUTE_S, _HOUR_S = 60, 3600
_SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
# More hours than that are asked for by their bounds only: a condition of a million values is none.
_LISTED_HOURS: Final = 500
IS_READING: Final = "last is not true"  # and no message that ends a stream
BATCH_ROWS: Final = 4096  # of which the longest, a roll-up with its sketch, has some 10 KB
_BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BATCH_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT: Final = str(2**31 - 1)
_USUAL_TASKS: Final = "spark.sql.shuffle.partitions"
_WINDOW: Final = ["window_start", "board", "sensor", "unit"]
_SIMULATED: Final = ["hour", "board", "connection", "sensor", "unit", "window_start_ms"]


def together(silver: DataFrame, many: int = 0, ranges: bool = False) -> DataFrame:
    """Return what ``windows`` asks for of readings: those of an hour of a board in one task.

    ``many``: how many there are at most, if that is known: a task then has about
    ``READINGS_OF_TASK``, or those of one board's hour, if these are more. ``ranges``: a task has
    few of many hours, and so have the files it writes; for that Spark first takes a sample of all,
    for which it reads them twice.
    """
    readings = silver.where(IS_READING).select(*windows.COLUMNS)
    shuffled = readings.repartitionByRange if ranges else readings.repartition
    key = (_start(_HOUR_S), F.col("board"))
    # Without a number, Spark makes one task of a few readings.
    return shuffled(_tasks(many), *key) if _are_many(silver, many) else shuffled(*key)


def _tasks(many: int) -> int:
    return -(-many // READINGS_OF_TASK)


def _are_many(silver: DataFrame, many: int) -> bool:
    """Whether readings are of more tasks than Spark makes anyway."""
    return _tasks(many) > int(silver.sparkSession.conf.get(_USUAL_TASKS) or 0)


def by_minute(silver: DataFrame, many: int = 0, ranges: bool = True) -> DataFrame:
    """Return ``gold_rollup_minute``; ``many`` and ``ranges`` (of files only) as for ``together``.

    A reading that came more than once counts once an hour. ``gaps`` are the numbers missing between
    a reading and the one before it in its stream and hour, so they add up over sensors and minutes.
    """
    minutes = together(silver, many).mapInArrow(windows.by_minute, windows.MINUTES)
    found = (
        minutes.select(*_WINDOW, "gaps", F.posexplode("values").alias("place", "value"))
        .groupBy(*_WINDOW)
        .agg(
            F.count("*").alias("count"),
            F.avg("value").alias("mean"),
            F.min("value").alias("min"),
            F.max("value").alias("max"),
            F.sum(F.when(F.col("place") == 0, F.col("gaps"))).alias("gaps"),
            F.kll_sketch_agg_double("value", F.lit(SKETCH_K)).alias("sketch"),
        )
    )
    if ranges and _are_many(silver, many):  # of a few, a file has all hours
        found = found.repartitionByRange("window_start", "board")
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


def fullest(made: DataFrame, before: DataFrame, table: str) -> DataFrame:
    """Return the rows of two roll-ups; of two of one window that which has more readings.

    Where both have as many, that of ``before``: what is known of them does not change then.
    """
    key = _SIMULATED if table == "gold_sensor_rollup" else _WINDOW
    again = made.withColumn("again", F.lit(True))
    rows = again.unionByName(shaped(before, table).withColumn("again", F.lit(False)))
    most = Window.partitionBy(*key).orderBy(F.desc("count"), "again")
    found = rows.repartitionByRange(key[0], "board").withColumn("rank", F.row_number().over(most))
    return shaped(found.where("rank = 1"), table).sortWithinPartitions(*key)


def batches_by_rows(spark: SparkSession) -> SparkSession:
    """Return a session like ``spark`` whose rows go to Python ``BATCH_ROWS`` at a time.

    Usually Spark limits the bytes of a batch, too. It adds up all columns after each row for that,
    which takes it longer than the row. So this is for rows that are short, as are readings, whose
    texts have a limit (``rules.MAX_TEXT``), and roll-ups, whose sketches have one: 40 MB a batch.

    It is a session by itself: a stream that is started meanwhile keeps the settings that ``spark``
    has then. A clone, because sources that one session knows cannot be made known to a new one.
    """
    spark.dataSource.register(TableSource)  # or the clone could not when ``spark`` has done so
    found = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    found.conf.set(_BATCH_BYTES, _NO_LIMIT)
    found.conf.set(_BATCH_ROWS, str(BATCH_ROWS))
    return found


def touched_hours(readings: DataFrame) -> list[datetime]:
    """Return the hours (UTC, their beginnings) in which ``readings`` happened, in order."""
    hours = readings.select(F.unix_seconds(_start(_HOUR_S)).alias("hour")).distinct().collect()
    return sorted(datetime.fromtimestamp(row["hour"], UTC) for row in hours)


def within(time: Column, hours: Sequence[datetime]) -> Column:
    """Return whether ``time`` is in one of ``hours``; of very many, in their whole span."""
    between = (time >= F.lit(min(hours))) & (time < F.lit(max(hours) + HOUR))
    # Usually it is one hour. To tell that of a reading, Spark makes objects of each.
    if len(all_between(hours)) == _span(hours):
        return between
    return between & F.date_trunc("hour", time).isin([F.lit(hour) for hour in hours])


def all_between(hours: Sequence[datetime]) -> list[datetime]:
    """Return the hours that ``within`` means by ``hours``, each of them given once."""
    if len(hours) <= _LISTED_HOURS:
        return list(hours)
    return [min(hours) + at * HOUR for at in range(_span(hours))]


def _span(hours: Sequence[datetime]) -> int:
    return (max(hours) - min(hours)) // HOUR + 1


def _finished(rows: DataFrame, table: str, seconds: int) -> DataFrame:
    rate = F.col("count") / F.lit(float(seconds))
    found = _with_percentiles(rows).withColumn("rate_per_s", rate)
    return shaped(found, table).sortWithinPartitions(*_WINDOW)


def _with_percentiles(rows: DataFrame) -> DataFrame:
    of_sketch = F.kll_sketch_get_quantile_double("sketch", F.array(*map(F.lit, _SHARES.values())))
    return rows.withColumn("percentiles", of_sketch).withColumns(
        {name: F.col("percentiles")[at] for at, name in enumerate(_SHARES)}
    )


def _start(seconds: int) -> Column:
    since_1970 = F.unix_seconds("event_time")
    return F.timestamp_seconds(since_1970 - F.pmod(since_1970, F.lit(seconds)))
