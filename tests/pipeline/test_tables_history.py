"""Many runs of a rig; and how often the statistic of regressions is wrong, measured."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from motemq_pipeline import rig
from motemq_pipeline.schemas import TABLES

_START = datetime(2026, 1, 1, tzinfo=UTC)


def _rtt(spark: SparkSession, runs: list[dict[str, Any]]) -> DataFrame:
    """One row of gold_rtt a run; what is not said is as ever."""
    rows = []
    for number, said in enumerate(runs):
        usual = {"board": "b", "fw": "f", "client": "c", "better": "lower", "p50": 1.0,
                 "outcome": "passed", "count": 10, "p99": 9.0, "at": number}  # fmt: skip
        row = {**usual, **said}
        rows.append(
            (f"run-{row['at']:05d}", "desk", row["board"], "rp2", True, row["fw"], row["client"],
             "ping", "rtt", "us", row["better"], row["outcome"],
             _START + timedelta(minutes=row["at"]), row["count"], 0.0, row["p50"], 2.0, 3.0,
             row["p99"], 10.0)
        )  # fmt: skip
    return spark.createDataFrame(rows, TABLES["gold_rtt"])


def test_a_run_is_judged_by_the_runs_before_it(spark: SparkSession) -> None:
    before = [{"p50": 100.0 + number % 3, "p99": None} for number in range(8)]
    failed = {"p50": 5000.0, "outcome": "failed"}
    slow = {"p50": 150.0, "fw": "f2", "count": 60, "p99": 400.0}
    fast = {"p50": 60.0, "fw": "f2"}
    found = rig.regressions(_rtt(spark, [*before, failed, slow, fast])).collect()
    p50 = [row for row in found if row["statistic"] == "p50"]
    assert [row["verdict"] for row in p50] == ["too few"] * 7 + ["usual", "worse", "better"]
    assert [row["runs_before"] for row in p50] == [*range(8), 8, 9]
    assert [row["changed"] for row in p50] == [*[""] * 8, "firmware", ""]
    worse = p50[-2]
    assert (worse["center"], worse["spread"], worse["change"]) == (101.0, 1.0, 49 / 101)
    # p99 is compared where there are values enough for one.
    assert [(row["value"], row["verdict"]) for row in found if row["statistic"] == "p99"] == [
        (400.0, "too few")
    ]


def test_more_is_better_where_the_measurement_says_so(spark: SparkSession) -> None:
    last = {"halved": 50.0, "half as much again": 150.0, "as ever": 91.0}
    runs = [
        {"board": board, "at": at, "p50": p50 if at == 8 else 100.0, "better": "higher"}
        for board, p50 in last.items()
        for at in range(9)
    ]
    found = rig.regressions(_rtt(spark, runs)).where("runs_before = 8").collect()
    assert {row["board_id"]: row["verdict"] for row in found} == {
        "halved": "worse",
        "half as much again": "better",
        "as ever": "usual",
    }


_NOISES: dict[str, Callable[[random.Random], float]] = {
    "normal, 5 %": lambda chance: chance.gauss(100, 5),
    "normal, 20 %": lambda chance: chance.gauss(100, 20),
    "log-normal": lambda chance: chance.lognormvariate(4.6, 0.3),
    "heavy tails": lambda chance: 100 + 5 * chance.gauss(0, 1) / max(0.3, chance.random()),
}
# Of figures that did not change, the share called worse; of doubled ones, the share seen at once.
_MOST_FALSE = {
    "normal, 5 %": 0.005, "normal, 20 %": 0.005, "log-normal": 0.02, "heavy tails": 0.02,
}  # fmt: skip
_LEAST_SEEN = {
    "normal, 5 %": 0.99, "normal, 20 %": 0.45, "log-normal": 0.25, "heavy tails": 0.9,
}  # fmt: skip


def test_false_alarms_are_rare_and_a_doubling_is_seen(spark: SparkSession) -> None:
    """Boards on which nothing changes in 8 to 24 runs; then all takes twice as long."""
    chance = random.Random(11)
    runs = [
        {"board": f"{name}/{board}/{last}", "at": at, "p50": value * (2 if at == last else 1)}
        for name, noise in _NOISES.items()
        for board in range(400)
        for last in [8 + board % 17]
        for at in range(last + 1)
        for value in [noise(chance)]
    ]
    quiet: dict[str, list[str]] = {name: [] for name in _NOISES}
    doubled: dict[str, list[str]] = {name: [] for name in _NOISES}
    for row in rig.regressions(_rtt(spark, runs)).collect():
        name, _, last = row["board_id"].split("/")
        of = doubled if row["run_id"] == f"run-{int(last):05d}" else quiet
        if row["verdict"] != "too few":
            of[name].append(row["verdict"])
    for name in _NOISES:
        assert (len(quiet[name]) > 3000, len(doubled[name])) == (True, 400)
        assert quiet[name].count("worse") / len(quiet[name]) <= _MOST_FALSE[name], name
        assert doubled[name].count("worse") / len(doubled[name]) >= _LEAST_SEEN[name], name
    assert any("worse" in verdicts for verdicts in quiet.values())


def test_latency_is_pooled_by_board_firmware_and_client(spark: SparkSession) -> None:
    def sample(run: str, fw: str, value: float | None, outcome: str = "passed") -> tuple[Any, ...]:
        leading = (1, run, "desk", _START, 1, "b", "rp2", "p", True, fw, "c")
        return (*leading, "will_abrupt", 1, "will_delay", "ms", value, 0, outcome, "lower", None)

    samples = [sample("run-1", "f1", float(value)) for value in range(1, 51)]
    samples += [sample("run-2", "f1", float(value)) for value in range(51, 101)]
    samples += [sample("run-2", "f1", 9e9, "failed"), sample("run-2", "f1", None)]
    samples += [sample("run-3", "f2", 7.0)]
    frame = spark.createDataFrame(samples, TABLES["rig_samples"])
    first, second = rig.latency(frame).collect()
    numbers = ["runs", "count", "min", "p50", "p90", "p95", "p99", "max"]
    assert (first["fw_sha"], second["fw_sha"]) == ("f1", "f2")
    assert [first[name] for name in numbers] == pytest.approx(
        [2, 100, 1.0, 50.5, 90.1, 95.05, 99.01, 100.0]
    )
    assert [second[name] for name in numbers] == [1, 1, *[7.0] * 6]


def test_a_flake_is_what_passes_when_tried_again_or_elsewhere(spark: SparkSession) -> None:
    said = [
        ("f1", "passed", 1), ("f1", "passed", 2), ("f1", "failed", 2), ("f1", "quarantined", 1),
        ("f2", "failed", 2), ("f2", "error", 2),
        ("f3", "quarantined", 1),
    ]  # fmt: skip
    checks = spark.createDataFrame(
        [
            (f"run-{at}", "desk", "b", "rp2", True, fw, "c", "ping", outcome, attempts, 1.0,
             _START + timedelta(minutes=at), "")
            for at, (fw, outcome, attempts) in enumerate(said)
        ],
        TABLES["gold_checks"],
    )  # fmt: skip
    told = ["fw_sha", "runs", "passed", "retried", "failed", "quarantined", "flaky", "flake_rate"]
    assert [[row[name] for name in told] for row in rig.flakes(checks).collect()] == [
        ["f1", 3, 2, 1, 1, 1, 2, 2 / 3],
        ["f2", 2, 0, 0, 2, 0, 0, 0.0],
        ["f3", 0, 0, 0, 0, 1, 0, None],
    ]
