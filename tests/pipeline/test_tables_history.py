"""Many runs of a rig; and how often the statistic of regressions is wrong, measured."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from motemq_pipeline import rig_history
from motemq_pipeline.schemas import TABLES

_START = datetime(2026, 1, 1, tzinfo=UTC)
_LONG_AGO = datetime(1970, 1, 1)


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


def _verdicts(frame: DataFrame) -> list[tuple[str, str, str]]:
    found = rig_history.regressions(frame).collect()
    return [(row["statistic"], row["verdict"], row["changed"]) for row in found]


def test_a_run_is_judged_by_the_runs_before_it(spark: SparkSession) -> None:
    before = [{"p50": 100.0 + number % 3, "p99": None} for number in range(8)]
    failed = {"p50": 5000.0, "outcome": "failed"}
    slow = {"p50": 150.0, "fw": "f2", "count": 60, "p99": 400.0}
    fast = {"p50": 60.0, "fw": "f2"}
    found = rig_history.regressions(_rtt(spark, [*before, failed, slow, fast])).collect()
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
    rate = [{"p50": 100.0, "better": "higher"} for _ in range(8)]
    for p50, verdict in ((50.0, "worse"), (150.0, "better"), (91.0, "usual")):
        assert _verdicts(_rtt(spark, [*rate, {"p50": p50, "better": "higher"}]))[-1][1] == verdict


@pytest.mark.parametrize(
    ("noise", "most", "seen"),
    [
        (lambda chance: chance.gauss(100, 20), 0.005, 0.45),
        (lambda chance: chance.lognormvariate(4.6, 0.3), 0.02, 0.25),
        (lambda chance: 100 + 5 * chance.gauss(0, 1) / max(0.3, chance.random()), 0.02, 0.9),
    ],
    ids=["normal", "log-normal", "heavy tails"],
)
def test_false_alarms_are_rare_and_a_doubling_is_seen(
    spark: SparkSession, noise: Callable[[random.Random], float], most: float, seen: float
) -> None:
    """Boards on which nothing changes in 8 to 24 runs; then all takes twice as long."""
    chance = random.Random(11)
    runs = [
        {"board": f"b-{board}", "at": at, "p50": noise(chance) * (2 if at == last else 1)}
        for board in range(1500)
        for last in [8 + board % 17]
        for at in range(last + 1)
    ]
    found = rig_history.regressions(_rtt(spark, runs)).collect()
    last_at: dict[str, datetime] = {}
    for row in found:
        last_at[row["board_id"]] = max(row["finished_at"], last_at.get(row["board_id"], _LONG_AGO))
    quiet = [row["verdict"] for row in found if row["finished_at"] < last_at[row["board_id"]]]
    judged = [verdict for verdict in quiet if verdict != "too few"]
    assert len(judged) > 10_000
    assert 0 < judged.count("worse") / len(judged) <= most
    doubled = [row["verdict"] for row in found if row["finished_at"] == last_at[row["board_id"]]]
    assert len(doubled) == 1500
    assert doubled.count("worse") / len(doubled) >= seen


def test_a_steady_change_of_a_third_is_seen_at_once(spark: SparkSession) -> None:
    chance = random.Random(5)
    runs = [
        {"board": f"b-{board}", "at": at, "p50": chance.gauss(100, 5) * (1.34 if at == 12 else 1)}
        for board in range(300)
        for at in range(13)
    ]
    found = rig_history.regressions(_rtt(spark, runs)).where("runs_before = 12").collect()
    assert [row["verdict"] for row in found].count("worse") / len(found) >= 0.75


def test_latency_is_pooled_by_board_firmware_and_client(spark: SparkSession) -> None:
    def sample(run: str, fw: str, value: float | None, outcome: str = "passed") -> tuple[Any, ...]:
        leading = (1, run, "desk", _START, 1, "b", "rp2", "p", True, fw, "c")
        return (*leading, "will_abrupt", 1, "will_delay", "ms", value, 0, outcome, "lower", None)

    samples = [sample("run-1", "f1", float(value)) for value in range(1, 51)]
    samples += [sample("run-2", "f1", float(value)) for value in range(51, 101)]
    samples += [sample("run-2", "f1", 9e9, "failed"), sample("run-2", "f1", None)]
    samples += [sample("run-3", "f2", 7.0)]
    frame = spark.createDataFrame(samples, TABLES["rig_samples"])
    first, second = rig_history.latency(frame).collect()
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
    assert [[row[name] for name in told] for row in rig_history.flakes(checks).collect()] == [
        ["f1", 3, 2, 1, 1, 1, 2, 2 / 3],
        ["f2", 2, 0, 0, 2, 0, 0, 0.0],
        ["f3", 0, 0, 0, 0, 1, 0, None],
    ]
