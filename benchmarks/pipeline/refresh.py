"""Gold's refresh: what a day of new readings costs on top of so many old ones; and a query.

Four boards send three readings a second, a million a day. The old days are in silver, and gold was
made from them. Then a day comes.

And what some new readings cost early and late in one hour, in which a thousand boards send as many
as come in all.
"""

import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from motemq_pipeline.delta import Table
from motemq_pipeline.parquet_files import Target, collected, writing
from motemq_pipeline.refresh import Refresh
from motemq_pipeline.registry import BUILT_IN, load_registry
from motemq_pipeline.schemas import shaped
from motemq_pipeline.sessions import spark_session
from motemq_pipeline.storage import Storage

OLD = (1_000_000, 10_000_000, 100_000_000)
DRIVER_MEMORY = "4g"
HOUR = (1_000_000, 20_000_000)  # readings that were in the hour before
_IN_HOUR = 5  # refreshes
_SENSORS, _UNITS = ("temperature", "humidity", "pressure"), ("C", "%", "hPa")
_START_S = 1_767_225_600
_HOUR_US = 3_600_000_000
_QUERIES = 5
_SQL = "select sensor, count(*), avg(value) from silver_telemetry group by 1 order by 1"


@dataclass(frozen=True)
class _Sending:
    """So many boards, each of whose sensors sends again after ``every_us``."""

    boards: int
    every_us: int


_DAYS = _Sending(4, 1_000_000)
_BOARDS_OF_HOUR = 1000


@dataclass(frozen=True)
class Result:
    """Seconds to bring gold up to date with ``new`` readings, and of a query of all.

    ``seconds`` is the median of ``each``, where this was done several times, one after the other.
    ``query_s`` is no number where nobody asks for it.
    """

    old: int
    new: int
    seconds: float
    each: tuple[float, ...]
    query_s: float = math.nan


def measure(
    folder: Path, old: Sequence[int], new: int, told: Callable[[str], None]
) -> Iterator[Result]:
    """Refresh gold on top of each of ``old`` readings, fewest first.

    Where several are compared, one on top of the fewest comes before them, for warming up.

    Raises ``AssertionError`` if gold lacks a reading.
    """
    for found, place in _each(folder / "days", old, new, 1, _DAYS, told):
        yield replace(found, query_s=_query_s(place))


def measure_hour(
    folder: Path, old: Sequence[int], new: int, told: Callable[[str], None]
) -> Iterator[Result]:
    """Refresh gold on top of each of ``old`` readings of one hour, as ``measure`` does.

    Several times, because one is as short as what else a machine does now and then.
    """
    # The last one comes before the hour ends.
    rounds = -(-(max(old) + _IN_HOUR * new) // (_BOARDS_OF_HOUR * len(_SENSORS)))
    sending = _Sending(_BOARDS_OF_HOUR, _HOUR_US // rounds)
    for found, _ in _each(folder / "hour", old, new, _IN_HOUR, sending, told):
        yield found


def _each(
    folder: Path,
    old: Sequence[int],
    new: int,
    times: int,
    sending: _Sending,
    told: Callable[[str], None],
) -> Iterator[tuple[Result, Storage]]:
    folder.mkdir()
    settings = {"spark.driver.memory": DRIVER_MEMORY}
    with spark_session(folder / "refresh.log", brief=False, settings=settings) as spark:
        if len(old) > 1:
            _measured(spark, Storage.at(folder / "warm"), min(old), new, times, sending, told)
        for readings in sorted(old):
            place = Storage.at(folder / str(readings))
            yield _measured(spark, place, readings, new, times, sending, told), place


def _measured(
    spark: SparkSession,
    place: Storage,
    old: int,
    new: int,
    times: int,
    sending: _Sending,
    told: Callable[[str], None],
) -> Result:
    refresh = Refresh(spark, place, load_registry(BUILT_IN), None)
    silver = Table(place, "silver_telemetry")
    silver.create()

    def add(first: int, count: int, batch: int) -> None:
        targets = [Target("silver_telemetry")]
        rows = writing(_readings(spark, first, count, sending), place, targets)
        (files,) = collected(rows, place, targets)
        silver.add(files, "benchmark", batch)

    began = time.monotonic()
    add(0, old, 0)
    refresh.follow()
    told(f"refresh: gold of {old:,} readings made in {time.monotonic() - began:.1f} s")
    each = []
    for at in range(times):
        add(old + at * new, new, at + 1)
        began = time.monotonic()
        if not refresh.follow():
            raise AssertionError("gold saw nothing new")
        each.append(time.monotonic() - began)
        told(f"refresh: {new:,} on top of {old + at * new:,} in {each[-1]:.1f} s")
    counted = sum(
        Table(place, "gold_rollup_minute").dataset().to_table(["count"])["count"].to_pylist()
    )
    sent = old + times * new
    if counted != sent:
        raise AssertionError(f"gold has {counted} of {sent} readings")
    return Result(old, new, statistics.median(each), tuple(each))


def _readings(spark: SparkSession, first: int, count: int, sending: _Sending) -> DataFrame:
    """Return readings number ``first`` to ``first`` + ``count`` - 1, in order of time."""
    streams = sending.boards * len(_SENSORS)
    stream, at = F.col("id") % streams, F.floor(F.col("id") / streams)
    board, sensor = F.floor(stream / len(_SENSORS)), stream % len(_SENSORS)
    name = F.concat(F.lit("b-"), board.cast("string"))

    def of_sensor(values: Sequence[str]) -> Column:
        return F.element_at(F.array(*map(F.lit, values)), (sensor + 1).cast("int"))

    passed_us = at * sending.every_us
    time_ = F.timestamp_micros((passed_us + _START_S * 1_000_000).cast("long"))
    rows = spark.range(first, first + count).select(
        name.alias("board"),
        of_sensor(_SENSORS).alias("sensor"),
        (at * len(_SENSORS) + sensor).cast("long").alias("seq"),
        F.floor(passed_us / 1000).cast("long").alias("t_ms"),
        of_sensor(_UNITS).alias("unit"),
        (F.lit(20.0) + (F.col("id") * 7919 % 1000) / 100).alias("value"),
        time_.alias("event_time"),
        F.lit("broker").alias("clock"),
        time_.alias("received_at"),
        F.concat(F.lit("telemetry/"), name).alias("path"),
        F.lit("fmqp").alias("protocol"),
        (board + 1).cast("long").alias("connection"),
        F.lit(0).alias("partition"),
        F.col("id").alias("message_seq"),
        F.lit(False).alias("last"),
    )
    return shaped(rows, "silver_telemetry")


def _query_s(place: Storage) -> float:
    """Return the median of what ``motemq pipeline query`` takes as a command."""
    argv = [sys.executable, "-m", "motemq", "pipeline", "query", _SQL, "--tables", place.uri]
    seconds = []
    for _ in range(_QUERIES):
        began = time.monotonic()
        subprocess.run(argv, check=True, capture_output=True)
        seconds.append(time.monotonic() - began)
    return statistics.median(seconds)
