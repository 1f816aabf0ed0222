"""Readings to windows, by whole columns, where Spark's executors run.

What takes rows here takes all readings of some hours of some boards, and holds them: ``rollups``
sees to it that they come together, and that a task has not too many. To sort numbers in columns
costs a fraction of what it costs Spark to sort rows, and a window of a few readings next to
nothing.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from motemq_pipeline.schemas import DATE, arrow_schema
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
_SIMULATED: Final = "gold_sensor_rollup"
_AT_A_TIME: Final = 128 * 1024  # rows of the result
_MOST_CODES: Final = 2**63
_Places = npt.NDArray[np.int64]
_Numbers = npt.NDArray[np.int64]
_Codes = npt.NDArray[np.unsignedinteger]


def by_simulated_time(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows of ``gold_sensor_rollup``, in order, but their ``date``."""
    readings = _gathered(batches)
    if readings is None:
        return
    key = ("hour", "board", "connection", "sensor", "unit")
    at, _ = readings.once()
    series, value = readings.code(*key)[at], readings.values()[at]
    window = readings.numbers("t_ms")[at]
    window = np.where(readings.known("t_ms")[at], window - window % WINDOW_MS, -1)
    order = np.lexsort((value, window, series))
    value, window = value[order], window[order]
    begins = _changes(series[order], window)
    counts = np.diff(begins, append=len(order))
    means = np.add.reduceat(value, begins) / counts
    schema = arrow_schema(_SIMULATED)
    schema = schema.remove(schema.get_field_index(DATE))
    for low in range(0, len(begins), _AT_A_TIME):
        begin, count = begins[low : low + _AT_A_TIME], counts[low : low + _AT_A_TIME]
        first, start = at[order[begin]], window[begin]
        found = {
            **{name: readings.column(name, first) for name in key},
            "window_start_ms": pa.array(start, mask=start < 0),
            "count": pa.array(count),
            "mean": pa.array(means[low : low + _AT_A_TIME]),
            "min": pa.array(value[begin]),
            "max": pa.array(value[begin + count - 1]),
            "p50": pa.array(value[begin + _rank(count, 50)]),
            "p95": pa.array(value[begin + _rank(count, 95)]),
        }
        yield pa.RecordBatch.from_arrays([found[name] for name in schema.names], schema=schema)


def by_minute(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows of ``MINUTES``, of a minute those that follow each other.

    ``gaps`` is of the whole minute in each of them.
    """
    readings = _gathered(batches)
    if readings is None:
        return
    key = ("board", "sensor", "unit")
    at, missing = readings.once()
    series, minute = readings.code(*key)[at], readings.starts(_MINUTE_US)[at]
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
    values = pa.array(readings.values()[at[order]])
    first = at[order[begins]]
    columns = [
        *(readings.column(name, first) for name in key),
        pa.array(minute[begins]).cast(_TIME),
        pa.array(gaps, mask=unknown),
    ]
    which = pa.array(of_minute)
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
    names = ["board", "sensor", "unit", "window_start", "gaps", "values"]
    table = pa.table([*(column.take(which) for column in columns), lists], names)
    yield from table.to_batches(_AT_A_TIME // MOST_VALUES)


def _rank(counts: _Numbers, percent: int) -> _Places:
    """Return the place of a percentile in so many values: the first that so many do not exceed."""
    return (counts * percent + 99) // 100 - 1


def _gathered(batches: Iterable[pa.RecordBatch]) -> "_Readings | None":
    settle()
    held = [batch for batch in batches if batch.num_rows]
    return _Readings(pa.Table.from_batches(held)) if held else None


class _Readings:
    """Readings as columns of numbers, by which they are put into order."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._coded: dict[str, tuple[_Codes, pa.Array]] = {}

    def once(self) -> tuple[_Places, _Numbers]:
        """Return where the readings are, each once an hour, as it came first, and what is missing.

        A copy has the same ``seq`` in its stream, and the same sensor; without one there is none.
        Missing are the numbers between a reading and the one before it in its stream and hour; -1
        without a ``seq``.
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
        )

    def known(self, name: str) -> npt.NDArray[np.bool_]:
        """Return which have a value in a column."""
        found: npt.NDArray[np.bool_] = (
            self._rows.column(name).combine_chunks().is_valid().to_numpy(zero_copy_only=False)
        )
        return found

    def numbers(self, name: str) -> _Numbers:
        """Return a column of integers, 0 for null."""
        column = self._rows.column(name).combine_chunks().fill_null(0)
        found: _Numbers = column.to_numpy(zero_copy_only=False)
        return found

    def starts(self, us: int) -> _Numbers:
        """Return the beginnings of the spans of so many microseconds in which they happened."""
        times = self._rows.column("event_time").combine_chunks().cast(pa.int64()).to_numpy()
        found: _Numbers = times - times % us
        return found

    def values(self) -> npt.NDArray[np.float64]:
        """Return what was measured."""
        found: npt.NDArray[np.float64] = self._rows.column("value").to_numpy()
        return found

    def column(self, name: str, at: _Places) -> pa.Array:
        """Return a column of ``code``, of some of them."""
        codes, values = self._code(name)
        return values.take(pa.array(codes[at]))

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
        return found

    def _code(self, name: str) -> tuple[_Codes, pa.Array]:
        """Return a column as places in its values, which are in order, and null behind them."""
        if name not in self._coded:
            # Encoded first: the texts of a task may be more than fit into one array.
            column = self._hours() if name == "hour" else self._rows.column(name)
            coded = column.dictionary_encode().combine_chunks()
            values = coded.dictionary
            order = pc.array_sort_indices(values)
            place = np.empty(len(values) + 1, np.min_scalar_type(len(values)))
            place[order.to_numpy()] = np.arange(len(values))
            place[-1] = len(values)
            codes = place[coded.indices.fill_null(-1).to_numpy()]
            values = pa.concat_arrays([values.take(order), pa.nulls(1, values.type)])
            self._coded[name] = codes, values
        return self._coded[name]

    def _hours(self) -> pa.ChunkedArray:
        return pa.chunked_array([pa.array(self.starts(_HOUR_US)).cast(_TIME)])


def _changes(*columns: npt.NDArray[np.generic]) -> _Places:
    """Return where columns begin to have other values than before."""
    different = np.zeros(len(columns[0]), np.bool_)
    different[:1] = True
    for column in columns:
        different[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(different)
