"""Readings to windows in columns, against the same done one reading after the other."""

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motemq_pipeline import sorting, windows
from motemq_pipeline.schemas import arrow_schema, columns

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_BEFORE_1970 = datetime(1969, 12, 31, 23, 30, tzinfo=UTC)
_Reading = dict[str, Any]
_READINGS = st.lists(
    st.fixed_dictionaries(
        {
            "board": st.sampled_from(["a", "b", "ä"]),
            "connection": st.sampled_from([1, 2**40]),
            "sensor": st.sampled_from(["t", "h"]),
            "unit": st.sampled_from(["C", None]),
            "seq": st.none() | st.integers(0, 12) | st.just(2**53 - 1),
            "t_ms": st.none() | st.sampled_from([0, 9_999, 10_000, 2**62]),
            "value": st.integers(-3, 9).map(float),
            "event_time": st.builds(
                lambda base, s: base + timedelta(seconds=s),
                st.sampled_from([_NOON, _BEFORE_1970]),
                st.sampled_from([0, 59.999999, 60, 3599.5, 3600]),
            ),
        }
    ),
    max_size=30,
)
_TYPES = arrow_schema("silver_telemetry")
_INPUT = pa.schema([_TYPES.field(name) for name in windows.COLUMNS])


def _batches(readings: list[_Reading], rows: int) -> Iterator[pa.RecordBatch]:
    return iter(pa.Table.from_pylist(readings, _INPUT).to_batches(rows))


