"""Which numbers of a stream are missing, against a set of those that came."""

import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motemq_pipeline import sequence_numbers
from motemq_pipeline.schemas import arrow_schema
from motemq_pipeline.sequence_numbers import (
    _PARTS_ARROW,
    MOST_MISSING,
    Numbers,
    _joined,
    _seen,
    ranges_of,
)

_STREAMS = 3
# Of each: its stream and its number.
_ARRIVALS = st.lists(st.tuples(st.integers(0, _STREAMS - 1), st.integers(0, 60)), max_size=80)


@given(st.lists(_ARRIVALS, max_size=8))
def test_what_is_missing_is_what_did_not_come(batches: list[list[tuple[int, int]]]) -> None:
    each, all_came = [Numbers() for _ in range(_STREAMS)], [set[int]() for _ in range(_STREAMS)]
    for batch in batches:
        arrived = np.array(batch, np.int64).reshape(-1, 2)
        ranges, of_stream = ranges_of(arrived[:, 0], arrived[:, 1])
        for stream, came in enumerate(all_came):
            of_it = ranges[of_stream == stream].tolist()
            each[stream].take([(first, last) for first, last in of_it])
            came |= {number for of, number in batch if of == stream}
            each[stream] = _as_expected(each[stream], came)


def _as_expected(numbers: Numbers, came: set[int]) -> Numbers:
    """Look at what is known of the numbers that came; return it as tables keep it."""
    if numbers.first is not None:
        numbers = Numbers.from_text(numbers.first, numbers.expected, numbers.to_text())
    missing = set(range(min(came, default=0), max(came, default=-1) + 1)) - came
    found = [n for first, last in numbers.missing for n in range(first, last + 1)]
    assert found == sorted(missing)
    assert numbers.gaps == len(missing)
    assert numbers.first == min(came, default=None)
    assert numbers.expected == max(came, default=-1) + 1
    assert numbers.different == len(came)
    assert [n for low, high in numbers.arrived() for n in range(low, high + 1)] == sorted(came)
    return numbers


def test_of_very_many_gaps_the_oldest_are_only_counted() -> None:
    numbers = Numbers()
    numbers.take([(number, number) for number in range(1, 2 * MOST_MISSING + 23, 2)])
    assert len(numbers.missing) == MOST_MISSING
    assert (numbers.given_up, numbers.gaps) == (10, MOST_MISSING + 10)
    assert numbers.to_text().startswith("10 older ones, 22, 24")
    assert Numbers.from_text(1, numbers.expected, numbers.to_text()) == numbers
    numbers.take([(2, 2)])  # too late to be known as missing
    assert numbers.gaps == MOST_MISSING + 10


@pytest.mark.parametrize(("together", "parts"), [(1000, 3), (4, 4)])
def test_a_task_sees_of_each_stream_what_came_and_what_came_last(
    monkeypatch: pytest.MonkeyPatch, together: int, parts: int
) -> None:
    """Also where one read of the broker brought several messages, which have one time."""
    monkeypatch.setattr(sequence_numbers, "_TOGETHER", together)
    readings = [
        # board, connection, seq, received_at, last, path
        ("a", 1, 0, 5, False, "first"),
        ("b", 1, None, 7, None, "b"),
        ("a", 1, 1, 9, False, "second"),
        ("a", 1, 3, 9, True, "last"),
        ("a", 2, 2**53 - 1, 3, False, "other"),
        ("a", 1, 1, 4, False, "late"),
    ]
    names = ("board", "connection", "seq", "received_at", "last", "path")
    rows = [{**dict(zip(names, row, strict=True)), "protocol": "fmqp"} for row in readings]
    silver = arrow_schema("silver_telemetry")
    schema = pa.schema([silver.field(name) for name in (*names, "protocol")])
    batches = pa.Table.from_pylist(rows, schema).to_batches(2)
    every = [row for part in _seen(iter(batches)) for row in part.to_pylist()]
    found = [row for row in every if row["messages"] is not None]
    assert len(found) == parts
    one = [row for row in found if (row["board"], row["connection"]) == ("a", 1)]
    assert sum(row["messages"] for row in one) == 4
    assert max(one, key=lambda row: row["last_at"])["path"] == "last"
    assert any(row["complete"] for row in one)
    (unnumbered,) = [row for row in found if row["board"] == "b"]
    told = ("numbered", "low", "high", "complete")
    assert [unnumbered[name] for name in told] == [0, None, None, None]
    (other,) = [row for row in found if row["connection"] == 2]
    assert [other[name] for name in told] == [1, 2**53 - 1, 2**53 - 1, False]
    if parts == 3:
        assert [one[0][name] for name in told] == [4, 0, 1, True]
        (further,) = [row for row in every if row["messages"] is None]
        assert {name: value for name, value in further.items() if value is not None} == {
            **{"board": "a", "connection": 1, "low": 3, "high": 3}
        }


