"""Minutes, hours and the fleet, from readings whose every number is known."""

import statistics
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from motemq_pipeline import gold
from motemq_pipeline.fleet import fleet
from motemq_pipeline.registry import load_registry
from motemq_pipeline.rollups import refreshed, rollup, touched_hours
from motemq_pipeline.schemas import TABLES

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_MINUTE, _HOUR = "gold_rollup_minute", "gold_rollup_hour"
_Reading = tuple[str, int, str, int | None, float, float]  # board, stream, sensor, seq, second


def _silver(spark: SparkSession, readings: Iterable[_Reading], first: int = 0) -> DataFrame:
    rows = [
        (board, sensor, seq, None, "C", value, at, "broker", at, f"home/{board}/x", "fmqp", stream,
         0, first + number)
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
        for row in _rows(rollup(_silver(spark, readings), _MINUTE))
    }
    told = ["count", "mean", "min", "max", "gaps"]
    assert {key: [row[name] for name in told] for key, row in found.items()} == {
        ("a", "t", _NOON): [3, 3.0, 1.0, 5.0, 2],
        ("a", "h", _NOON): [1, 50.0, 50.0, 50.0, 0],
        ("a", "t", _NOON + timedelta(minutes=1)): [1, 8.0, 8.0, 8.0, 1],
        ("b", "t", _NOON): [2, 7.0, 7.0, 7.0, None],
    }
    assert found["a", "t", _NOON]["rate_per_s"] == 3 / 60


def test_an_hours_percentiles_are_exact_and_its_gaps_are_its_minutes(spark: SparkSession) -> None:
    values = [float(number * number % 1009) for number in range(400)]
    readings: list[_Reading] = [
        ("a", 1, "t", number, number * 9.0, value)
        for number, value in enumerate(values)
        if number % 7
    ]
    kept = [value for number, value in enumerate(values) if number % 7]
    silver = _silver(spark, readings)
    (hour,) = _rows(rollup(silver, _HOUR))
    cuts = statistics.quantiles(kept, n=100, method="inclusive")
    assert [hour[name] for name in ("p50", "p95", "p99")] == pytest.approx(
        [cuts[49], cuts[94], cuts[98]]
    )
    minutes = _rows(rollup(silver, _MINUTE))
    assert hour["gaps"] == sum(row["gaps"] for row in minutes) == 56  # 0 and 399 are at the ends
    assert hour["count"] == sum(row["count"] for row in minutes) == 342


def test_what_is_made_again_by_hours_is_what_is_made_whole(spark: SparkSession) -> None:
    table = _MINUTE
    hours = 3600.0
    old: list[_Reading] = [
        ("a", 1, "t", number, number * 700.0, float(number)) for number in range(30)
    ]
    new: list[_Reading] = [
        ("a", 1, "t", 31, 1.2 * hours, 5.0),  # late, into an hour that has some
        ("a", 1, "t", 3, 3 * 700.0, 3.0),  # a copy
        ("b", 2, "t", 0, 40 * hours, 5.0),
    ]
    before = _silver(spark, old)
    came = _silver(spark, new, first=len(old))
    touched = touched_hours(came)
    assert touched == [_NOON, _NOON + timedelta(hours=1), _NOON + timedelta(hours=40)]
    all_of_it = before.unionByName(came)
    again = refreshed(rollup(before, table), all_of_it, touched, table)
    assert again.collect() == rollup(all_of_it, table).collect()
    # Hours that nothing touched are taken as they were, not made again.
    marked = rollup(before, table).selectExpr("* except (mean)", "-1D as mean")
    kept = [row["mean"] for row in refreshed(marked, all_of_it, touched, table).collect()]
    assert kept.count(-1.0) == 30 - 6 - 5  # of hours 0 and 1
    assert refreshed(marked, all_of_it, [], table) is marked


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
    health = gold.board_health(silver)
    found = {row["board"]: row for row in _rows(fleet(health, silver, events, registry))}
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
        for row in _rows(fleet(health, silver, events, registry, as_of=later))
    }
    assert silent["c"] == _NOON + timedelta(seconds=70)
