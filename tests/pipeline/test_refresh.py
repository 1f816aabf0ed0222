"""Gold that is made by and by, as readings come, is what is made of all readings at once."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from motemq_pipeline import refresh as refresh_
from motemq_pipeline import rig, rollups
from motemq_pipeline.delta import Table
from motemq_pipeline.parquet_files import File, Target, collected, writing
from motemq_pipeline.refresh import FROM_RIG, FROM_SILVER, Refresh, overlapping
from motemq_pipeline.registry import BUILT_IN, load_registry
from motemq_pipeline.schemas import TABLES
from motemq_pipeline.storage import Storage
from tests.pipeline.conftest import rows_of

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_SILVER = "silver_telemetry"
_BATCHES = 3
_FOLLOWED = FROM_SILVER[:4]


class _Desk:
    """Boards that send for some simulated hours: late, twice, with gaps, or begun again."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._hour = 0
        self._sent: list[tuple[Any, ...]] = []
        self._message = 0

    def batch(self) -> list[tuple[Any, ...]]:
        self._hour += self._chance.choice([0, 1, 1, 30])
        return [self._reading() for _ in range(self._chance.randint(1, 40))]

    def _reading(self) -> tuple[Any, ...]:
        chance = self._chance
        self._message += 1
        if self._sent and chance.random() < 0.2:
            sent = chance.choice(self._sent)
            return (*sent[:-3], self._message, *sent[-2:])  # a copy
        at = _NOON + timedelta(seconds=3600 * self._hour + chance.randrange(3600))
        if chance.random() < 0.2:
            at -= timedelta(hours=chance.randint(1, 5))
        board, sensor = chance.choice("abc"), chance.choice(["t", "h", "end"])
        seq = chance.choice([None, chance.randrange(100), self._message])
        value = chance.choice([float(self._message), -0.5])
        found = (board, sensor, seq, None, "C", value, at, "broker", at, f"home/{board}/x", "fmqp",
                 chance.choice([1, 2]), 0, self._message, sensor == "end", None)  # fmt: skip
        self._sent.append(found)
        return found


