"""Roll-ups in Spark: minutes, hours, and the simulated time of boards.

Spark brings together what belongs together; what is made of it, ``arrived`` and ``windows`` make of
columns: first which readings count, and then the windows that get them. A row depends on the
readings of its hour of ``event_time`` alone.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from motemq_pipeline import arrived, windows
from motemq_pipeline.parquet_files import Sharing
from motemq_pipeline.readings import WINDOW, WINDOW_MS
from motemq_pipeline.schemas import DATE
from motemq_pipeline.table_source import TableSource

HOUR: Final = timedelta(hours=1)
MINUTE: Final = timedelta(minutes=1)
READINGS_OF_TASK: Final = 500_000  # Python holds about 200 bytes of each
_MINUTE_S, _HOUR_S = 60, 3600
# More hours than that are asked for by their bounds only: a condition of a million values is none.
_LISTED_HOURS: Final = 500
IS_READING: Final = "last is not true"  # and no message that ends a stream
BATCH_ROWS: Final = 4096  # of which the longest, a roll-up with its sketch, has some 10 KB
_BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BATCH_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT: Final = str(2**31 - 1)
_USUAL_TASKS: Final = "spark.sql.shuffle.partitions"


def readings(silver: DataFrame) -> DataFrame:
    """Return what of silver is rolled up."""
    return silver.where(IS_READING).select(*arrived.COLUMNS)


def counted(silver: DataFrame, numbers: DataFrame | None, many: int, ranges: bool) -> DataFrame:
    """Return the readings of ``silver`` that count: rows of ``arrived.COUNTED_DDL``.

    ``numbers``: the rows of ``gold_numbers`` of their hours. ``many``, ``ranges``: as ``together``.
    """
    rows = readings(silver)
    if numbers is not None:
        known = numbers.drop(DATE).withColumnRenamed("hour", "event_time")
        rows = rows.unionByName(known, allowMissingColumns=True)
    return together(rows, many, ranges).mapInArrow(arrived.as_rows, arrived.COUNTED_DDL)


def making(tables: Sequence[str], is_counted: bool, settled_us: int | None) -> Sharing:
    """Return what makes rows of ``tables`` of what ``together`` returned: ``windows.rolled_up``.

    Each has two targets: for rows that may soon change again, and for those that are settled.
    """

    def made(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
        for found in windows.rolled_up(batches, tables, is_counted, settled_us):
            yield 2 * tables.index(found.table) + found.settled, found.rows

    return made


def before(rows: DataFrame, table: str) -> DataFrame:
    """Return rows of a roll-up as ``windows`` wants those that were there before."""
    time = "hour" if table == windows.SIMULATED else "window_start"
    there = {*rows.columns, "event_time", windows.TABLE}
    found = rows.withColumnRenamed(time, "event_time").withColumn(windows.TABLE, F.lit(table))
    none = F.lit(None)
    columns = (column.split(" ") for column in windows.BEFORE_DDL.split(", "))
    return found.select(
        *((F.col(name) if name in there else none.cast(kind)).alias(name) for name, kind in columns)
    )


def together(rows: DataFrame, many: int = 0, ranges: bool = False) -> DataFrame:
    """Return what ``windows`` and ``arrived`` ask for: what is of an hour of a board in one task.

    ``many``: how many rows there are at most, if that is known: a task then has about
    ``READINGS_OF_TASK``, or those of one board's hour, if these are more. ``ranges``: a task has
    few of many hours, and so have the files it writes; for that Spark first takes a sample of all,
    for which it reads them twice.
    """
    shuffled = rows.repartitionByRange if ranges else rows.repartition
    key = (start(_HOUR_S), F.col("board"))
    tasks = -(-many // READINGS_OF_TASK)
    # Without a number, Spark makes one task of a few rows.
    are_many = tasks > int(rows.sparkSession.conf.get(_USUAL_TASKS) or 0)
    return shuffled(tasks, *key) if are_many else shuffled(*key)


def touched(counted: DataFrame, simulated: bool) -> pa.Table:
    """Return when readings happened that count, each ``hour`` and ``minute`` once, in microseconds.

    Minutes of which only what is missing has changed are among them. ``simulated``: each
    ``connection`` and ``window_start_ms`` of these, too, and ``is_reading``, false for the latter.
    """
    columns = [
        (F.unix_seconds(start(seconds)) * 1_000_000).alias(name)
        for name, seconds in (("hour", _HOUR_S), ("minute", _MINUTE_S))
    ]
    if simulated:
        window = F.col("t_ms") - F.pmod("t_ms", F.lit(WINDOW_MS))
        is_reading = F.col("value").isNotNull().alias("is_reading")
        columns += [F.col("connection"), window.alias(WINDOW), is_reading]
    return counted.select(*columns).distinct().toArrow()


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
    hours = readings.select(F.unix_seconds(start(_HOUR_S)).alias("hour")).distinct().collect()
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


def start(seconds: int) -> Column:
    """Return the beginning of the span of so many seconds in which a row's ``event_time`` is."""
    since_1970 = F.unix_seconds("event_time")
    return F.timestamp_seconds(since_1970 - F.pmod(since_1970, F.lit(seconds)))
