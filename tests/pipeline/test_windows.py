"""Readings to windows in columns, against the same done one reading after the other."""

import itertools
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motemq_pipeline import arrived, sorting, windows
from motemq_pipeline import readings as readings_
from motemq_pipeline.schemas import columns
from motemq_pipeline.sketches import merged
from tests.pipeline.test_arrived import INPUT, Numbers, Reading, once, readings, split, start

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_TABLES = (*windows.TABLES, windows.NUMBERS)
_SPANS = {windows.MINUTES: timedelta(minutes=1), windows.HOURS: timedelta(hours=1)}
_KEYS = {
    windows.SIMULATED: columns(windows.SIMULATED)[:6],
    **dict.fromkeys(_SPANS, columns(windows.MINUTES)[:4]),
}
_COUNTED_SCHEMA = pa.schema(
    [*(INPUT.field(name) for name in arrived.COUNTED), (arrived.MISSING, pa.int64())]
)
_AT_ONCE = 2**62  # all windows are settled


class _Gold:
    """The roll-ups, as refreshes change them."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Reading]] = {table: [] for table in windows.TABLES}
        self._numbers = Numbers()

    def refresh(self, of: list[Reading], chance: random.Random) -> None:
        """Make readings part of windows: first which count, and then the windows."""
        counted = pa.Table.from_batches(
            arrived.as_rows(self._numbers.batches(of, 5)), _COUNTED_SCHEMA
        )
        before = [self._before(table, chance) for table in windows.TABLES]
        rows = pa.concat_tables([counted, *before], promote_options="default")
        rows = rows.take(chance.sample(range(rows.num_rows), rows.num_rows))
        for made in windows.rolled_up(iter(rows.to_batches(7)), _TABLES, is_counted=True):
            self._take(made)

    def everything(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Make windows of all readings there are."""
        for made in windows.rolled_up(batches, _TABLES, is_counted=False, settled_us=_AT_ONCE):
            assert made.settled or made.table == windows.NUMBERS
            self._take(made)

    def _take(self, made: windows.Made) -> None:
        if made.table == windows.NUMBERS:
            names = ["event_time" if n == "hour" else n for n in made.rows.schema.names]
            self._numbers.add(made.rows.rename_columns(names))
        else:
            self.rows[made.table] += made.rows.to_pylist()

    def _before(self, table: str, chance: random.Random) -> pa.Table:
        """Take the rows of a table, and say what they were."""
        time = "hour" if table == windows.SIMULATED else "window_start"
        rows = self.rows[table]
        self.rows[table] = []
        names = [column.split(" ")[0] for column in windows.BEFORE_DDL.split(", ")]
        found = [
            {**{n: row.get(n) for n in names}, "table": table, "event_time": row[time]}
            for row in rows
        ]
        return pa.Table.from_pylist(found, _BEFORE)


_KINDS = {"string": pa.string(), "long": pa.int64(), "double": pa.float64()}
_BEFORE = pa.schema(
    [
        (name, {**_KINDS, "timestamp": INPUT.field("event_time").type, "binary": pa.binary()}[kind])
        for name, kind in (column.split(" ") for column in windows.BEFORE_DDL.split(", "))
    ]
)


def _expected(of: list[Reading], table: str) -> dict[tuple[Any, ...], tuple[list[float], Any]]:
    """Return the values of each window, in order, and its gaps."""
    values, gaps = defaultdict(list), defaultdict(list)
    for reading, missing in once(of):
        if table in _SPANS:
            time = start(reading["event_time"], _SPANS[table])
            key = (reading["board"], reading["sensor"], reading["unit"], time)
        else:
            t_ms = reading["t_ms"]
            hour = start(reading["event_time"], timedelta(hours=1))
            names = ("board", "connection", "sensor", "unit")
            window = None if t_ms is None else t_ms // 10_000 * 10_000
            key = (*(reading[name] for name in names), window, hour)
        values[key].append(reading["value"])
        if missing is not None:
            gaps[key].append(missing)
    return {
        key: (sorted(found), sum(gaps[key]) if key in gaps else None)
        for key, found in values.items()
    }


