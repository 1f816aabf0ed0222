"""Readings to windows, by whole columns, where Spark's executors run.

What takes rows here takes all readings of some hours of some boards: ``rollups`` sees to it that
they come together. To sort numbers in columns costs a fraction of what it costs Spark to sort rows,
and a window of a few readings next to nothing.

A task holds at most ``MOST_READINGS`` at a time. Those of a board and hour that have more are put
into order by way of files (``sorting``), and looked at in pieces; what a piece needs to know of the
one before it is one reading, or a window that goes on. The rows are the same.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any, Final, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from motemq_pipeline.schemas import DATE, arrow_schema
from motemq_pipeline.sorting import Runs, scratch
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
MOST_READINGS: Final = 1_000_000  # in a task's memory, which is some 300 bytes each
# What comes of minutes: their values are in rows of at most so many, for Spark to make sketches.
MINUTES: Final = (
    "board string, sensor string, unit string, window_start timestamp, gaps long, "
    "values array<double>"
)
MOST_VALUES: Final = 4096
WINDOW_MS: Final = 10_000  # of simulated time
_MINUTE_US: Final = 60 * 10**6
_HOUR_US: Final = 3600 * 10**6
_TIME: Final = pa.timestamp("us", tz="UTC")
_SERIES: Final = ("hour", "board", "connection", "sensor", "unit")
_WINDOW: Final = "window_start_ms"
_VALUES: Final = (*_SERIES, _WINDOW, "value")
# In this order copies follow what they are copies of, and a number the one before it.
_ARRIVALS: Final = ("hour", "board", "connection", "seq", "sensor", "partition", "message_seq")
_KEPT: Final = (*COLUMNS, "hour")
_AT_A_TIME: Final = 128 * 1024  # rows of the result
_MOST_CODES: Final = 2**63
_ROWS: Final = pa.schema(
    [field for field in arrow_schema("gold_sensor_rollup") if field.name != DATE]
)
_VALUE_BYTES: Final = 8
_Places = npt.NDArray[np.int64]
_Numbers = npt.NDArray[np.int64]
_Values = npt.NDArray[np.float64]
_Codes = npt.NDArray[np.unsignedinteger]
_Column = TypeVar("_Column", bound=npt.NDArray[Any])


def by_simulated_time(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows of ``gold_sensor_rollup``, in order, but their ``date``."""
    once = (readings for readings, _ in _once(batches))
    ongoing: _Ongoing | None = None
    with tempfile.TemporaryFile(dir=scratch()) as file:
        for readings in _in_order(once, _VALUES, _VALUES):
            series, window = readings.code(*_SERIES), readings.numbers(_WINDOW)
            value = readings.values()
            order = np.lexsort((value, window, series))
            value = value[order]
            begins = _changes(series[order], window[order])
            ends = np.append(begins[1:], len(order))
            # The first window may be the last one of the piece before, and the last may go on.
            ours = 0
            if ongoing is not None and ongoing.is_of(readings, order[0]):
                ongoing.add(value[: ends[0]])
                ours = 1
            if ours < len(begins):
                if ongoing is not None:
                    yield ongoing.rows()
                yield from _rows_of(readings, order, value, begins[ours:-1], ends[ours:-1])
                ongoing = _Ongoing(readings.row(order[begins[-1]], (*_SERIES, _WINDOW)), file)
                ongoing.add(value[begins[-1] :])
        if ongoing is not None:
            yield ongoing.rows()


