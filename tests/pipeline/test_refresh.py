"""Gold that is made by and by, as readings come, is what is made of all readings at once."""

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from benchmarks.cluster.object_store import object_store
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
_FOLLOWED = FROM_SILVER[:5]
_WINDOWS = FROM_SILVER[:3]


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

    def __init__(self, spark: SparkSession, place: Storage) -> None:
        self.spark = spark
        self.place = place
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


@pytest.mark.parametrize("most_touched", [0, 2_000_000])
@settings(deadline=None, max_examples=1, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_what_is_made_by_and_by_is_what_is_made_at_once(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    most_touched: int,
    seed: int,
) -> None:
    monkeypatch.setattr(refresh_, "_MOST_TOUCHED", most_touched)
    chance = random.Random(seed)
    tables = _Tables(spark, Storage.at(tmp_path_factory.mktemp("refresh")))
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
    assert found.pop("gold_numbers")
    refresh.everything(lambda *_: None)
    for name, rows in found.items():
        assert rows, name
        assert rows == _made(tables.place, name), name


def _reading(number: int, at: datetime) -> tuple[Any, ...]:
    row = ("a", "t", number, None, "C", 1.0, at, "broker", at, "home/a/x", "fmqp", 1, 0, number)
    return (*row, False, None)


def _silver_rows_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note how many rows the files of silver have that Spark is given."""
    read: list[int] = []
    really = Table.read

    def seen(table: Table, session: Any, files: Any = None, at: Any = None) -> Any:
        if table.name == _SILVER:
            read.append(sum(file.rows for file in (table.files(at) if files is None else files)))
        return really(table, session, files, at)

    monkeypatch.setattr(Table, "read", seen)
    return read


def test_a_rig_that_has_not_run_yet_gives_no_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = _Tables(spark, Storage.at(tmp_path / "tables"))
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
    tables = _Tables(spark, Storage.at(tmp_path))
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


def _told(tables: _Tables) -> dict[str, list[dict[str, Any]]]:
    return {name: _made(tables.place, name) for name in _WINDOWS}


@pytest.mark.parametrize("killed_at", range(5))
@pytest.mark.parametrize("more_comes", [False, True])
def test_a_refresh_that_is_killed_between_two_commits_is_gone_on_with(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    killed_at: int,
    more_comes: bool,
) -> None:
    """Each roll-up is a commit. Those that are through have the new readings, once."""
    tables = _Tables(spark, Storage.at(tmp_path / "tables"))
    parts = [[_reading(n, _NOON + timedelta(seconds=n)) for n in range(10 * at, 10 * at + 10)]
             for at in range(3)]  # fmt: skip
    tables.add(parts[0])
    tables.refresh().follow()
    # A copy, one that comes late and fills a gap, and what is new.
    late = _reading(15, _NOON + timedelta(seconds=15))
    tables.add([row for row in parts[1] if row[2] != 15] + [parts[0][3]])
    really, commits = Table.change, iter(range(100))

    def change(table: Table, *more: Any) -> bool:
        if next(commits) == killed_at:
            raise KeyboardInterrupt
        return really(table, *more)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Table, "change", change)
        tables.refresh().follow()
    if more_comes:
        tables.add([late, *parts[2]])
    refresh = tables.refresh()
    for _ in range(4):
        refresh.follow()
    assert not refresh.follow()
    found = _told(tables)
    tables.refresh().everything(lambda *_: None)
    assert found == _told(tables)
    assert {row["count"] for row in found["gold_rollup_hour"]} == {30 if more_comes else 19}


_KILLED = """
import os, pathlib, signal, sys
from motemq_pipeline.delta import Table
from motemq_pipeline.refresh import Refresh
from motemq_pipeline.registry import BUILT_IN, load_registry
from motemq_pipeline.sessions import spark_session
from motemq_pipeline.storage import Storage

really, commits = Table.change, iter(range(100))

def change(table, *more):
    found = really(table, *more)
    if next(commits) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return found

Table.change = change
with spark_session(pathlib.Path(sys.argv[2]), brief=True) as spark:
    Refresh(spark, Storage.at(pathlib.Path(sys.argv[1])), load_registry(BUILT_IN), None).follow()
"""


def test_a_driver_that_is_killed_between_two_commits_is_gone_on_with(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By the operating system, with Java and all, when two of four roll-ups are through."""
    tables = _Tables(spark, Storage.at(tmp_path / "tables"))
    tables.add([_reading(n, _NOON + timedelta(seconds=20 * n)) for n in range(10)])
    tables.refresh().follow()
    seen = refresh_.seen_by_gold(tables.place, Table(tables.place, _SILVER))
    tables.add([_reading(n, _NOON + timedelta(seconds=20 * n)) for n in range(5, 20)])
    argv = [sys.executable, "-c", _KILLED, str(tmp_path / "tables"), str(tmp_path / "spark.log")]
    ended = subprocess.run(argv, check=False, capture_output=True, timeout=120)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    now = refresh_.seen_by_gold(tables.place, Table(tables.place, _SILVER))
    assert [a == b for a, b in zip(seen, now, strict=True)] == [False, False, True, True, True]
    tables.add([_reading(20, _NOON)])
    refresh = tables.refresh()
    while refresh.follow():
        pass
    found = _told(tables)
    tables.refresh().everything(lambda *_: None)
    assert found == _told(tables)
    assert [row["count"] for row in found["gold_rollup_hour"]] == [21]


def test_a_refresh_that_is_repeated_changes_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a driver that is cut off, and commits what another has committed by then."""
    tables = _Tables(spark, Storage.at(tmp_path))
    tables.add([_reading(n, _NOON) for n in range(10)])
    tables.refresh().follow()
    tables.add([_reading(n, _NOON) for n in range(8, 20)])
    really = Table.change

    def change(table: Table, *more: Any) -> bool:
        with monkeypatch.context() as patch:
            patch.setattr(Table, "change", really)
            tables.refresh().follow()
        return really(table, *more)

    with monkeypatch.context() as patch:
        patch.setattr(Table, "change", change)
        tables.refresh().follow()
    assert [row["count"] for row in rows_of(tmp_path, "gold_rollup_hour")] == [20]
    assert not tables.refresh().follow()


def test_a_refresh_reads_what_is_new_and_of_gold_the_files_that_it_changes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many readings the hour has; a late one too."""
    tables, minute = _Tables(spark, Storage.at(tmp_path)), timedelta(minutes=1)
    refresh = tables.refresh()
    for at in range(4):
        new = [
            (
                *_reading(n, _NOON + at * minute)[:3],
                60_000 * at,
                *_reading(n, _NOON + at * minute)[4:],
            )
            for n in range(100 * at, 100 * at + 100)
        ]
        tables.add(new)
        refresh.follow()
    named = {name: Table(tables.place, name) for name in _WINDOWS}
    before = {name: {file.path for file in table.files()} for name, table in named.items()}
    read = _silver_rows_read(monkeypatch)
    late = _reading(1000, _NOON + minute)
    tables.add([(*late[:3], 60_005, *late[4:])])
    refresh.follow()
    assert sum(read) == 2  # once for the roll-ups, once for the streams
    for name, files in before.items():
        after = {file.path for file in named[name].files()}
        assert len(files - after) == 1, name
        assert len(files & after) == (0 if name == "gold_rollup_hour" else 3), name
    assert sum(row["count"] for row in rows_of(tmp_path, "gold_sensor_rollup")) == 401
    assert sorted(row["count"] for row in rows_of(tmp_path, "gold_rollup_minute")) == [
        100, 100, 100, 101,
    ]  # fmt: skip


def test_after_all_is_made_a_refresh_leaves_the_windows_that_are_settled(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables, minute = _Tables(spark, Storage.at(tmp_path)), timedelta(minutes=1)
    tables.add([_reading(n, _NOON + n * minute) for n in range(60)])
    tables.refresh().follow()
    minutes = Table(tables.place, "gold_rollup_minute")
    before = {file.path: file.rows for file in minutes.files()}
    tables.add([_reading(60, _NOON + 59 * minute)])
    tables.refresh().follow()
    gone = before.keys() - {file.path for file in minutes.files()}
    assert sum(before[path] for path in gone) <= 6


def test_new_readings_of_one_hour_are_read_once_and_those_of_several_kept_apart(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges keep hours apart, and Spark reads everything once more to find them."""
    plans: list[str] = []
    really = refresh_.collected

    def seen(written: Any, place: Storage, targets: Any) -> Any:
        if targets[0].table in _WINDOWS:
            plans.append(written._jdf.queryExecution().toString())
        return really(written, place, targets)

    monkeypatch.setattr(refresh_, "collected", seen)
    monkeypatch.setattr(rollups, "READINGS_OF_TASK", 1)  # so that readings are many
    tables = _Tables(spark, Storage.at(tmp_path))
    refresh = tables.refresh()
    for hours in (2, 1):
        tables.add([_reading(10 * hours + n, _NOON + n % hours * rollups.HOUR) for n in range(10)])
        plans.clear()
        refresh.follow()
        (plan,) = plans
        assert ("rangepartitioning" in plan) == (hours > 1), hours


_DAY_S = 86_400.0


def _of_the_version_before(spark: SparkSession, place: Storage) -> tuple[_Tables, datetime]:
    """Return tables with a day whose readings are gone, and the time of the readings there are.

    That version had no ``gold_numbers``, and no ``sketch`` in ``gold_sensor_rollup``. When all is
    made again, each roll-up has a row of 10 readings, of before, and one of 15.
    """
    tables = _Tables(spark, place)
    now = datetime.now(UTC)
    tables.add([_reading(n, at) for at in (_NOON, now) for n in range(10)])
    tables.refresh({_SILVER: _DAY_S}).follow()
    name = "gold_sensor_rollup"
    old = Table(place, name).dataset().to_table().drop_columns(["sketch"])
    for gone in ("gold_numbers", name):
        filesystem, path = place.within(gone).filesystem()
        for file in filesystem.get_file_info(pafs.FileSelector(path, recursive=True)):
            if file.is_file:
                filesystem.delete_file(file.path)
    made = DeltaTable.create(
        place.within(name).uri,
        old.schema,
        partition_by=["date"],
        configuration={"motemq.version": "2"},
        raise_if_key_not_exists=False,
        storage_options=dict(place.options),
    )
    write_deltalake(made, old, mode="append")
    Table(place, _SILVER).expire(now.date() - timedelta(days=1))
    tables.add([_reading(n, now) for n in range(5, 15)])
    return tables, now


def test_tables_of_the_version_before_are_gone_on_with(spark: SparkSession, tmp_path: Path) -> None:
    tables, now = _of_the_version_before(spark, Storage.at(tmp_path))
    name = "gold_sensor_rollup"
    refresh = tables.refresh({_SILVER: _DAY_S})
    assert refresh.follow()
    Table(tables.place, name).check_version()
    for each in _WINDOWS:
        counts = sorted(row["count"] for row in rows_of(tmp_path, each))
        assert counts == [10, 15], each
    # What is past has no sketch there, so percentiles stay when one comes late.
    tables.add([_reading(50, _NOON), _reading(50, now)])
    assert refresh.follow()
    rows = {row["count"]: row["sketch"] for row in rows_of(tmp_path, name)}
    assert rows.keys() == {11, 16}
    assert (rows[11] is None, rows[16] is None) == (True, False)


# The process ends as soon as the table's log has that entry: whatever wrote it. It is looked for
# whenever a function of delta-rs, or of what calls it, begins or returns.
_UPGRADE_KILLED = """
import os, pathlib, signal, sys
from motemq_pipeline.refresh import SILVER, Refresh
from motemq_pipeline.registry import BUILT_IN, load_registry
from motemq_pipeline.sessions import spark_session
from motemq_pipeline.storage import Storage

place = Storage.at(sys.argv[1])
table, entry = place.within(sys.argv[2]), sys.argv[3]

def look(frame, event, of):
    if frame.f_globals.get("__name__", "").startswith(("deltalake", "motemq_pipeline.delta")):
        if table.read_bytes(entry) is not None:
            os.kill(os.getpid(), signal.SIGKILL)

with spark_session(pathlib.Path(sys.argv[4]), brief=True) as spark:
    refresh = Refresh(spark, place, load_registry(BUILT_IN), None, keep_s={SILVER: 86_400.0})
    sys.setprofile(look)
    refresh.follow()
"""


@pytest.fixture(params=["folder", "object store"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Storage]:
    if request.param == "folder":
        yield Storage.at(tmp_path / "tables")
        return
    with object_store(tmp_path / "store") as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        # Workers of a Spark that was there before do not have them in their environment.
        options = {name.lower(): value for name, value in store.environment.items()}
        yield Storage.at("s3://tables/upgrade", options)


@pytest.mark.parametrize(
    ("name", "entries"), [("gold_sensor_rollup", 1), ("gold_sensor_rollup", 2), ("gold_numbers", 1)]
)
def test_an_upgrade_that_is_killed_behind_any_commit_is_gone_on_with(
    spark: SparkSession, place: Storage, tmp_path: Path, name: str, entries: int
) -> None:
    """By the operating system. What is past is in those tables alone."""
    tables, now = _of_the_version_before(spark, place)
    table = Table(place, name)
    last = (table.handle().version() if table.exists() else -1) + entries
    argv = [place.uri, name, f"_delta_log/{last:020d}.json", str(tmp_path / "spark.log")]
    ended = subprocess.run(
        [sys.executable, "-c", _UPGRADE_KILLED, *argv],
        check=False,
        capture_output=True,
        timeout=120,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert table.handle().version() == last
    tables.add([_reading(n, now) for n in range(14, 17)])
    refresh = tables.refresh({_SILVER: _DAY_S})
    while refresh.follow():
        pass
    for each in _WINDOWS:
        Table(tables.place, each).check_version()
        counts = sorted(row["count"] for row in rows_of(place.uri, each))
        assert counts == [10, 17], each
    # The numbers are those of the readings, too: the first is a copy.
    tables.add([_reading(3, now), _reading(20, now)])
    assert refresh.follow()
    for each in _WINDOWS:
        counts = sorted(row["count"] for row in rows_of(place.uri, each))
        assert counts == [10, 18], each


def test_without_the_log_of_silver_everything_is_made_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = _Tables(spark, Storage.at(tmp_path))
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
    tables = _Tables(spark, Storage.at(tmp_path))
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
    for name in _WINDOWS:
        counts = sorted((row["board"], row["count"]) for row in rows_of(tmp_path, name))
        assert counts == [("a", 1), ("a", 10), ("b", 1)], name


def test_streams_whose_readings_are_no_longer_kept_stay_where_all_is_made_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    keep_s = {_SILVER: _DAY_S}
    tables, now = _Tables(spark, Storage.at(tmp_path)), datetime.now(UTC)

    def of_connection(connection: int, number: int, at: datetime) -> tuple[Any, ...]:
        row = _reading(number, at)
        return (*row[:11], connection, *row[12:])

    tables.add([of_connection(1, n, _NOON) for n in range(10)])
    tables.add([of_connection(2, n, _NOON if n < 5 else now) for n in range(6)])
    tables.add([of_connection(3, n, now) for n in range(2)])
    tables.refresh(keep_s).follow()
    Table(tables.place, _SILVER).expire(now.date() - timedelta(days=1))
    tables.add([of_connection(3, 2, now), of_connection(4, 0, now)])
    Table(tables.place, _SILVER).handle().create_checkpoint()
    for entry in (tmp_path / _SILVER / "_delta_log").glob("*.json"):
        entry.unlink()
    assert tables.refresh(keep_s).follow()
    found = {row["connection"]: row["messages"] for row in rows_of(tmp_path, "gold_streams")}
    assert found == {1: 10, 2: 6, 3: 3, 4: 1}
    assert [row["messages"] for row in rows_of(tmp_path, "gold_board_health")] == [20]
    # A backfill has all that its tables are made from.
    tables.refresh().everything(lambda *_: None)
    found = {row["connection"]: row["messages"] for row in rows_of(tmp_path, "gold_streams")}
    assert found == {2: 1, 3: 3, 4: 1}


def test_late_readings_of_days_that_are_no_longer_kept_come_to_what_was_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    keep_s = {_SILVER: 86_400.0}
    now = datetime.now(UTC)
    tables = _Tables(spark, Storage.at(tmp_path))
    tables.add([_reading(1, _NOON), _reading(2, now)])
    refresh = tables.refresh(keep_s)
    assert refresh.follow()
    Table(tables.place, _SILVER).expire(now.date() - timedelta(days=1))
    other = (*_reading(4, _NOON)[:5], 99.0, *_reading(4, _NOON)[6:])
    tables.add([other, _reading(1, _NOON), _reading(3, now)])  # the second is a copy
    assert refresh.follow()
    expected = [(2, 1.0), (2, 99.0)]
    for name in _WINDOWS:
        found = sorted((row["count"], row["max"]) for row in rows_of(tmp_path, name))
        assert found == expected, name
    # Also if all is made again, of what is left.
    tables.refresh(keep_s).everything(lambda *_: None)
    for name in _WINDOWS:
        found = sorted((row["count"], row["max"]) for row in rows_of(tmp_path, name))
        assert found == expected, name
    # And what came is known then, too.
    tables.add([_reading(1, _NOON)])
    tables.refresh(keep_s).follow()
    for name in _WINDOWS:
        assert sorted(row["count"] for row in rows_of(tmp_path, name)) == [2, 2], name


@pytest.mark.parametrize("keep_s", [{}, {_SILVER: 1e9}], ids=["no longer", "longer"])
def test_days_that_were_deleted_stay_in_roll_ups_also_if_they_would_be_kept_by_now(
    spark: SparkSession, tmp_path: Path, keep_s: dict[str, float]
) -> None:
    now = datetime.now(UTC)
    tables = _Tables(spark, Storage.at(tmp_path))
    tables.add([_reading(n, at) for at in (_NOON, now) for n in range(3)])
    tables.refresh({_SILVER: _DAY_S}).follow()
    silver = Table(tables.place, _SILVER)
    silver.expire(now.date() - timedelta(days=1))
    tables.refresh(keep_s).everything(lambda *_: None)
    for name in _WINDOWS:
        assert sorted(row["count"] for row in rows_of(tmp_path, name)) == [3, 3], name
    (stream,) = rows_of(tmp_path, "gold_streams")
    assert stream["messages"] == 6
    # A backfill has all that its tables are made from.
    tables.refresh().everything(lambda *_: None)
    for name in _WINDOWS:
        assert [row["count"] for row in rows_of(tmp_path, name)] == [3], name


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
    chosen = [each.path for each in overlapping(files, "t", [_NOON], rollups.HOUR)]
    assert chosen == ["to the end of the hour before", "within", "around", "unknown"]
    assert overlapping(files, "t", [], rollups.HOUR) == []
