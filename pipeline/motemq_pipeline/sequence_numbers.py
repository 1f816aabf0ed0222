"""Which numbers of a stream never arrived: ``gold_streams``, brought up to date by new readings.

A stream is what one connection sent for one board. Its state is a row: the lowest number that came,
the one after the highest, and the ranges between them that are missing. So what arrived is known
exactly, however long a stream is, and new readings cost what they are, not what was before them.
What was lost before a stream's first number, only the board's other streams tell (``counts``).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from motemq_pipeline.schemas import TABLES, arrow_schema, shaped
from pyspark_motemq.workers import settle

_TOGETHER: Final = 256 * 1024  # readings that a task looks at together
MOST_MISSING: Final = 1000  # ranges of a stream; of more the oldest are given up: never filled
_KEY: Final = ("board", "connection")
Range = tuple[int, int]  # first and last number

# A stream as one task has seen it: new readings, or (with ``expected``) its row before them.
_PARTS: Final = (
    "board string, connection long, protocol string, path string, messages long, numbered long, "
    "arrived array<long>, first long, expected long, missing string, complete boolean, "
    "first_at timestamp, last_at timestamp"
)
_TIME: Final = pa.timestamp("us", tz="UTC")
_PARTS_ARROW: Final = pa.schema(
    [
        ("board", pa.string()),
        ("connection", pa.int64()),
        ("protocol", pa.string()),
        ("path", pa.string()),
        ("messages", pa.int64()),
        ("numbered", pa.int64()),
        ("arrived", pa.list_(pa.int64())),  # first, last, first, last, …
        ("first", pa.int64()),
        ("expected", pa.int64()),
        ("missing", pa.string()),
        ("complete", pa.bool_()),
        ("first_at", _TIME),
        ("last_at", _TIME),
    ]
)


@dataclass(slots=True)
class Numbers:
    """What is known of numbers: which between ``first`` and ``expected`` are missing.

    ``first``: the lowest, None while none came. ``given_up``: how many are missing that are in no
    range any more.
    """

    first: int | None = None
    expected: int = 0
    missing: list[Range] = field(default_factory=list)
    given_up: int = 0

    @property
    def gaps(self) -> int:
        """How many numbers between ``first`` and ``expected`` never arrived."""
        return self.given_up + sum(last - first + 1 for first, last in self.missing)

    @property
    def different(self) -> int:
        """How many numbers arrived, each counted once."""
        return self.expected - (self.first or 0) - self.gaps

    def arrived(self) -> list[Range]:
        """Return the numbers that came, as ranges in order; those given up are taken for such."""
        if self.first is None:
            return []
        return list(_without([(self.first, self.expected - 1)], self.missing))

    def take(self, arrived: Sequence[Range]) -> None:
        """Note what arrived: ranges in order, that do not touch each other."""
        if not arrived:
            return
        lowest, above = arrived[0][0], max(self.expected, arrived[-1][1] + 1)
        if self.first is None:
            self.first = self.expected = lowest
        missing = list(self.missing)
        if lowest < self.first:
            missing.insert(0, (lowest, self.first - 1))
            self.first = lowest
        if above > self.expected:
            missing.append((self.expected, above - 1))
        self.missing = list(_without(missing, arrived))
        self.expected = above
        excess = len(self.missing) - MOST_MISSING
        if excess > 0:
            self.given_up += sum(last - first + 1 for first, last in self.missing[:excess])
            self.missing = self.missing[excess:]

    def to_text(self) -> str:
        """Return the missing numbers for people, and for ``from_text``: "3, 10-12"."""
        parts = [str(first) if first == last else f"{first}-{last}" for first, last in self.missing]
        if self.given_up:
            parts.insert(0, f"{self.given_up} older ones")
        return ", ".join(parts)

    @classmethod
    def from_text(cls, first: int, expected: int, text: str) -> "Numbers":
        """Return the numbers of which ``to_text`` made the text."""
        found = cls(first, expected)
        for part in text.split(", ") if text else ():
            if part.endswith(" older ones"):
                found.given_up = int(part.split(" ")[0])
            else:
                low, _, high = part.partition("-")
                found.missing.append((int(low), int(high or low)))
        return found


def _without(ranges: Sequence[Range], taken: Sequence[Range]) -> Iterator[Range]:
    """Yield what is left of ``ranges``; both are in order."""
    at = 0
    for first, last in ranges:
        while at < len(taken) and taken[at][1] < first:
            at += 1
        here = at
        while here < len(taken) and taken[here][0] <= last:
            if first < taken[here][0]:
                yield first, taken[here][0] - 1
            first = taken[here][1] + 1
            here += 1
        if first <= last:
            yield first, last


def ranges_of(
    streams: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return numbers, in any order and some of them twice, as ranges of each stream.

    ``streams``: a number for the stream of each. Returns the ranges, first and last, in order of
    the streams, and of which stream each is.
    """
    order = np.lexsort((numbers, streams))
    streams, numbers = streams[order], numbers[order]
    apart = (np.diff(streams) != 0) | (np.diff(numbers) > 1)
    begins = _begins(apart) if len(numbers) else np.empty(0, np.int64)
    return np.column_stack((numbers[begins], numbers[_ends(begins, len(numbers))])), streams[begins]


