"""Which numbers of a stream never arrived: ``gold_streams``, brought up to date by new readings.

A stream is what one connection sent for one board. Its state is a row: the lowest number that came,
the one after the highest, and the ranges between them that are missing. So what arrived is known
exactly, however long a stream is, and new readings cost what they are, not what was before them.
What was lost before a stream's first number, only the board's other streams tell (``counts``).
"""

import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from motemq_pipeline.schemas import TABLES, arrow_schema, shaped
from pyspark_motemq.workers import settle

_TOGETHER: Final = 256 * 1024  # readings that a task looks at together
MOST_MISSING: Final = 1000  # ranges of a stream; of more the oldest are given up: never filled
_RANGES: Final = 10_000  # of a stream, looked at together
_ROWS: Final = 4096  # of a batch of streams
_KEY: Final = ("board", "connection")
Range = tuple[int, int]  # first and last number

# A stream as one task has seen it: new readings, or (with ``expected``) its row before them. Each
# range of numbers that came is a row; all but the first say nothing else.
_PARTS: Final = (
    "board string, connection long, protocol string, path string, messages long, numbered long, "
    "low long, high long, first long, expected long, missing string, complete boolean, "
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
        ("low", pa.int64()),
        ("high", pa.int64()),
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

    def take(self, arrived: Sequence[Range], more: bool = False) -> None:
        """Note what arrived: ranges in order, that do not touch each other.

        ``more``: others follow, none of which begins before the last of these, so what is missing
        above that is not given up yet.
        """
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
        self.give_up(arrived[-1] if more else None)

    def give_up(self, before: Range | None = None) -> None:
        """Only count the oldest missing ranges, as far as those ``before`` (None: all) are many."""
        known = len(self.missing) if before is None else bisect.bisect_left(self.missing, before)
        excess = known - MOST_MISSING
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
        known = previous.join(F.broadcast(touched), list(_KEY), "left_semi").withColumns(
            dict.fromkeys(("low", "high"), F.lit(None).cast("long"))
        )
        parts = parts.unionByName(known.select(*parts.columns))
    # Spark sorts on disk what does not fit into memory.
    in_order = parts.repartition(*_KEY).sortWithinPartitions(*_KEY, F.asc_nulls_first("low"))
    found = in_order.mapInArrow(_joined, TABLES["gold_streams"])
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
    # Of the rows the stream and, but for its first one, nothing else.
    each = np.maximum(1, np.bincount(of_range, minlength=len(streams)))
    of_row = np.repeat(np.arange(len(streams)), each)
    further = np.diff(of_row, prepend=-1) == 0
    with_range = np.isin(of_row, of_range)

    def counted(which: pa.Array) -> npt.NDArray[np.int64]:
        chosen = of_stream[which.to_numpy(zero_copy_only=False)]
        return np.bincount(chosen, minlength=len(streams))

    def key(name: str) -> pa.Array:
        return rows.column(name).take(pa.array(first[of_row])).combine_chunks()

    def once(values: pa.Array | pa.ChunkedArray) -> pa.Array:
        found = values.take(pa.array(of_row, mask=further))
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found

    def of_reading(column: pa.Array | pa.ChunkedArray, at: npt.NDArray[np.int64]) -> pa.Array:
        return once(column.take(pa.array(at)))

    def edge(which: int) -> pa.Array:
        found = np.zeros(len(of_row), np.int64)
        found[with_range] = ranges[:, which]
        return pa.array(found, mask=~with_range)

    none = pa.nulls(len(of_row), pa.int64())
    columns = {
        "board": key("board"),
        "connection": key("connection"),
        "protocol": of_reading(rows.column("protocol"), first),
        "path": of_reading(rows.column("path"), latest),
        "messages": once(pa.array(np.diff(begins, append=len(order)))),
        "numbered": once(pa.array(counted(seq.is_valid()))),
        "low": edge(0),
        "high": edge(1),
        "first": none,
        "expected": none,
        "missing": pa.nulls(len(of_row), pa.string()),
        # Null where nothing is known of any.
        "complete": once(
            pa.array(counted(last.fill_null(False)) > 0, mask=counted(last.is_valid()) == 0)
        ),
        "first_at": of_reading(times, first).cast(_TIME),
        "last_at": of_reading(times, latest).cast(_TIME),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=_PARTS_ARROW)


def _codes(table: pa.Table) -> npt.NDArray[np.int64]:
    """Return a number for each row that is the same for rows of one stream."""
    boards = table.column("board").combine_chunks().dictionary_encode().indices.to_numpy()
    connections = table.column("connection").combine_chunks().dictionary_encode()
    width = len(connections.dictionary) + 1
    found: npt.NDArray[np.int64] = boards.astype(np.int64) * width + connections.indices.to_numpy()
    return found


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the one row of each stream from its parts, which are in order, the ranges, too."""
    settle()
    parts = groupby(_in_turn(batches), key=lambda part: part.stream)
    streams = (_of_stream(of_it) for _, of_it in parts)
    while rows := list(islice(streams, _ROWS)):
        yield pa.RecordBatch.from_pylist(rows, schema=arrow_schema("gold_streams"))


class _Part(NamedTuple):
    """A row of ``_PARTS``: what it says of its stream, if it does, and its range, if it has one."""

    stream: tuple[str, int]
    whole: dict[str, Any] | None
    low: int | None
    high: int | None


def _in_turn(batches: Iterable[pa.RecordBatch]) -> Iterator[_Part]:
    for batch in batches:
        says = batch.column("messages").is_valid()
        whole = iter(batch.filter(says).to_pylist())
        columns = [batch.column(name).to_pylist() for name in (*_KEY, "low", "high")]
        for of_stream, board, connection, low, high in zip(says.to_pylist(), *columns, strict=True):
            yield _Part((board, connection), next(whole) if of_stream else None, low, high)


def _of_stream(parts: Iterator[_Part]) -> dict[str, Any]:
    """Return the row of a stream. However many ranges came, few of them are held."""
    numbers = Numbers()
    whole: list[dict[str, Any]] = []
    arrived: list[Range] = []
    for _, row, low, high in parts:
        if row is not None:
            whole.append(row)
            if row["expected"] is not None:  # its row before, which comes first: it has no range
                numbers = Numbers.from_text(row["first"], row["expected"], row["missing"])
        if low is not None and high is not None:
            arrived.append((low, high))
        if len(arrived) == _RANGES:
            numbers.take(_united(arrived), more=True)
            arrived = []
    numbers.take(_united(arrived))
    numbers.give_up()
    latest = max(whole, key=lambda row: row["last_at"])
    numbered = sum(row["numbered"] for row in whole)
    known = numbered > 0
    return {
        **{name: latest[name] for name in (*_KEY, "protocol", "path")},
        "messages": sum(row["messages"] for row in whole),
        "numbered": numbered,
        "first": numbers.first,
        "expected": numbers.expected if known else None,
        "gaps": numbers.gaps if known else None,
        "duplicates": numbered - numbers.different if known else None,
        "missing": numbers.to_text() if known else None,
        "complete": any_known(row["complete"] for row in whole),
        "first_at": min(row["first_at"] for row in whole),
        "last_at": latest["last_at"],
    }


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