class _Tables:
    """Tables with a silver that grows."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.place = Storage.at(folder)
        for name in TABLES:
            Table(self.place, name).create()
        self._batch = 0

    def add(self, rows: list[tuple[Any, ...]]) -> None:
        frame, targets = self.spark.createDataFrame(rows, TABLES[_SILVER]), [Target(_SILVER)]
        (files,) = collected(writing(frame, self.place, targets), self.place, targets)
        assert Table(self.place, _SILVER).add(files, "silver", self._batch)
        self._batch += 1

    def refresh(self, keep_s: dict[str, float] | None = None) -> Refresh:
        return Refresh(self.spark, self.place, load_registry(BUILT_IN), None, keep_s=keep_s)


def _made(tables: Storage, name: str) -> list[dict[str, Any]]:
    """Return rows; sums of floats to ten digits, because they were added in some order."""
    return [
        {
            column: round(value, 9) if isinstance(value, float) else value
            for column, value in row.items()
            if column not in ("sketch", "path", "protocol")
        }
        for row in rows_of(tables.uri, name)
    ]


@settings(deadline=None, max_examples=1, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_what_is_made_by_and_by_is_what_is_made_at_once(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    chance = random.Random(seed)
    tables = _Tables(spark, tmp_path_factory.mktemp("refresh"))
    desk, refresh = _Desk(chance), tables.refresh()
    for number in range(_BATCHES):
        tables.add(desk.batch())
        if chance.random() < 0.3:
            for name in (_SILVER, *_FOLLOWED):
                Table(tables.place, name).compact()
        if chance.random() < 0.3:
            refresh = tables.refresh()  # the run was started again
        if chance.random() < 0.7 or number == _BATCHES - 1:
            assert refresh.follow()
    assert not refresh.follow()
    found = {name: _made(tables.place, name) for name in FROM_SILVER}
    refresh.everything(lambda *_: None)
    for name, rows in found.items():
        assert rows, name
        assert rows == _made(tables.place, name), name


def _reading(number: int, at: datetime) -> tuple[Any, ...]:
    row = ("a", "t", number, None, "C", 1.0, at, "broker", at, "home/a/x", "fmqp", 1, 0, number)
    return (*row, False, None)


def _counting(calls: list[int]) -> Callable[[Any], Any]:
    really = rollups.by_minute

    def by_minute(rows: Any, *more: Any) -> Any:
        calls.append(rows.count())
        return really(rows, *more)

    return by_minute


def test_a_rig_that_has_not_run_yet_gives_no_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = _Tables(spark, tmp_path / "tables")
    folder = tmp_path / "rig"
    rules = load_registry(BUILT_IN)
    refresh = Refresh(spark, tables.place, rules, folder)
    refresh.follow()
    assert _made(tables.place, "rig_events") == []
    folder.mkdir()
    (folder / "events.jsonl").write_text("no event\n")
    assert rig.read_lines(spark, folder, "rig_events").count() == 1
    # Without a rig nothing is read, wherever the program runs.
    monkeypatch.chdir(folder)
    assert rig.read_lines(spark, None, "rig_events").count() == 0
    assert refresh.follow()


def test_a_refresh_that_was_killed_between_two_tables_is_gone_on_with(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = _Tables(spark, tmp_path)
    tables.add([_reading(n, _NOON) for n in range(10)])
    tables.refresh().follow()
    rig_before = {name: Table(tables.place, name).handle().version() for name in FROM_RIG}
    really = Refresh._replaced

    def killed(refresh: Refresh, name: str, *more: Any) -> None:
        if name == "gold_board_health":
            raise KeyboardInterrupt
        really(refresh, name, *more)

    tables.add([_reading(n, _NOON) for n in range(10, 15)])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Refresh, "_replaced", killed)
        tables.refresh().follow()
    assert tables.refresh().follow()
    for name in ("gold_streams", "gold_board_health"):
        assert [row["messages"] for row in rows_of(tmp_path, name)] == [15], name
    # Without a rig nothing of one is made again, whoever starts.
    assert rig_before == {name: Table(tables.place, name).handle().version() for name in FROM_RIG}
    assert not tables.refresh().follow()


def test_what_comes_between_minutes_and_hours_gets_into_both(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = _Tables(spark, tmp_path)
    tables.add([_reading(1, _NOON)])
    refresh = tables.refresh()
    really = Refresh._follow

    def followed(refresh: Refresh, name: str) -> bool:
        found = really(refresh, name)
        if name == "gold_rollup_minute":
            tables.add([_reading(2, _NOON + timedelta(hours=1))])
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Refresh, "_follow", followed)
        refresh.follow()
    assert refresh.follow()
    for name in ("gold_rollup_minute", "gold_rollup_hour"):
        hours = [row["window_start"] for row in rows_of(tmp_path, name)]
        assert hours == [_NOON, _NOON + timedelta(hours=1)], name


def test_a_refresh_reads_hours_that_changed_and_leaves_the_files_of_others(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, hour = _Tables(spark, tmp_path), timedelta(hours=1)
    refresh = tables.refresh()
    for at in range(3):
        tables.add([_reading(10 * at + n, _NOON + at * hour) for n in range(10)])
        refresh.follow()
    minutes = Table(tables.place, "gold_rollup_minute")
    before = {file.path for file in minutes.files()}
    assert len(before) == 3
    read: list[int] = []
    monkeypatch.setattr(rollups, "by_minute", _counting(read))
    tables.add([_reading(60, _NOON + hour)])
    refresh.follow()
    assert read == [11]  # of 31
    after = {file.path for file in minutes.files()}
    assert len(before & after) == 2


def test_readings_of_one_hour_are_read_once_and_those_of_several_kept_apart(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges keep hours apart, and Spark reads everything once more to find them."""
    plans: dict[str, str] = {}
    really = refresh_.collected

    def seen(written: Any, place: Storage, targets: Any) -> Any:
        plans[targets[0].table] = written._jdf.queryExecution().toString()
        return really(written, place, targets)

    monkeypatch.setattr(refresh_, "collected", seen)
    monkeypatch.setattr(rollups, "READINGS_OF_TASK", 1)  # so that readings are many
    tables = _Tables(spark, tmp_path)
    refresh = tables.refresh()
    for hours in (2, 1):
        tables.add([_reading(10 * hours + n, _NOON + n % hours * rollups.HOUR) for n in range(10)])
        plans.clear()
        refresh.follow()
        for name in ("gold_sensor_rollup", "gold_rollup_minute"):
            assert ("rangepartitioning" in plans[name]) == (hours > 1), (name, hours)