def _arrived(readings: list[_Reading], order: list[int]) -> list[_Reading]:
    """Return readings as they come to a task: in some order."""
    numbered = [
        {**reading, "partition": at % 2, "message_seq": at // 2}
        for at, reading in enumerate(readings)
    ]
    return [numbered[at] for at in order]


def _floor(time: datetime, length: timedelta) -> datetime:
    return time - (time - datetime(1970, 1, 1, tzinfo=UTC)) % length


def _once(readings: list[_Reading]) -> Iterator[tuple[_Reading, int | None]]:
    """Yield each reading once an hour, and how many numbers are missing before it."""

    def stream(reading: _Reading) -> tuple[Any, ...]:
        hour = _floor(reading["event_time"], timedelta(hours=1))
        return reading["board"], reading["connection"], hour

    streams = defaultdict(list)
    for reading in readings:
        if reading["seq"] is None:
            yield reading, None
        else:
            streams[stream(reading)].append(reading)
    for of_stream in streams.values():
        of_stream.sort(
            key=lambda r: (r["seq"], r["sensor"].encode(), r["partition"], r["message_seq"])
        )
        before = None
        for _, copies in itertools.groupby(of_stream, lambda r: (r["seq"], r["sensor"])):
            first = next(copies)
            yield first, 0 if before is None else max(first["seq"] - before - 1, 0)
            before = first["seq"]


@given(
    _READINGS.flatmap(lambda r: st.tuples(st.just(r), st.permutations(range(len(r))))),
    st.integers(1, 3),
    st.sampled_from([7, 10, 14, 100]),
    st.sampled_from([2, 64]),
)
def test_windows_of_simulated_time_are_those_of_one_reading_after_the_other(
    case: tuple[list[_Reading], list[int]], at_a_time: int, held: int, runs: int
) -> None:
    readings = _arrived(*case)
    expected = defaultdict(list)
    for reading, _ in _once(readings):
        hour, t_ms = _floor(reading["event_time"], timedelta(hours=1)), reading["t_ms"]
        window = None if t_ms is None else t_ms // 10_000 * 10_000
        names = ("board", "connection", "sensor", "unit")
        expected[*(reading[name] for name in names), window, hour].append(reading["value"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "_AT_A_TIME", at_a_time)
        patch.setattr(windows, "MOST_READINGS", held)
        patch.setattr(sorting, "MOST_RUNS", runs)
        made = list(windows.by_simulated_time(_batches(readings, 7)))
    assert all(batch.num_rows <= at_a_time for batch in made)
    found = [row for batch in made for row in batch.to_pylist()]
    key = columns("gold_sensor_rollup")[:6]
    assert len(found) == len(expected)
    for row in found:
        values = sorted(expected[tuple(row[name] for name in key)])
        assert row["count"] == len(values)
        assert row["mean"] == pytest.approx(statistics.mean(values))
        assert (row["min"], row["max"]) == (values[0], values[-1])
        for name, share in (("p50", 50), ("p95", 95)):
            assert row[name] == values[math.ceil(share * len(values) / 100) - 1]
    ordered = [(row["hour"], row["board"].encode(), row["connection"]) for row in found]
    assert ordered == sorted(ordered)


@given(
    _READINGS.flatmap(lambda r: st.tuples(st.just(r), st.permutations(range(len(r))))),
    st.integers(1, 3),
    st.sampled_from([7, 10, 14, 100]),
    st.sampled_from([2, 64]),
)
def test_minutes_have_each_value_once_and_what_is_missing(
    case: tuple[list[_Reading], list[int]], most: int, held: int, runs: int
) -> None:
    readings = _arrived(*case)
    expected = defaultdict(list)
    for reading, missing in _once(readings):
        minute = _floor(reading["event_time"], timedelta(minutes=1))
        names = ("board", "sensor", "unit")
        key = (*(reading[name] for name in names), minute)
        expected[key].append((reading["value"], missing))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "MOST_VALUES", most)
        patch.setattr(windows, "MOST_READINGS", held)
        patch.setattr(sorting, "MOST_RUNS", runs)
        found = [row for batch in windows.by_minute(_batches(readings, 7))
                 for row in batch.to_pylist()]  # fmt: skip
    values, told = defaultdict(list), defaultdict(list)
    for row in found:
        key = tuple(row[name] for name in ("board", "sensor", "unit", "window_start"))
        values[key] += row["values"]
        assert 1 <= len(row["values"]) <= most
        if row["gaps"] is not None:
            told[key].append(row["gaps"])
    assert {key: sorted(of) for key, of in values.items()} == {
        key: sorted(value for value, _ in of) for key, of in expected.items()
    }
    for key, of in expected.items():
        gaps = [missing for _, missing in of if missing is not None]
        assert sum(told[key]) == sum(gaps)
        assert bool(told[key]) == bool(gaps)  # null, where nothing is numbered
        if held > len(readings):
            assert len(told[key]) <= 1


@pytest.mark.parametrize(
    ("count", "p50", "p95"),
    [(1, 1, 1), (2, 1, 2), (3, 2, 3), (11, 6, 11), (200, 100, 190), (201, 101, 191)],
)
def test_percentiles_are_values_that_so_many_do_not_exceed(
    count: int, p50: float, p95: float
) -> None:
    one = {"board": "a", "connection": 1, "sensor": "t", "unit": "C", "t_ms": 5}
    readings = [
        {**one, "seq": seq, "event_time": _NOON, "value": float(count - seq)}
        for seq in range(count)
    ]
    (found,) = windows.by_simulated_time(_batches(_arrived(readings, list(range(count))), 50))
    (row,) = found.to_pylist()
    assert (row["count"], row["p50"], row["p95"]) == (count, p50, p95)


@pytest.mark.parametrize("made", [windows.by_simulated_time, windows.by_minute])
def test_a_task_without_readings_makes_nothing(made: Callable[..., Iterator[Any]]) -> None:
    assert list(made(iter([]))) == []
    assert list(made(iter(pa.Table.from_pylist([], _INPUT).to_batches()))) == []


def test_streams_of_very_many_kinds_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the codes of all columns together would need more than 64 bits."""
    monkeypatch.setattr(windows, "_MOST_CODES", 8)
    readings = _arrived(
        [
            {"board": board, "connection": of, "sensor": sensor, "unit": "C", "seq": 1, "t_ms": 0,
             "value": 1.0, "event_time": _NOON}
            for board in "abc" for of in (1, 2, 3) for sensor in "xyz"
        ],
        list(np.random.default_rng(1).permutation(27)),
    )  # fmt: skip
    rows = [tuple(row[name] for name in ("board", "connection", "sensor"))
            for found in windows.by_simulated_time(_batches(readings, 27))
            for row in found.to_pylist()]  # fmt: skip
    assert rows == sorted(itertools.product("abc", (1, 2, 3), "xyz"))


@pytest.mark.parametrize("made", [windows.by_simulated_time, windows.by_minute])
@pytest.mark.parametrize("window_ms", [1, 1_000_000])
def test_an_hour_of_a_board_may_have_more_readings_than_a_task_holds(
    made: Callable[..., Iterator[Any]], window_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, count, batch = 4000, 80_000, 500
    monkeypatch.setattr(windows, "MOST_READINGS", most)
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
            yield pa.RecordBatch.from_pydict(columns, _INPUT)

    total = gaps = 0
    for found in made(batches()):
        held.append(pa.total_allocated_bytes() - base)
        for row in found.to_pylist():
            total += row["count"] if "count" in row else len(row["values"])
            gaps += row.get("gaps") or 0
    assert (total, gaps) == (count, 0)
    a_reading = 100  # bytes, at most, in Arrow
    assert max(held) < 4 * most * a_reading < count * a_reading / 4
