"""Which numbers of a stream came in an hour: what tells a copy, and what is missing before which.

``gold_numbers`` has them, in about a bit each, so nobody reads the readings of an hour again to
roll up some more. Its rows are only ever added, and mean the same in any order and however often:

- with ``bits``: which numbers from ``first`` to ``last`` a sensor has sent,
- without: that all of them came, from whatever sensor. ``sensor``, ``unit`` and ``minute`` are
  those of the first, because what is missing before it counts there.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from motemq_pipeline.readings import (
    HOUR_US,
    MINUTE_US,
    TIME,
    Codes,
    Numbers,
    Places,
    Readings,
    changes,
)
from motemq_pipeline.schemas import DATE, arrow_schema
from motemq_pipeline.sorting import Runs
from pyspark_motemq.workers import settle

# What is asked for of readings.
COLUMNS: Final = (
    "board",
    "connection",
    "sensor",
    "unit",
    "seq",
    "t_ms",
    "value",
    "event_time",
    "partition",
    "message_seq",
)
# What there is of those that count. One without a value is none: it says that ``missing`` has
# changed by so much before a reading of its minute that counted already.
COUNTED: Final = ("board", "connection", "sensor", "unit", "seq", "t_ms", "value", "event_time")
MISSING: Final = "missing"
COUNTED_DDL: Final = (
    "board string, connection long, sensor string, unit string, seq long, t_ms long, "
    "value double, event_time timestamp, missing long"
)
MOST_READINGS: Final = 1_000_000  # in a task's memory, which is some 300 bytes each
# In this order copies follow what they are copies of.
_ARRIVALS: Final = ("hour", "board", "connection", "seq", "sensor", "partition", "message_seq")
_NUMBERS: Final = pa.schema([field for field in arrow_schema("gold_numbers") if field.name != DATE])
_STREAM: Final = ("hour", "board", "connection")
# Numbers that lie further apart than that are of two rows, which take less than the bits between.
_FAR: Final = 512
_MOST_BITS: Final = 16  # a row has those of which the rest is the same: 8 KB
KNOWN: Final = pa.schema(
    [field.with_name("event_time") if field.name == "hour" else field for field in _NUMBERS]
)
_KEYS: Final = ("board", "connection", "event_time", "sensor")
_SILVER: Final = arrow_schema("silver_telemetry")
_COUNTED: Final = pa.schema([_SILVER.field(name) for name in COUNTED]).append(
    pa.field(MISSING, pa.int64())
)


class Counted(NamedTuple):
    """Readings of which each counts."""

    readings: Readings
    missing: Numbers  # before each; -1 without a ``seq``
    changed: pa.Table  # rows without a value, as ``COUNTED`` says
    numbers: pa.RecordBatch  # rows of ``gold_numbers`` that say that they came


def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[Counted]:
    """Yield the readings that count, and how many numbers are missing before each.

    ``batches`` have readings, ``COLUMNS``, and rows of ``gold_numbers``, whose hour is
    ``event_time``, in any order. A reading counts once an hour, as it came first. What is missing
    is that between a reading and the one before it in its stream and hour. They come in pieces of
    at most ``MOST_READINGS``.
    """
    settle()
    numbers: list[pa.RecordBatch] = []
    readings = _readings(batches, numbers)
    for piece in in_order(_gathered(readings), _ARRIVALS, (*COLUMNS, "hour")):
        found = _Numbers(numbers).take(piece)
        if len(found.missing):
            numbers.append(found.numbers)
            yield found


def as_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what ``counted`` does as rows of ``COUNTED_DDL``."""
    for found in counted(batches):
        rows = found.readings.table(COUNTED).append_column(MISSING, pa.array(found.missing))
        yield from rows.cast(_COUNTED).to_batches()
        yield from found.changed.to_batches()


def from_rows(rows: Iterable[pa.RecordBatch]) -> Iterator[Counted]:
    """Yield what ``as_rows`` has made rows of, in other pieces."""
    for piece in _gathered(rows):
        table = piece.table((*COUNTED, MISSING))
        is_reading = table.column("value").is_valid()
        counting = table.filter(is_reading)
        readings, changed = Readings(counting), table.filter(pc.invert(is_reading))
        missing = counting.column(MISSING).to_numpy()
        yield Counted(readings, missing, changed, numbers_of(readings))