def _check(rows: dict[str, list[Reading]], of: list[Reading]) -> None:
    for table, found in rows.items():
        expected = _expected(of, table)
        assert len(found) == len(expected), table
        for row in found:
            values, gaps = expected[tuple(row[name] for name in _KEYS[table])]
            assert row["count"] == len(values)
            assert row["mean"] == pytest.approx(statistics.mean(values))
            assert (row["min"], row["max"]) == (values[0], values[-1])
            for percent in (50, 95, *((99,) if table in _SPANS else ())):
                assert row[f"p{percent}"] == values[math.ceil(percent * len(values) / 100) - 1]
            _, (p50, p95, _) = merged([row["sketch"]])
            assert (row["p50"], row["p95"]) == (p50, p95)
            if table in _SPANS:
                assert row["gaps"] == gaps
                assert row["rate_per_s"] == len(values) / _SPANS[table].total_seconds()


@given(
    readings(),
    st.randoms(use_true_random=False),
    st.sampled_from([7, 10, 100]),
    st.sampled_from([2, 64]),
)
def test_windows_that_get_readings_by_and_by_are_those_of_one_after_the_other(
    of: list[Reading], chance: random.Random, held: int, runs: int
) -> None:
    """Of all tables, over random refreshes, of which some have late readings and copies."""
    gold, parts = _Gold(), split(of, chance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "AT_A_TIME", chance.choice([1, 3, 4096]))
        patch.setattr(arrived, "MOST_READINGS", held)
        patch.setattr(sorting, "MOST_RUNS", runs)
        for part in parts:
            gold.refresh(part, chance)
    _check(gold.rows, [reading for part in parts for reading in part])


@given(
    readings(),
    st.randoms(use_true_random=False),
    st.sampled_from([7, 10, 100]),
    st.sampled_from([2, 64]),
)
def test_windows_that_are_made_at_once_are_those_of_one_reading_after_the_other(
    of: list[Reading], chance: random.Random, held: int, runs: int
) -> None:
    gold = _Gold()
    arrivals = [
        {**reading, "partition": at % 2, "message_seq": at // 2} for at, reading in enumerate(of)
    ]
    chance.shuffle(arrivals)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrived, "MOST_READINGS", held)
        patch.setattr(sorting, "MOST_RUNS", runs)
        gold.everything(_batches(arrivals, 7))
    _check(gold.rows, arrivals)
    for table, rows in gold.rows.items():
        times = [row["hour" if table == windows.SIMULATED else "window_start"] for row in rows]
        assert held < len(arrivals) or times == sorted(times)


def test_a_window_of_many_readings_keeps_its_rank_however_they_come() -> None:
    """Without simulated time a window is an hour long; 200 refreshes of 100 readings each."""
    chance, gold = random.Random(5), _Gold()
    values = [chance.gauss(0, 1) for _ in range(20_000)]
    for low in range(0, len(values), 100):
        of = [
            {"board": "a", "connection": 1, "sensor": "t", "unit": "C", "seq": at, "t_ms": None,
             "value": values[at], "event_time": _NOON + timedelta(seconds=at % 3600),
             "partition": 0, "message_seq": at}
            for at in range(low, low + 100)
        ]  # fmt: skip
        gold.refresh(of, chance)
    values.sort()
    for table in (windows.SIMULATED, windows.HOURS):
        (row,) = gold.rows[table]
        assert (row["count"], row["min"], row["max"]) == (len(values), values[0], values[-1])
        assert row["mean"] == pytest.approx(statistics.mean(values))
        for name, share in (("p50", 0.5), ("p95", 0.95)):
            assert abs(values.index(row[name]) / len(values) - share) < 0.01, (table, name)
    assert len(gold.rows[windows.MINUTES]) == 60


def test_of_days_that_are_no_longer_kept_the_fuller_row_stays_when_all_is_made_again() -> None:
    one = {"board": "a", "connection": 1, "unit": "C", "seq": None, "t_ms": None, "partition": 0,
           "message_seq": 0, "event_time": _NOON}  # fmt: skip
    gold = _Gold()
    chance = random.Random(1)
    gold.everything(_batches([{**one, "sensor": s, "value": 1.0} for s in "tthu"], 9))
    before = [gold._before(table, chance) for table in windows.TABLES]
    late = [{**one, "sensor": s, "value": 2.0} for s in "thhx"]
    rows = pa.concat_tables([pa.Table.from_pylist(late, INPUT), *before], promote_options="default")
    gold.everything(iter(rows.to_batches(3)))
    for table, found in gold.rows.items():
        told = sorted((row["sensor"], row["count"], row["max"]) for row in found)
        assert told == [("h", 2, 2.0), ("t", 2, 1.0), ("u", 1, 1.0), ("x", 1, 2.0)], table


