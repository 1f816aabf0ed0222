"""Minutes, hours and the fleet, from readings whose every number is known."""

import bisect
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from motemq_pipeline import gold, rollups, windows
from motemq_pipeline.registry import load_registry
from motemq_pipeline.schemas import TABLES
from motemq_pipeline.sequence_numbers import stream_states
from tests.pipeline.conftest import rolled_up

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_Reading = tuple[str, int, str, int | None, float, float]  # board, stream, sensor, seq, second


def _silver(spark: SparkSession, readings: Iterable[_Reading], first: int = 0) -> DataFrame:
    rows = [
        (board, sensor, seq, None, "C", value, at, "broker", at, f"home/{board}/x", "fmqp", stream,
         0, first + number, sensor == "end" if board != "b" else None, at.date())
        for number, (board, stream, sensor, seq, second, value) in enumerate(readings)
        for at in [_NOON + timedelta(seconds=second)]
    ]  # fmt: skip
    return spark.createDataFrame(rows, TABLES["silver_telemetry"])


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Return rows; Spark gives times in the zone of this machine, without saying so."""
    return [
        {
            name: value.astimezone(UTC) if isinstance(value, datetime) else value
            for name, value in row.asDict().items()
        }
        for row in frame.collect()
    ]


def test_a_minute_has_each_reading_once_and_what_is_missing_before_it(spark: SparkSession) -> None:
    readings: list[_Reading] = [
        ("a", 1, "t", 0, 0.0, 1.0),
        ("a", 1, "h", 1, 1.0, 50.0),
        ("a", 1, "t", 4, 59.9, 3.0),  # 2 and 3 are missing
        ("a", 1, "t", 4, 60.1, 3.0),  # a copy, in the next minute
        ("a", 1, "t", 6, 61.0, 8.0),  # 5 is missing
        ("a", 1, "end", 9, 62.0, 9.0),
        ("a", 2, "t", 100, 2.0, 5.0),  # another stream begins where it likes
        ("b", 3, "t", None, 3.0, 7.0),
        ("b", 3, "t", None, 3.0, 7.0),
    ]
    found = {
        (row["board"], row["sensor"], row["window_start"]): row
        for row in _rows(rolled_up(_silver(spark, readings), windows.MINUTES))
    }
    told = ["count", "mean", "min", "max", "gaps"]
    assert {key: [row[name] for name in told] for key, row in found.items()} == {
        ("a", "t", _NOON): [3, 3.0, 1.0, 5.0, 2],
        ("a", "h", _NOON): [1, 50.0, 50.0, 50.0, 0],
        ("a", "t", _NOON + timedelta(minutes=1)): [1, 8.0, 8.0, 8.0, 1],
        ("b", "t", _NOON): [2, 7.0, 7.0, 7.0, None],
    }
    assert found["a", "t", _NOON]["rate_per_s"] == 3 / 60


def test_an_hour_is_that_of_its_minutes_and_its_percentiles_have_the_right_rank(
    spark: SparkSession,
) -> None:
    """Sketches are random, so what is asserted is the rank: within 1 % (docs/tables.md)."""
    values = [float(number * number % 10_007) for number in range(7000)]
    readings: list[_Reading] = [
        ("a", 1, "t", number, number * 0.5, value)
        for number, value in enumerate(values)
        if number % 7
    ]
    kept = sorted(value for number, value in enumerate(values) if number % 7)
    silver = _silver(spark, readings)
    (hour,) = _rows(rolled_up(silver, windows.HOURS))
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        low, high = bisect.bisect_left(kept, hour[name]), bisect.bisect_right(kept, hour[name])
        assert low / len(kept) - 0.01 <= share <= high / len(kept) + 0.01, name
    of_minutes = _rows(rolled_up(silver, windows.MINUTES))
    assert hour["gaps"] == sum(row["gaps"] for row in of_minutes) == 999  # 0 is at an end
    assert hour["count"] == sum(row["count"] for row in of_minutes) == len(kept)
    assert hour["mean"] == pytest.approx(statistics.mean(kept))
    assert (hour["min"], hour["max"]) == (kept[0], kept[-1])


def test_few_readings_have_the_percentiles_that_they_have(spark: SparkSession) -> None:
    readings: list[_Reading] = [("a", 1, "t", n, n / 10, float(n)) for n in range(1, 201)]
    (minute,) = _rows(rolled_up(_silver(spark, readings), windows.MINUTES))
    assert [minute[name] for name in ("p50", "p95", "p99")] == [100.0, 190.0, 198.0]


def test_more_readings_are_of_more_tasks_and_an_hour_of_a_board_is_of_one(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollups, "READINGS_OF_TASK", 100)
    readings: list[_Reading] = [
        (board, 1, "t", n, 3600.0 * hour, 1.0) for board in "abcde" for hour in (0, 1)
        for n in range(100)
    ]  # fmt: skip
    task = F.spark_partition_id().alias("task")
    for ranges in (False, True):
        rows = rollups.together(rollups.readings(_silver(spark, readings)), len(readings), ranges)
        assert rows.rdd.getNumPartitions() == 10
        found = rows.select("board", "event_time", task).distinct().collect()
        assert len(found) == 10
        assert len({row["task"] for row in found}) > 2
    hours = defaultdict(set)
    for row in found:
        hours[row["task"]].add(row["event_time"])
    assert sum(map(len, hours.values())) <= len(hours) + 1  # files have one hour; one may have two


def test_roll_ups_go_to_python_by_rows_of_which_the_longest_is_known(spark: SparkSession) -> None:
    session = rollups.batches_by_rows(spark)
    names = ("maxBytesPerBatch", "maxRecordsPerBatch")
    bytes_, rows = (session.conf.get(f"spark.sql.execution.arrow.{name}") for name in names)
    assert bytes_ == str(2**31 - 1)  # the one by which Spark does not count
    assert rows == str(rollups.BATCH_ROWS)
    many = [("a", 1, "t", None, n * 0.001, float(n * 7919 % 100_003)) for n in range(50_000)]
    (minute,) = rolled_up(_silver(session, many), windows.MINUTES).collect()
    assert len(minute["sketch"]) * rollups.BATCH_ROWS < 40_000_000

    def longest(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"rows": [max(batch.num_rows for batch in batches)]})

    found = session.range(0, 10_000, 1, 1).mapInArrow(longest, "rows long").collect()
    assert [row["rows"] for row in found] == [rollups.BATCH_ROWS]


def test_streams_are_joined_with_what_was_known_of_them(spark: SparkSession) -> None:
    first = _silver(
        spark,
        [("a", 1, "t", 0, 0.0, 1.0), ("a", 1, "t", 3, 1.0, 1.0), ("b", 2, "t", None, 2.0, 1.0)],
    )
    before = stream_states(first).persist()
    told = ["messages", "expected", "gaps", "duplicates", "missing", "complete"]
    assert {row["board"]: [row[name] for name in told] for row in _rows(before)} == {
        "a": [2, 4, 2, 0, "1-2", False],
        "b": [1, None, None, None, None, None],  # whose rule has no message that ends a stream
    }
    later: list[_Reading] = [
        ("a", 1, "t", 1, 5.0, 1.0),  # late
        ("a", 1, "h", 3, 6.0, 1.0),  # another reading of a number that came
        ("a", 1, "end", 6, 7.0, 1.0),
        ("c", 3, "t", 7, 8.0, 1.0),
    ]
    after = {row["board"]: row for row in _rows(stream_states(_silver(spark, later), before))}
    assert {board: [row[name] for name in told] for board, row in after.items()} == {
        "a": [5, 7, 3, 1, "2, 4-5", True],
        "c": [1, 8, 0, 0, "", False],  # what was before 7, this stream does not tell
    }
    assert (after["a"]["first_at"], after["a"]["last_at"]) == (
        _NOON,
        _NOON + timedelta(seconds=7),
    )


def test_the_fleet_says_who_is_silent_and_what_runs(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "registry.toml").write_text(
        '[[rule]]\npath = "home/a/*"\nis = "ignored"\n'
        '[[rule]]\npath = "home/{board}/*"\nis = "telemetry"\nencoding = "number"\n'
        'constants = { sensor = "t" }\nsilent_after_s = 60\n'
    )
    readings: list[_Reading] = [
        ("a", 1, "t", 0, 0.0, 1.0),
        ("b", 2, "t", 0, 0.0, 1.0),
        ("b", 2, "t", 3, 9.0, 1.0),
        ("c", 3, "t", 0, 70.0, 1.0),
    ]
    silver = _silver(spark, readings)
    leading = (1, "run-1", "desk", _NOON, 5)
    rest = ("check_finished", "check", "ping", 1, "passed", 1.0, "")
    events = spark.createDataFrame(
        [
            (*leading, "b", "rp2", "p", True, "f1", "c1", *rest),
            (*leading[:4], 6, "b", "rp2", "p", True, "f2", "c1", *rest),
            (*leading, "d", "esp", "p", False, "f3", "c3", *rest),
            (*leading, "", "", "", False, "", "", *rest),
        ],
        TABLES["rig_events"],
    )
    registry = load_registry(tmp_path / "registry.toml")
    streams = stream_states(silver).persist()
    health = gold.board_health(streams)
    found = {row["board"]: row for row in _rows(gold.fleet(health, streams, events, registry))}
    told = ["silent_after_s", "silent_since", "lost", "loss", "model", "fw_sha"]
    assert {board: [row[name] for name in told] for board, row in found.items()} == {
        "a": [None, None, 0, 0.0, None, None],
        "b": [60.0, _NOON + timedelta(seconds=9), 2, 0.5, "rp2", "f2"],
        "c": [60.0, None, 0, 0.0, None, None],
        "d": [None, None, None, None, "esp", "f3"],
    }
    assert {row["as_of"] for row in found.values()} == {_NOON + timedelta(seconds=70)}
    later = _NOON + timedelta(hours=1)
    silent = {
        row["board"]: row["silent_since"]
        for row in _rows(gold.fleet(health, streams, events, registry, as_of=later))
    }
    assert silent["c"] == _NOON + timedelta(seconds=70)


@pytest.mark.parametrize(
    ("hours", "asked_one_by_one"),
    [([3], False), ([3, 4, 5], False), ([3, 5], True), ([0, 2, 3], True)],
)
def test_a_time_is_within_hours_from_their_first_moment_to_their_last(
    spark: SparkSession, hours: list[int], asked_one_by_one: bool
) -> None:
    chosen = [_NOON + at * rollups.HOUR for at in hours]
    condition = rollups.within(F.col("time"), chosen)
    assert ("date_trunc" in str(condition)) == asked_one_by_one
    moment = timedelta(microseconds=1)
    times = [
        time
        for at in range(8)
        for time in (_NOON + at * rollups.HOUR, _NOON + (at + 1) * rollups.HOUR - moment)
    ]
    rows = spark.createDataFrame([(time,) for time in times], "time timestamp").where(condition)
    found = [row["time"] for row in _rows(rows)]
    assert found == [time for time in times if (time - _NOON) // rollups.HOUR in hours]