class _Numbers:
    """The numbers that came before, and the readings that come to them."""

    def __init__(self, rows: list[pa.RecordBatch]) -> None:
        self._rows = pa.Table.from_batches(rows, KNOWN)

    def take(self, readings: Readings) -> Counted:
        """Return those that count, what is missing before them, and what changes of others."""
        at = np.flatnonzero(readings.known("seq"))
        alone = np.flatnonzero(~readings.known("seq"))
        stream, sensor = readings.code(*_STREAM), readings.code("sensor")
        streams, sensors = stream[:0], sensor[:0]
        if known := self._rows.num_rows:
            ours = self._rows.select(list(_KEYS))
            theirs = readings.table(_KEYS).cast(ours.schema)
            together = Readings(pa.concat_tables([ours, theirs]))
            stream, sensor = together.code(*_STREAM), together.code("sensor")
            streams, sensors = stream[:known], sensor[:known]
            stream, sensor = stream[known:], sensor[known:]
        seq = readings.numbers("seq")[at]
        stream, sensor = stream[at], sensor[at]
        order = np.lexsort((sensor, seq, stream))
        first = changes(stream[order], seq[order], sensor[order])
        if len(first) < len(order):  # there are copies
            came = (readings.numbers("message_seq")[at], readings.numbers("partition")[at])
            order = np.lexsort((*came, sensor, seq, stream))
        order = order[first]
        of_rows = streams, sensors
        order = order[~self._came(*of_rows, stream[order], sensor[order], seq[order])]
        missing, changed = self._changed(*of_rows, stream[order], sensor[order], seq[order])
        rows = readings.only(np.concatenate((at[order], alone)))
        missing = np.concatenate((missing, np.full(len(alone), -1)))
        return Counted(rows, missing, changed, numbers_of(rows))

    def _came(
        self, streams: Codes, sensors: Codes, stream: Codes, sensor: Codes, seq: Numbers
    ) -> npt.NDArray[np.bool_]:
        """Return which readings are copies of what came before."""
        seen = np.zeros(len(seq), np.bool_)
        rows = self._rows
        if not rows.num_rows or not len(seq):
            return seen
        order = np.lexsort((seq, sensor, stream))
        stream, sensor, seq = stream[order], sensor[order], seq[order]
        begins = changes(stream, sensor)
        ends = np.append(begins[1:], len(seq))
        has_bits = rows.column("bits").is_valid().to_numpy()
        at = np.flatnonzero(has_bits)
        series = _pairs(stream[begins], sensor[begins], streams[at], sensors[at])
        ours = series >= 0
        at, series = at[ours], series[ours]
        first, last = (_numbers(rows, name)[at] for name in ("first", "last"))
        low, high = begins[series], ends[series]
        near = (seq[low] <= last) & (seq[high - 1] >= first)
        all_bits = rows.column("bits").combine_chunks()
        for row, begin, end, least, most in zip(
            at[near], low[near], high[near], first[near], last[near], strict=True
        ):
            of_row = slice(
                begin + np.searchsorted(seq[begin:end], least),
                begin + np.searchsorted(seq[begin:end], most, "right"),
            )
            bits = np.frombuffer(all_bits[row].as_buffer(), np.uint8)
            place = seq[of_row] - least
            seen[of_row] |= (bits[place >> 3] >> (place & 7).astype(np.uint8) & 1).astype(np.bool_)
        found = np.empty_like(seen)
        found[order] = seen
        return found

    def _changed(
        self,
        streams: Codes,
        sensors: Codes,
        stream: Codes,
        sensor: Codes,
        seq: Numbers,
    ) -> tuple[Numbers, pa.Table]:
        """Return what is missing before readings, and rows for what changes before others."""
        rows = self._rows
        at = np.flatnonzero(~rows.column("bits").is_valid().to_numpy())
        firsts, lasts = (_numbers(rows, name)[at] for name in ("first", "last"))
        before = _missing(streams[at], firsts, lasts, sensors[at])
        after = _missing(
            np.concatenate((streams[at], stream)),
            np.concatenate((firsts, seq)),
            np.concatenate((lasts, seq)),
            np.concatenate((sensors[at], sensor)),
        )
        change = after[: len(at)] - before
        here = np.flatnonzero(change)
        of_rows = rows.take(pa.array(at[here]))
        columns = {name: of_rows.column(name) for name in ("board", "connection", "sensor", "unit")}
        columns["event_time"] = of_rows.column("minute")
        columns[MISSING] = pa.array(change[here])
        none = pa.nulls(len(here))
        arrays = [columns.get(name, none) for name in _COUNTED.names]
        return after[len(at) :], pa.table(arrays, _COUNTED.names).cast(_COUNTED)