def _part(**said: object) -> dict[str, object]:
    zero = datetime(2026, 1, 1, tzinfo=UTC)
    whole = {"protocol": "fmqp", "path": "a", "first_at": zero, "last_at": zero, "messages": 0}
    return {"board": "b", "connection": 1, **whole, "numbered": 0, **said}


@given(st.data())
def test_however_ranges_come_together_the_same_are_missing(data: st.DataObject) -> None:
    """Whether all of a stream are looked at at once, or few at a time."""
    most, together = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    arrivals = st.lists(st.integers(0, 60), max_size=40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequence_numbers, "MOST_MISSING", most)
        patch.setattr(sequence_numbers, "_RANGES", together)
        known, before = Numbers(), []
        for _ in range(data.draw(st.integers(1, 3))):
            batches = [data.draw(arrivals) for _ in range(data.draw(st.integers(1, 4)))]
            parts = [_part(messages=len(batch), numbered=len(batch)) for batch in batches]
            ranges: list[tuple[int, int]] = []
            for batch in batches:
                numbers = np.array(batch, np.int64)
                found, _ = ranges_of(np.zeros_like(numbers), numbers)
                ranges += [(low, high) for low, high in found.tolist()]
            ranges.sort()
            known.take(sequence_numbers._united(ranges))
            parts += [
                {"board": "b", "connection": 1, "low": low, "high": high} for low, high in ranges
            ]
            rows = [pa.RecordBatch.from_pylist([row], _PARTS_ARROW) for row in [*before, *parts]]
            (stream,) = [row for batch in _joined(iter(rows)) for row in batch.to_pylist()]
            assert stream["first"] == known.first
            if known.first is not None:
                assert (stream["missing"], stream["gaps"]) == (known.to_text(), known.gaps)
            told = ("messages", "numbered", "first", "expected", "missing")
            before = [_part(**{name: stream[name] for name in told})]


def test_a_stream_of_which_every_second_number_is_missing_takes_little_memory() -> None:
    ranges, together = 100_000, 2000

    def parts() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([_part(messages=ranges, numbered=ranges)], _PARTS_ARROW)
        for first in range(0, ranges, together):
            odd = pa.array(range(2 * first + 1, 2 * (first + together), 2), pa.int64())
            columns = {"board": pa.array(["b"] * together), "connection": pa.array([1] * together)}
            columns |= {"low": odd, "high": odd}
            none = [pa.nulls(together, field.type) for field in _PARTS_ARROW]
            yield pa.RecordBatch.from_arrays(
                [
                    columns.get(field.name, nothing)
                    for field, nothing in zip(_PARTS_ARROW, none, strict=True)
                ],
                schema=_PARTS_ARROW,
            )

    tracemalloc.start()
    try:
        (found,) = [row for batch in _joined(parts()) for row in batch.to_pylist()]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found["expected"], found["gaps"]) == (2 * ranges, ranges - 1)
    assert most < 100 * ranges  # a range takes more than that, as Python has it