def test_a_row_of_before_there_were_sketches_keeps_its_percentiles() -> None:
    one = {"board": "a", "connection": 1, "sensor": "t", "unit": "C", "seq": None, "t_ms": 5,
           "partition": 0, "message_seq": 0, "event_time": _NOON}  # fmt: skip
    gold, chance = _Gold(), random.Random(1)
    gold.everything(_batches([{**one, "value": float(value)} for value in range(9)], 9))
    (row,) = gold.rows[windows.SIMULATED]
    row["sketch"] = None
    gold.refresh([{**one, "value": 10.0}], chance)
    (row,) = gold.rows[windows.SIMULATED]
    assert [row[name] for name in ("count", "mean", "max", "p50", "p95", "sketch")] == [
        10, 4.6, 10.0, 4.0, 8.0, None,
    ]  # fmt: skip


def _batches(of: Sequence[Reading], rows: int) -> Iterator[pa.RecordBatch]:
    return iter(pa.Table.from_pylist(list(of), INPUT).to_batches(rows))


def _made(
    batches: Iterator[pa.RecordBatch], table: str = windows.SIMULATED
) -> Iterator[pa.RecordBatch]:
    for made in windows.rolled_up(batches, [table], is_counted=False, settled_us=_AT_ONCE):
        yield made.rows


@pytest.mark.parametrize(
    ("count", "p50", "p95"),
    [(1, 1, 1), (2, 1, 2), (3, 2, 3), (11, 6, 11), (200, 100, 190), (201, 101, 191)],
)
def test_percentiles_are_values_that_so_many_do_not_exceed(
    count: int, p50: float, p95: float
) -> None:
    one = {"board": "a", "connection": 1, "sensor": "t", "unit": "C", "t_ms": 5}
    of = [
        {**one, "seq": seq, "event_time": _NOON, "value": float(count - seq)}
        for seq in range(count)
    ]
    (found,) = _made(_batches(_arrived(of), 50))
    (row,) = found.to_pylist()
    assert (row["count"], row["p50"], row["p95"]) == (count, p50, p95)


@pytest.mark.parametrize("table", _TABLES)
def test_a_task_without_readings_makes_nothing(table: str) -> None:
    assert list(_made(iter([]), table)) == []
    assert list(_made(_batches([], 1), table)) == []


def _arrived(of: list[Reading]) -> list[Reading]:
    return [{**reading, "partition": 0, "message_seq": at} for at, reading in enumerate(of)]


def test_streams_of_very_many_kinds_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the codes of all columns together would need more than 64 bits."""
    monkeypatch.setattr(readings_, "_MOST_CODES", 8)
    streams = list(itertools.product("abc", (1, 2, 3), "xyz"))
    of = [
        {"board": board, "connection": connection, "sensor": sensor, "unit": "C", "seq": 1,
         "t_ms": 0, "value": 1.0, "event_time": _NOON}
        for board, connection, sensor in random.Random(1).sample(streams, 27)
    ]  # fmt: skip
    found = [row for batch in _made(_batches(_arrived(of), 27)) for row in batch.to_pylist()]
    rows = [(row["board"], row["connection"], row["sensor"]) for row in found]
    assert rows == streams


@pytest.mark.parametrize("table", windows.TABLES)
@pytest.mark.parametrize("window_ms", [1, 1_000_000])
def test_an_hour_of_a_board_may_have_more_readings_than_a_task_holds(
    table: str, window_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, count, batch = 4000, 80_000, 500
    monkeypatch.setattr(arrived, "MOST_READINGS", most)
    monkeypatch.setattr(sorting, "MOST_RUNS", 4)
    base = pa.total_allocated_bytes()
    held: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for low in range(0, count, batch):
            held.append(pa.total_allocated_bytes() - base)
            seq = (np.arange(low, low + batch) * 7919) % count  # each once, in no order
            columns = {
                "board": ["a"] * batch, "connection": [1] * batch, "sensor": ["t"] * batch,
                "unit": ["C"] * batch, "seq": seq, "t_ms": seq * 10_000 // window_ms,
                "value": seq.astype(float), "event_time": [_NOON] * batch,
                "partition": [0] * batch, "message_seq": range(low, low + batch),
            }  # fmt: skip
            yield pa.RecordBatch.from_pydict(columns, INPUT)

    total = gaps = 0
    for found in _made(batches(), table):
        held.append(pa.total_allocated_bytes() - base)
        for row in found.to_pylist():
            total += row["count"]
            gaps += row.get("gaps") or 0
    assert (total, gaps) == (count, 0)
    a_reading = 100  # bytes, at most, in Arrow
    assert max(held) < 4 * most * a_reading < count * a_reading / 4
