"""Readings that come by and by count as if they had come at once: once an hour, the first."""

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motemq_pipeline import arrived, sorting
from motemq_pipeline.schemas import arrow_schema

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_HOUR, _MINUTE = timedelta(hours=1), timedelta(minutes=1)
Reading = dict[str, Any]
_TYPES = arrow_schema("silver_telemetry")
INPUT = pa.schema([_TYPES.field(name) for name in arrived.COLUMNS])


def readings(most: int = 40) -> st.SearchStrategy[list[Reading]]:
    """Return readings of a few streams: late, twice, with gaps, with numbers far apart."""
    return st.lists(
        st.fixed_dictionaries(
            {
                "board": st.sampled_from(["a", "b", "ä"]),
                "connection": st.sampled_from([1, 2**40]),
                "sensor": st.sampled_from(["t", "h"]),
                "unit": st.sampled_from(["C", None]),
                "seq": st.none() | st.integers(0, 14) | st.sampled_from([600, 70_000, 2**53 - 1]),
                "t_ms": st.none() | st.sampled_from([0, 9_999, 10_000, 2**62]),
                "value": st.integers(-3, 9).map(float),
                "event_time": st.builds(
                    lambda base, s: base + timedelta(seconds=s),
                    st.sampled_from([_NOON, datetime(1969, 12, 31, 23, 30, tzinfo=UTC)]),
                    st.sampled_from([0, 59.999999, 60, 3599.5, 3600]),
                ),
            }
        ),
        max_size=most,
    )


def split(of: list[Reading], chance: random.Random) -> list[list[Reading]]:
    """Return readings as refreshes get them: numbered as they arrived, in no order within one."""
    numbered = [{**reading, "partition": 0, "message_seq": at} for at, reading in enumerate(of)]
    cuts = sorted(chance.choices(range(len(of) + 1), k=chance.randint(0, 4)))
    parts = [numbered[a:b] for a, b in itertools.pairwise([0, *cuts, len(of)])]
    return [chance.sample(part, len(part)) for part in parts if part]


def start(time: datetime, length: timedelta) -> datetime:
    """Return the beginning of a span."""
    return time - (time - datetime(1970, 1, 1, tzinfo=UTC)) % length


def once(of: list[Reading]) -> Iterator[tuple[Reading, int | None]]:
    """Yield each reading once an hour, and how many numbers are missing before it."""
    streams = defaultdict(list)
    for reading in of:
        if reading["seq"] is None:
            yield reading, None
        else:
            hour = start(reading["event_time"], _HOUR)
            streams[reading["board"], reading["connection"], hour].append(reading)
    for of_stream in streams.values():
        of_stream.sort(
            key=lambda r: (r["seq"], r["sensor"].encode(), r["partition"], r["message_seq"])
        )
        before = None
        for _, copies in itertools.groupby(of_stream, lambda r: (r["seq"], r["sensor"])):
            first = next(copies)
            yield first, 0 if before is None else max(first["seq"] - before - 1, 0)
            before = first["seq"]


class Numbers:
    """``gold_numbers``, as refreshes add to it."""

    def __init__(self) -> None:
        self._rows: list[pa.RecordBatch] = []

    def batches(self, of: list[Reading], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield readings and numbers as Spark gives them: columns of both, in any order."""
        found = pa.Table.from_pylist(of, INPUT)
        if self._rows:
            known = pa.Table.from_batches(self._rows)
            found = pa.concat_tables([found, known], promote_options="default")
        return iter(found.to_batches(rows))

    def add(self, rows: pa.RecordBatch) -> None:
        """Take what a refresh has found."""
        self._rows.append(rows)

    @property
    def bytes(self) -> int:
        """How much it is in memory."""
        return sum(rows.nbytes for rows in self._rows)

    def compact(self, chance: random.Random) -> None:
        """Put rows into another order, some of them twice."""
        rows = pa.Table.from_batches(self._rows).to_pylist() if self._rows else []
        rows = chance.sample(rows, len(rows)) + chance.sample(rows, len(rows) // 3)
        self._rows = pa.Table.from_pylist(rows, arrived.KNOWN).to_batches()


def _key(row: Reading) -> tuple[Any, ...]:
    return row["board"], row["sensor"], row["unit"], start(row["event_time"], _MINUTE)


@given(readings(), st.randoms(use_true_random=False), st.sampled_from([7, 100]), st.integers(2, 64))
def test_readings_count_as_if_all_had_come_at_once(
    of: list[Reading], chance: random.Random, held: int, runs: int
) -> None:
    parts, numbers = split(of, chance), Numbers()
    found: list[tuple[Any, ...]] = []
    gaps: Counter[tuple[Any, ...]] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrived, "MOST_READINGS", held)
        patch.setattr(sorting, "MOST_RUNS", runs)
        patch.setattr(arrived, "_FAR", chance.choice([1, 3, 512]))
        for part in parts:
            for piece in list(arrived.counted(numbers.batches(part, 5))):
                numbers.add(piece.numbers)
                rows = piece.readings.table(arrived.COUNTED).to_pylist()
                for row, missing in zip(rows, piece.missing, strict=True):
                    found.append(tuple(row.values()))
                    gaps[_key(row)] += max(int(missing), 0)
                    assert (missing < 0) == (row["seq"] is None)
                for row in piece.changed.to_pylist():
                    gaps[_key(row)] += row["missing"]
            if chance.random() < 0.3:
                numbers.compact(chance)
    expected = list(once([reading for part in parts for reading in part]))
    told: Counter[tuple[Any, ...]] = Counter()
    for reading, missing in expected:
        told[_key(reading)] += missing or 0
    names = arrived.COUNTED
    assert Counter(found) == Counter(tuple(r[name] for name in names) for r, _ in expected)
    assert +gaps == +told
    assert all(count >= 0 for count in gaps.values())


def test_what_is_known_of_an_hour_of_a_board_takes_about_a_bit_a_reading() -> None:
    """Three sensors in turn, each reading with a number of its own."""
    count, numbers = 30_000, Numbers()
    of = [
        {"board": "a", "connection": 1, "sensor": "thp"[at % 3], "unit": "C", "seq": at,
         "value": 1.0, "event_time": _NOON, "partition": 0, "message_seq": at}
        for at in range(count)
    ]  # fmt: skip
    (piece,) = arrived.counted(numbers.batches(of, 1000))
    assert len(piece.missing) == count
    numbers.add(piece.numbers)
    assert numbers.bytes < 3 * count / 8 + 2000  # before Parquet has packed them
    (again,) = list(arrived.counted(numbers.batches([{**of[7], "sensor": "x"}, of[8]], 9)))
    assert again.readings.table(("sensor",)).to_pylist() == [{"sensor": "x"}]
