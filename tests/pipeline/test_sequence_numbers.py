"""Which numbers of a stream are missing, against a set of those that came."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motemq_pipeline import sequence_numbers
from motemq_pipeline.schemas import arrow_schema
from motemq_pipeline.sequence_numbers import MOST_MISSING, Numbers, _seen, ranges_of

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
    found = [row for part in _seen(iter(batches)) for row in part.to_pylist()]
    assert len(found) == parts
    one = [row for row in found if (row["board"], row["connection"]) == ("a", 1)]
    assert sum(row["messages"] for row in one) == 4
    assert max(one, key=lambda row: row["last_at"])["path"] == "last"
    assert any(row["complete"] for row in one)
    (unnumbered,) = [row for row in found if row["board"] == "b"]
    told = ("numbered", "arrived", "complete")
    assert [unnumbered[name] for name in told] == [0, [], None]
    (other,) = [row for row in found if row["connection"] == 2]
    assert [other[name] for name in told] == [1, [2**53 - 1] * 2, False]
    if parts == 3:
        assert [one[0][name] for name in told] == [4, [0, 1, 3, 3], True]