def by_minute(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows of ``MINUTES``.

    ``gaps`` is in one of a minute's rows, or in a few of them a part of it; in the others it is
    null.
    """
    key = ("board", "sensor", "unit")
    for readings, missing in _once(batches):
        series, minute = readings.code(*key), readings.starts(_MINUTE_US)
        order = np.lexsort((minute, series))
        minute, missing = minute[order], missing[order]
        begins = _changes(series[order], minute)
        counts = np.diff(begins, append=len(order))
        gaps = np.add.reduceat(np.maximum(missing, 0), begins)
        unknown = np.maximum.reduceat(missing, begins) < 0
        rows = -(-counts // MOST_VALUES)
        of_minute = np.repeat(np.arange(len(begins)), rows)
        place = np.arange(len(of_minute)) - np.repeat(np.cumsum(rows) - rows, rows)
        offsets = np.append(begins[of_minute] + place * MOST_VALUES, len(order))
        values = pa.array(readings.values()[order])
        first = order[begins[of_minute]]
        columns = [
            *(readings.column(name, first) for name in key),
            pa.array(minute[begins[of_minute]]).cast(_TIME),
            pa.array(gaps[of_minute], mask=unknown[of_minute] | (place > 0)),
            pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values),
        ]
        names = ["board", "sensor", "unit", "window_start", "gaps", "values"]
        yield from pa.table(columns, names).to_batches(_AT_A_TIME // MOST_VALUES)


def _rows_of(
    readings: "_Readings", order: _Places, value: _Values, begins: _Places, ends: _Places
) -> Iterator[pa.RecordBatch]:
    """Yield rows of windows, of which each has the values from its beginning to its end."""
    for low in range(0, len(begins), _AT_A_TIME):
        begin, end = begins[low : low + _AT_A_TIME], ends[low : low + _AT_A_TIME]
        count = end - begin
        yield _batch(
            readings,
            order[begin],
            {
                "count": count,
                "mean": np.add.reduceat(value[: end[-1]], begin) / count,
                "min": value[begin],
                "max": value[end - 1],
                "p50": value[begin + _rank(count, 50)],
                "p95": value[begin + _rank(count, 95)],
            },
        )


def _batch(
    readings: "_Readings", first: _Places, found: Mapping[str, npt.ArrayLike]
) -> pa.RecordBatch:
    """Return rows of windows, by one reading of each, and what was found of them."""
    start = readings.numbers(_WINDOW)[first]
    columns = {
        **{name: readings.column(name, first) for name in _SERIES},
        _WINDOW: pa.array(start, mask=start < 0),
        **{name: pa.array(values) for name, values in found.items()},
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in _ROWS.names], schema=_ROWS)


class _Ongoing:
    """A window of simulated time that may go on in the next piece.

    ``row``: what one reading has of ``_SERIES`` and ``_WINDOW``; ``file``: for the values.
    """

    def __init__(self, row: pa.Table, file: IO[bytes]) -> None:
        self._row = row
        self._file = file
        self._count = 0
        self._sum = 0.0
        file.seek(0)

    def is_of(self, readings: "_Readings", at: int) -> bool:
        """Whether a reading is of this window."""
        return bool(readings.row(at, (*_SERIES, _WINDOW)).equals(self._row))

    def add(self, values: _Values) -> None:
        """Take values in order, none of them below those before."""
        self._file.write(values.tobytes())
        self._count += len(values)
        self._sum += float(np.add.reduce(values))

    def rows(self) -> pa.RecordBatch:
        """Return the row of the window, which has ended."""
        count = np.array([self._count])
        places = {"min": 0 * count, "max": count - 1, "p50": _rank(count, 50)}
        places["p95"] = _rank(count, 95)
        found = {name: [self._value(int(place[0]))] for name, place in places.items()}
        counted = {"count": count, "mean": self._sum / count}
        return _batch(_Readings(self._row), np.array([0]), {**counted, **found})

    def _value(self, place: int) -> float:
        self._file.seek(place * _VALUE_BYTES)
        return float(np.frombuffer(self._file.read(_VALUE_BYTES))[0])


def _rank(counts: _Numbers, percent: int) -> _Places:
    """Return the place of a percentile in so many values: the first that so many do not exceed."""
    return (counts * percent + 99) // 100 - 1


def _once(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple["_Readings", _Numbers]]:
    """Yield each reading once an hour, as it came first, and how many numbers are missing.

    They come in pieces of at most ``MOST_READINGS``, of a stream and hour in order of their
    numbers. Missing are those between a reading and the one before it; -1 without a ``seq``.
    """
    settle()
    last: pa.Table | None = None  # of the pieces so far, of those with a number
    for readings in _in_order(_gathered(batches), _ARRIVALS, _KEPT):
        before = 0
        if last is not None:
            readings, before = readings.behind(last), 1
        at, missing, numbered = readings.once()
        if numbered:
            last = readings.row(at[numbered - 1], _KEPT)
        if len(at) > before:  # not all are copies of what was before
            yield readings.only(at[before:]), missing[before:]


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator["_Readings"]:
    """Yield readings as they come, as many at a time as a task holds."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if held and rows + batch.num_rows > MOST_READINGS:
            yield _Readings(pa.Table.from_batches(held))
            held, rows = [], 0
        if batch.num_rows:
            held.append(batch)
            rows += batch.num_rows
    if held:
        yield _Readings(pa.Table.from_batches(held))


def _in_order(
    parts: Iterator["_Readings"], key: tuple[str, ...], columns: tuple[str, ...]
) -> Iterator["_Readings"]:
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
            yield _Readings(rows)


class _Readings:
    """Readings as columns of numbers, by which they are put into order.

    ``hour`` and ``window_start_ms`` (-1 without a ``t_ms``) are made of others, if not there.
    """

    def __init__(self, rows: pa.Table, at: _Places | None = None) -> None:
        self._rows = rows
        self._at = at  # where those are that are meant; None: all
        self._coded: dict[str, tuple[_Codes, pa.Array]] = {}

    def only(self, at: _Places) -> "_Readings":
        """Return some of them."""
        found = _Readings(self._rows, at if self._at is None else self._at[at])
        found._coded = self._coded
        return found

    def behind(self, row: pa.Table) -> "_Readings":
        """Return all of them, and a row before them."""
        return _Readings(pa.concat_tables([row, self.table(tuple(row.column_names))]))

    def table(self, names: tuple[str, ...]) -> pa.Table:
        """Return columns of them."""
        rows = pa.table([self._column(name) for name in names], list(names))
        return rows if self._at is None else rows.take(pa.array(self._at))

    def row(self, at: int, names: tuple[str, ...]) -> pa.Table:
        """Return columns of one of them, which keeps nothing of the others in memory."""
        place = at if self._at is None else self._at[at]
        row = pa.table([self._column(name).slice(place, 1) for name in names], list(names))
        return row.take(pa.array([0])).combine_chunks()

    def once(self) -> tuple[_Places, _Numbers, int]:
        """Return where the readings are, each once an hour, as it came first, and what is missing.

        A copy has the same ``seq`` in its stream, and the same sensor; without one there is none.
        Missing are the numbers between a reading and the one before it in its stream and hour; -1
        without a ``seq``. Those with one come first, in order; the last is how many these are.
        """
        known = self.known("seq")
        at = np.flatnonzero(known)
        sensor, seq = self.code("sensor")[at], self.numbers("seq")[at]
        stream = self.code("hour", "board", "connection")[at]
        order = np.lexsort((sensor, seq, stream))
        first = _changes(stream[order], seq[order], sensor[order])
        if len(first) < len(order):  # there are copies
            came = (self.numbers("message_seq")[at], self.numbers("partition")[at])
            order = np.lexsort((*came, sensor, seq, stream))
        order = order[first]
        stream, seq = stream[order], seq[order]
        missing = np.maximum(np.diff(seq, prepend=0) - 1, 0)
        missing[_changes(stream)] = 0  # nothing is known of what was before
        alone = np.flatnonzero(~known)
        return (
            np.concatenate((at[order], alone)),
            np.concatenate((missing, np.full(len(alone), -1))),
            len(order),
        )

    def known(self, name: str) -> npt.NDArray[np.bool_]:
        """Return which have a value in a column."""
        found: npt.NDArray[np.bool_] = _known(self._column(name).combine_chunks())
        return self._chosen(found)

    def numbers(self, name: str) -> _Numbers:
        """Return a column of integers, 0 for null."""
        found: _Numbers = self._column(name).combine_chunks().fill_null(0).to_numpy()
        return self._chosen(found)

    def starts(self, us: int) -> _Numbers:
        """Return the beginnings of the spans of so many microseconds in which they happened."""
        return self._chosen(self._starts(us))

    def values(self) -> _Values:
        """Return what was measured."""
        found: _Values = self._rows.column("value").to_numpy()
        return self._chosen(found)

    def column(self, name: str, at: _Places) -> pa.Array:
        """Return a column of ``code``, of some of them."""
        codes, values = self._code(name)
        return values.take(pa.array(codes[at if self._at is None else self._at[at]]))

    def code(self, *names: str) -> _Codes:
        """Return a number of each that has the order of some columns."""
        found: _Codes = np.zeros(self._rows.num_rows, np.uint8)
        most = 1
        for name in names:
            codes, values = self._code(name)
            if most * len(values) > _MOST_CODES:
                different, places = np.unique(found, return_inverse=True)
                found, most = places.astype(np.uint64), len(different)
            most *= len(values)
            # The fewer bytes, the less it takes to sort them.
            kind = np.min_scalar_type(most)
            found = found.astype(kind) * kind.type(len(values)) + codes.astype(kind)
        return self._chosen(found)

    def _chosen(self, column: _Column) -> _Column:
        return column if self._at is None else cast(_Column, column[self._at])

    def _code(self, name: str) -> tuple[_Codes, pa.Array]:
        """Return a column as places in its values, which are in order, and null behind them."""
        if name not in self._coded:
            # Encoded first: the texts of a task may be more than fit into one array.
            coded = self._column(name).dictionary_encode().combine_chunks()
            values = coded.dictionary
            order = pc.array_sort_indices(values)
            place = np.empty(len(values) + 1, np.min_scalar_type(len(values)))
            place[order.to_numpy()] = np.arange(len(values))
            place[-1] = len(values)
            codes = place[coded.indices.fill_null(-1).to_numpy()]
            values = pa.concat_arrays([values.take(order), pa.nulls(1, values.type)])
            self._coded[name] = codes, values
        return self._coded[name]

    def _column(self, name: str) -> pa.ChunkedArray:
        if name in self._rows.column_names:
            return self._rows.column(name)
        if name == "hour":
            return pa.chunked_array([pa.array(self._starts(_HOUR_US)).cast(_TIME)])
        if name != _WINDOW:
            raise KeyError(name)
        t_ms = self._rows.column("t_ms").combine_chunks()
        start = t_ms.fill_null(0).to_numpy()
        return pa.chunked_array([pa.array(np.where(_known(t_ms), start - start % WINDOW_MS, -1))])

    def _starts(self, us: int) -> _Numbers:
        times = self._rows.column("event_time").combine_chunks().cast(pa.int64()).to_numpy()
        found: _Numbers = times - times % us
        return found


def _known(values: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = values.is_valid().to_numpy(zero_copy_only=False)
    return found


def _changes(*columns: npt.NDArray[np.generic]) -> _Places:
    """Return where columns begin to have other values than before."""
    different = np.zeros(len(columns[0]), np.bool_)
    different[:1] = True
    for column in columns:
        different[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(different)