def _begins(apart: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return where groups begin, of values that are ``apart`` from the one before them or not."""
    return np.concatenate(([0], np.flatnonzero(apart) + 1))


def _ends(begins: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Return the last places of groups of ``count`` values that begin at ``begins``."""
    return np.append(begins[1:], count)[: len(begins)] - 1


def stream_states(new: DataFrame, previous: DataFrame | None = None) -> DataFrame:
    """Return the rows of ``gold_streams`` for the streams that rows of ``silver_telemetry`` are of.

    ``previous``: rows of ``gold_streams`` before; None: there were none. Streams of which nothing
    is new are not in the result.
    """
    needed = [*_KEY, "protocol", "path", "last", "seq", "received_at"]
    parts = new.select(*needed).mapInArrow(_seen, _PARTS)
    if previous is not None:
        touched = parts.select(*_KEY).distinct()
        known = previous.join(F.broadcast(touched), list(_KEY), "left_semi").withColumn(
            "arrived", F.lit(None).cast("array<long>")
        )
        parts = parts.unionByName(known.select(*parts.columns))
    found = parts.groupBy(*_KEY).applyInArrow(_joined, TABLES["gold_streams"])
    return shaped(found, "gold_streams")


def _seen(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what there is of each stream, from so many rows together as there are in memory."""
    settle()
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= _TOGETHER:
            yield _parts(pa.Table.from_batches(held))
            held, rows = [], 0
    if rows:
        yield _parts(pa.Table.from_batches(held))


def _parts(rows: pa.Table) -> pa.RecordBatch:
    """Return a row of ``_PARTS`` for each stream of some readings."""
    codes, times = _codes(rows), rows.column("received_at").combine_chunks().cast(pa.int64())
    order = np.lexsort((times.to_numpy(), codes))
    begins = _begins(np.diff(codes[order]) != 0)
    first, latest = order[begins], order[_ends(begins, len(order))]
    streams = codes[first]
    # Which row of the result each reading belongs to.
    of_stream = np.searchsorted(streams, codes)
    seq, last = (rows.column(name).combine_chunks() for name in ("seq", "last"))
    at = np.flatnonzero(seq.is_valid().to_numpy(zero_copy_only=False))
    numbers = seq.fill_null(0).to_numpy()[at]
    ranges, of_range = ranges_of(of_stream[at], numbers)
    edges = 2 * np.bincount(of_range, minlength=len(streams))

    def counted(which: pa.Array) -> npt.NDArray[np.int64]:
        chosen = of_stream[which.to_numpy(zero_copy_only=False)]
        return np.bincount(chosen, minlength=len(streams))

    def texts(name: str, at: npt.NDArray[np.int64]) -> pa.Array:
        return rows.column(name).take(pa.array(at)).combine_chunks()

    none = pa.nulls(len(streams), pa.int64())
    columns = {
        "board": texts("board", first),
        "connection": texts("connection", first),
        "protocol": texts("protocol", first),
        "path": texts("path", latest),
        "messages": pa.array(np.diff(begins, append=len(order))),
        "numbered": pa.array(counted(seq.is_valid())),
        "arrived": pa.ListArray.from_arrays(
            pa.array(np.concatenate(([0], np.cumsum(edges))), pa.int32()), pa.array(ranges.ravel())
        ),
        "first": none,
        "expected": none,
        "missing": pa.nulls(len(streams), pa.string()),
        # Null where nothing is known of any.
        "complete": pa.array(
            counted(last.fill_null(False)) > 0, mask=counted(last.is_valid()) == 0
        ),
        "first_at": times.take(pa.array(first)).cast(_TIME),
        "last_at": times.take(pa.array(latest)).cast(_TIME),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=_PARTS_ARROW)


def _codes(table: pa.Table) -> npt.NDArray[np.int64]:
    """Return a number for each row that is the same for rows of one stream."""
    boards = table.column("board").combine_chunks().dictionary_encode().indices.to_numpy()
    connections = table.column("connection").combine_chunks().dictionary_encode()
    width = len(connections.dictionary) + 1
    found: npt.NDArray[np.int64] = boards.astype(np.int64) * width + connections.indices.to_numpy()
    return found


def _joined(parts: pa.Table) -> pa.Table:
    """Return the one row of a stream from its parts."""
    settle()
    rows = parts.to_pylist()
    numbers = Numbers()
    for row in rows:
        if row["expected"] is not None:
            numbers = Numbers.from_text(row["first"], row["expected"], row["missing"])
    arrived: list[Range] = []
    for row in rows:
        edges = row["arrived"] or []
        arrived += zip(edges[::2], edges[1::2], strict=True)
    numbers.take(_united(arrived))
    latest = max(rows, key=lambda row: row["last_at"])
    numbered = sum(row["numbered"] for row in rows)
    known = numbered > 0
    found = {
        **{name: latest[name] for name in (*_KEY, "protocol", "path")},
        "messages": sum(row["messages"] for row in rows),
        "numbered": numbered,
        "first": numbers.first,
        "expected": numbers.expected if known else None,
        "gaps": numbers.gaps if known else None,
        "duplicates": numbered - numbers.different if known else None,
        "missing": numbers.to_text() if known else None,
        "complete": any_known(row["complete"] for row in rows),
        "first_at": min(row["first_at"] for row in rows),
        "last_at": latest["last_at"],
    }
    return pa.Table.from_pylist([found], schema=arrow_schema("gold_streams"))


def any_known(values: Iterable[bool | None]) -> bool | None:
    """Return whether any of them is true, None if nothing is known of any."""
    known = [each for each in values if each is not None]
    return any(known) if known else None


def _united(ranges: Iterable[Range]) -> list[Range]:
    """Return ranges in order, where those that overlap or touch are one."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found