def numbers_of(readings: Readings) -> pa.RecordBatch:
    """Return rows of ``gold_numbers`` for readings that count, with the hour as ``event_time``."""
    readings = readings.only(np.flatnonzero(readings.known("seq")))
    stream, sensor = readings.code(*_STREAM), readings.code("sensor")
    seq = readings.numbers("seq")
    runs = np.lexsort((sensor, seq, stream))
    begins = changes(stream[runs])
    follows = np.diff(seq[runs], prepend=0) > 1
    follows[begins] = True
    begins = np.flatnonzero(follows)
    ends = np.append(begins[1:], len(runs)) - 1
    by_run = _rows(readings, runs[begins], seq[runs[ends[: len(begins)]]], None)
    bits = np.lexsort((seq, sensor, stream))
    sorted_ = seq[bits]
    far = np.diff(sorted_, prepend=0) > _FAR
    far[changes(stream[bits], sensor[bits], sorted_ >> _MOST_BITS)] = True
    begins = np.flatnonzero(far)
    ends = np.append(begins[1:], len(bits)) - 1
    last = sorted_[ends[: len(begins)]]
    length = (last - sorted_[begins]) // 8 + 1
    begin = np.cumsum(length) - length
    of_row = np.cumsum(far) - 1
    place = sorted_ - sorted_[begins][of_row]
    byte = begin[of_row] + (place >> 3)
    data = np.zeros(int(length.sum()), np.uint8)
    different = changes(byte)
    if len(different):
        bit = np.left_shift(1, place & 7).astype(np.uint8)
        data[byte[different]] = np.bitwise_or.reduceat(bit, different)
    offsets = pa.py_buffer(np.append(begin, len(data)).astype(np.int32))
    buffers = [None, offsets, pa.py_buffer(data)]
    packed = pa.Array.from_buffers(pa.binary(), len(begins), buffers)
    by_sensor = _rows(readings, bits[begins], last, packed)
    found = pa.concat_tables([by_run, by_sensor]).combine_chunks().to_batches()
    return found[0] if found else pa.RecordBatch.from_pylist([], KNOWN)


def _rows(readings: Readings, at: Places, last: Numbers, bits: pa.Array | None) -> pa.Table:
    """Return rows of numbers from those of readings on; ``bits``: of one sensor."""
    none = pa.nulls(len(at))
    minute = pa.array(readings.starts(MINUTE_US)[at]).cast(TIME)
    columns = {
        **{name: readings.column(name, at) for name in ("board", "connection", "sensor")},
        "unit": readings.column("unit", at) if bits is None else none,
        "event_time": pa.array(readings.starts(HOUR_US)[at]).cast(TIME),
        "first": pa.array(readings.numbers("seq")[at]),
        "last": pa.array(last),
        "minute": minute if bits is None else none,
        "bits": none if bits is None else bits,
    }
    return pa.table([columns[name] for name in KNOWN.names], KNOWN.names).cast(KNOWN)


def _missing(stream: Codes, first: Numbers, last: Numbers, sensor: Codes) -> Numbers:
    """Return how many numbers are missing before each run of a stream: 0 before its lowest."""
    found = np.zeros(len(first), np.int64)
    if not len(first):
        return found
    order = np.lexsort((sensor, first, stream))
    begins = changes(stream[order])
    # The highest number of the stream so far, by its place among all.
    different, place = np.unique(last[order], return_inverse=True)
    at = np.zeros(len(order), np.int64)
    at[begins[1:]] = 1
    highest = np.maximum.accumulate(np.cumsum(at) * len(different) + place) % len(different)
    before = np.append(0, different[highest][:-1])
    missing = np.maximum(first[order] - before - 1, 0)
    missing[begins] = 0  # nothing is known of what was before
    found[order] = missing
    return found


def _pairs(stream: Codes, sensor: Codes, streams: Codes, sensors: Codes) -> Places:
    """Return where ``streams`` and ``sensors`` are in ``stream`` and ``sensor``; -1: nowhere.

    The latter are in order.
    """
    if not len(stream):
        return np.full(len(streams), -1)
    most = int(max(sensor.max(), sensors.max(initial=0))) + 1
    here = stream.astype(np.int64) * most + sensor.astype(np.int64)
    there = streams.astype(np.int64) * most + sensors.astype(np.int64)
    at = np.minimum(np.searchsorted(here, there), len(here) - 1)
    return np.where(here[at] == there, at, -1)


def _numbers(rows: pa.Table, name: str) -> Numbers:
    found: Numbers = rows.column(name).to_numpy()
    return found


def _readings(
    batches: Iterable[pa.RecordBatch], numbers: list[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the readings of batches, and put aside what is none."""
    for batch in batches:
        if "first" not in batch.schema.names:
            yield batch
            continue
        is_none = batch.column("first").is_valid()
        rows = batch.filter(is_none)
        if rows.num_rows:
            numbers.append(rows.select(KNOWN.names).cast(KNOWN))
        yield batch.filter(pc.invert(is_none)).select(list(COLUMNS))


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[Readings]:
    """Yield readings as they come, as many at a time as a task holds."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if held and rows + batch.num_rows > MOST_READINGS:
            yield Readings(pa.Table.from_batches(held))
            held, rows = [], 0
        if batch.num_rows:
            held.append(batch)
            rows += batch.num_rows
    if held:
        yield Readings(pa.Table.from_batches(held))


def in_order(
    parts: Iterator[Readings], key: tuple[str, ...], columns: tuple[str, ...]
) -> Iterator[Readings]:
    """Yield readings in pieces, of which none comes before the piece before it in order of ``key``.

    One part is one piece as it is; of several, pieces have ``columns``.
    """
    first = next(parts, None)
    if first is None:
        return
    second = next(parts, None)
    if second is None:
        yield first
        return
    with Runs(key, MOST_READINGS) as runs:
        runs.add(first.table(columns))
        del first
        runs.add(second.table(columns))
        del second
        for part in parts:
            runs.add(part.table(columns))
        for rows in runs.pieces():
            yield Readings(rows)