def test_without_the_log_of_silver_everything_is_made_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = _Tables(spark, tmp_path)
    tables.add([_reading(n, _NOON) for n in range(10)])
    tables.refresh().follow()
    for batch in range(2):
        tables.add([_reading(20 + batch, _NOON + timedelta(hours=batch))])
    Table(tables.place, _SILVER).handle().create_checkpoint()
    for version in range(3):
        (tmp_path / _SILVER / "_delta_log" / f"{version:020d}.json").unlink()
    assert tables.refresh().follow()
    (stream,) = rows_of(tmp_path, "gold_streams")
    assert (stream["messages"], stream["missing"]) == (12, "10-19")


@pytest.mark.parametrize("log_is_known", [True, False])
def test_a_late_reading_takes_nothing_from_hours_whose_readings_are_no_longer_kept(
    spark: SparkSession, tmp_path: Path, log_is_known: bool
) -> None:
    keep_s = {_SILVER: 86_400.0}
    tables = _Tables(spark, tmp_path)
    tables.add([_reading(n, _NOON) for n in range(10)])
    tables.refresh(keep_s).follow()
    Table(tables.place, _SILVER).expire(datetime.now(UTC).date())
    late = ("b", *_reading(1, _NOON + timedelta(minutes=5))[1:])
    again = (*_reading(3, _NOON)[:5], 99.0, *_reading(3, _NOON)[6:])
    tables.add([late, again, _reading(20, datetime.now(UTC))])
    if not log_is_known:
        Table(tables.place, _SILVER).handle().create_checkpoint()
        for entry in (tmp_path / _SILVER / "_delta_log").glob("*.json"):
            entry.unlink()
    tables.refresh(keep_s).follow()
    for name in _FOLLOWED[:3]:
        counts = sorted((row["board"], row["count"]) for row in rows_of(tmp_path, name))
        assert counts == [("a", 1), ("a", 10), ("b", 1)], name


def test_only_hours_whose_readings_are_no_longer_kept_are_compared_with_what_they_were(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_s = {_SILVER: 86_400.0, "gold_rollup_minute": 86_400.0}
    now = datetime.now(UTC)
    really, compared = rollups.fullest, []

    def fullest(made: Any, before: Any, name: str) -> Any:
        compared.append(name)
        for rows in (made, before):
            assert {row["count"] for row in rows.select("count").collect()} == {1}
        return really(made, before, name)

    monkeypatch.setattr(rollups, "fullest", fullest)
    tables = _Tables(spark, tmp_path)
    tables.add([_reading(1, _NOON), _reading(2, now)])
    assert tables.refresh(keep_s).follow()
    Table(tables.place, _SILVER).expire(now.date() - timedelta(days=1))
    tables.add([_reading(3, now)])
    assert tables.refresh(keep_s).follow()
    assert compared == []
    # As many readings as there were: what is known of the minute stays.
    other = (*_reading(4, _NOON)[:5], 99.0, *_reading(4, _NOON)[6:])
    tables.add([other, _reading(5, now)])
    assert tables.refresh(keep_s).follow()
    assert compared == list(_FOLLOWED[:3])
    for name in _FOLLOWED[:3]:
        found = sorted((row["count"], row["max"]) for row in rows_of(tmp_path, name))
        assert found == [(1, 1.0), (3, 1.0)], name


def test_files_are_chosen_by_their_bounds() -> None:
    def file(path: str, low_s: float, high_s: float) -> File:
        low, high = (
            round((_NOON + timedelta(seconds=s)).timestamp() * 1e6) for s in (low_s, high_s)
        )
        return File(path, 1, 1, None, {"t": low}, {"t": high})

    files = [
        file("before", -7200, -3600.001),
        file("to the end of the hour before", -10, -0.0005),
        file("a millisecond before", -10, -0.001),  # in which its last row may be anywhere
        file("within", 60, 70),
        file("around", -9000, 90_000),
        file("after", 3600, 4000),
        File("unknown", 1, 1, None, {}, {}),
    ]
    chosen = [each.path for each in overlapping(files, "t", [_NOON])]
    assert chosen == ["to the end of the hour before", "within", "around", "unknown"]
    assert overlapping(files, "t", []) == []
