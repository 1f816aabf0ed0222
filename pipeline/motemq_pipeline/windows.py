"""Readings to windows, by whole columns, where Spark's executors run.

What takes rows here takes all of some hours of some boards: ``rollups`` sees to it that they come
together. To sort numbers in columns costs a fraction of what it costs Spark to sort rows, and a
window of a few readings next to nothing. A window that is there already gets what came to it: its
row has all that this takes, because sketches merge.

A task holds at most ``MOST_READINGS`` at a time. Those of a board and hour that have more are put
into order by way of files (``sorting``), and looked at in pieces; what a piece needs to know of
those before it are numbers that came (``arrived``), and a window that goes on. The rows are the
same.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from motemq_pipeline.arrived import MISSING, Counted, counted, from_rows, in_order
from motemq_pipeline.parquet_files import File
from motemq_pipeline.readings import (
    HOUR_US,
    MINUTE_US,
    TIME,
    WINDOW,
    Places,
    Readings,
    Values,
    changes,
)
from motemq_pipeline.schemas import DATE, arrow_schema
from motemq_pipeline.sketches import PERCENTS, K, merged, of_few, sketch_of
from motemq_pipeline.storage import Storage
from pyspark_motemq.workers import settle

SIMULATED: Final = "gold_sensor_rollup"
MINUTES: Final = "gold_rollup_minute"
HOURS: Final = "gold_rollup_hour"
NUMBERS: Final = "gold_numbers"
TABLES: Final = (SIMULATED, MINUTES, HOURS)
TABLE: Final = "table"  # what rows of windows have that were there, and readings have not
# What such rows are, beside the columns of a stream; ``event_time`` is the beginning of the window,
# or its hour.
BEFORE_DDL: Final = (
    "table string, board string, connection long, sensor string, unit string, "
    "event_time timestamp, window_start_ms long, count long, mean double, min double, max double, "
    "p50 double, p95 double, p99 double, gaps long, sketch binary"
)
_SPANS_US: Final = {MINUTES: MINUTE_US, HOURS: HOUR_US}
_SERIES: Final = ("hour", "board", "connection", "sensor", "unit")
_VALUES: Final = (*_SERIES, WINDOW, "value")
_OF_TIME: Final = ("window_start", "board", "sensor", "unit")
_KEYS: Final = {SIMULATED: (*_SERIES, WINDOW), MINUTES: _OF_TIME, HOURS: _OF_TIME}
_PERCENTILES: Final = tuple(f"p{percent}" for percent in PERCENTS)
_NO_WINDOW: Final = -1
_AT: Final = "at"  # when a window's first reading happened: rows are in this order in files
# A part of a window: some of its readings, or a row that was there. A part without readings has
# only ``gaps``. Without simulated time ``window_start_ms`` is -1, which comes first in pieces.
_TYPES: Final = {
    "board": pa.string(),
    "connection": pa.int64(),
    "sensor": pa.string(),
    "unit": pa.string(),
    "hour": TIME,
    "window_start": TIME,
    WINDOW: pa.int64(),
    _AT: pa.int64(),
    "count": pa.int64(),
    **dict.fromkeys(("mean", "min", "max", *_PERCENTILES), pa.float64()),
    "gaps": pa.int64(),
    "sketch": pa.large_binary(),
}
_WHAT: Final = tuple(_TYPES)[7:]
AT_A_TIME: Final = 4096  # rows of the result, whose sketches have up to 10 KB


@dataclass(frozen=True, slots=True)
class Made:
    """Rows of a table. ``settled``: those that will hardly change, unlike the others."""

    table: str
    settled: bool
    rows: pa.RecordBatch


def rolled_up(
    batches: Iterable[pa.RecordBatch],
    tables: Collection[str],
    is_counted: bool,
    settled_us: int | None = None,
) -> Iterator[Made]:
    """Yield rows of ``tables``, but their ``date``.

    ``batches`` have readings: those of ``counted``, or if ``is_counted`` what ``as_rows`` made; and
    rows of windows, ``BEFORE_DDL``, in any order. Those that get no reading are yielded as they
    are, and are settled.

    With ``settled_us`` all readings that are kept come: then what was there is no part of a window,
    but may be all that is known of it, so of two rows that with more readings is yielded. Settled
    are windows that began before.
    """
    settle()
    before: dict[str, list[pa.Table]] = {table: [] for table in TABLES}
    readings = _readings(batches, before)
    pieces = from_rows(readings) if is_counted else counted(readings)
    parts: dict[str, list[pa.Table]] = {table: [] for table in _SPANS_US}
    numbers: list[pa.RecordBatch] = []

    def looked_at() -> Iterator[Readings]:
        for piece in pieces:
            for table, found in parts.items():
                if table in tables:
                    found += [_parts_of_time(piece, table), _changed(piece.changed, table)]
            numbers.append(piece.numbers)
            if len(piece.missing):
                yield piece.readings

    # What follows begins when all has come.
    held: pa.Table | None = None
    for piece in in_order(looked_at(), _VALUES, (*_VALUES, "event_time")):
        if SIMULATED in tables:
            found = _together([*([] if held is None else [held]), _parts_simulated(piece)])
            found = _merged(found, SIMULATED)
            ended, held = found.slice(0, found.num_rows - 1), found.slice(found.num_rows - 1)
            yield from _with_before(ended, before, SIMULATED, settled_us)
    if SIMULATED in tables:
        ended = _together([] if held is None else [held])
        yield from _with_before(ended, before, SIMULATED, settled_us)
        yield from _finished(_together(before[SIMULATED]), SIMULATED, True)
    for table in _SPANS_US:
        if table in tables:
            merged = _merged(_together(parts.pop(table)), table)
            yield from _with_before(merged, before, table, settled_us)
            yield from _finished(_together(before[table]), table, True)
    if NUMBERS in tables:
        for rows in numbers:
            names = ["hour" if name == "event_time" else name for name in rows.schema.names]
            yield Made(NUMBERS, False, rows.rename_columns(names))


def files_with(storage: Storage, files: Iterable[File], touched: pa.Table) -> Iterator[File]:
    """Yield the files of ``gold_sensor_rollup`` that have windows of ``touched``, by their columns.

    ``touched``: as ``rollups.touched`` returns it.
    """
    key = ["hour", "connection", WINDOW]
    wanted = touched.filter(touched.column("is_reading")).select(key)
    if not wanted.num_rows:
        return
    low, high = (pc.min_max(wanted.column("connection")).as_py()[side] for side in ("min", "max"))
    filesystem, root = storage.filesystem()
    for file in files:
        if file.high.get("connection", low) < low or file.low.get("connection", low) > high:
            continue
        whole = f"{root}/{file.path}" if root else file.path
        rows = pq.read_table(whole, columns=key, filesystem=filesystem, partitioning=None)
        hour = rows.column("hour").cast(pa.int64())
        rows = rows.set_column(0, "hour", hour).cast(wanted.schema)
        code = Readings(pa.concat_tables([wanted, rows])).code(*key)
        if np.isin(code[wanted.num_rows :], code[: wanted.num_rows]).any():
            yield file


def _readings(
    batches: Iterable[pa.RecordBatch], before: dict[str, list[pa.Table]]
) -> Iterator[pa.RecordBatch]:
    """Yield the readings of batches, and put aside rows of windows."""
    for batch in batches:
        if TABLE not in batch.schema.names:
            yield batch
            continue
        of = batch.column(TABLE)
        for table, found in before.items():
            rows = batch.filter(pc.equal(of, table))
            if rows.num_rows:
                found.append(_before(pa.table(rows), table))
        names = [name for name in batch.schema.names if name not in _ONLY_BEFORE]
        yield batch.filter(of.is_null()).select(names)


_ONLY_BEFORE: Final = (TABLE, WINDOW, *_WHAT)


def _before(rows: pa.Table, table: str) -> pa.Table:
    time = rows.column("event_time")
    columns = {name: rows.column(name) for name in rows.column_names if name in _TYPES}
    columns["hour" if table == SIMULATED else "window_start"] = time
    columns[_AT] = time.cast(pa.int64())
    columns[WINDOW] = rows.column(WINDOW).fill_null(_NO_WINDOW)
    return _parts(columns, rows.num_rows)


def _parts(columns: dict[str, pa.Array], rows: int) -> pa.Table:
    none = pa.nulls(rows)
    arrays = [columns.get(name, none) for name in _TYPES]
    return pa.table(arrays, list(_TYPES)).cast(pa.schema(_TYPES.items()))


def _together(parts: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(parts) if parts else _parts({}, 0)


def _parts_of_time(piece: Counted, table: str) -> pa.Table:
    readings, missing = piece.readings, piece.missing
    series, start = readings.code("board", "sensor", "unit"), readings.starts(_SPANS_US[table])
    value = readings.values()
    order = np.lexsort((value, series, start))
    begins = changes(start[order], series[order])
    first, missing = order[begins], missing[order]
    columns = {name: readings.column(name, first) for name in ("board", "sensor", "unit")}
    columns["window_start"] = pa.array(start[first]).cast(TIME)
    columns[_AT] = pa.array(start[first])
    if len(begins):
        gaps = np.add.reduceat(np.maximum(missing, 0), begins)
        columns["gaps"] = pa.array(gaps, mask=np.maximum.reduceat(missing, begins) < 0)
    return _parts({**columns, **_of_values(value[order], begins)}, len(begins))


def _parts_simulated(readings: Readings) -> pa.Table:
    series, window = readings.code(*_SERIES), readings.numbers(WINDOW)
    value = readings.values()
    order = np.lexsort((value, window, series))
    begins = changes(series[order], window[order])
    first = order[begins]
    columns = {name: readings.column(name, first) for name in _SERIES}
    columns[WINDOW] = pa.array(window[first])
    columns[_AT] = pa.array(np.minimum.reduceat(readings.times()[order], begins))
    return _parts({**columns, **_of_values(value[order], begins)}, len(begins))


def _changed(changed: pa.Table, table: str) -> pa.Table:
    """Return parts without readings."""
    rows = Readings(changed)
    start = rows.starts(_SPANS_US[table])
    columns = {name: changed.column(name) for name in ("board", "sensor", "unit")}
    columns["window_start"] = pa.array(start).cast(TIME)
    columns[_AT] = pa.array(start)
    columns["gaps"] = changed.column(MISSING)
    columns["count"] = pa.array(np.zeros(len(start), np.int64))
    return _parts(columns, len(start))


def _of_values(value: Values, begins: Places) -> dict[str, pa.Array]:
    """Return what windows have of their values, which are in order from where each begins."""
    if not len(begins):
        return {}
    count = np.diff(begins, append=len(value))
    few = count <= K
    sketches = of_few(value, begins[few], count[few])
    if not few.all():
        many = [
            sketch_of(value[begin : begin + size])
            for begin, size in zip(begins[~few], count[~few], strict=True)
        ]
        sketches = _put(sketches, few, many)
    columns: dict[str, npt.NDArray[Any]] = {
        "count": count,
        "mean": np.add.reduceat(value, begins) / count,
        "min": value[begins],
        "max": value[begins + count - 1],
    }
    for name, percent in zip(_PERCENTILES, PERCENTS, strict=True):
        columns[name] = value[begins + (count * percent + 99) // 100 - 1]
    return {"sketch": sketches, **{name: pa.array(column) for name, column in columns.items()}}


def _put(
    sketches: pa.Array, there: npt.NDArray[np.bool_], others: Sequence[bytes | None]
) -> pa.Array:
    """Return sketches, and others in between, where none is ``there``."""
    place = np.empty(len(there), np.int64)
    place[there] = np.arange(len(sketches))
    place[~there] = len(sketches) + np.arange(len(others))
    return pa.concat_arrays([sketches, pa.array(others, pa.large_binary())]).take(pa.array(place))


def _with_before(
    parts: pa.Table, before: dict[str, list[pa.Table]], table: str, settled_us: int | None
) -> Iterator[Made]:
    """Yield windows and what was there of them, which then is ``before`` no more."""
    if before[table] and parts.num_rows:
        was = _together(before[table])
        code = Readings(pa.concat_tables([parts, was])).code(*_KEYS[table])
        is_of_parts = np.isin(code[parts.num_rows :], code[: parts.num_rows])
        before[table] = [was.filter(pa.array(~is_of_parts))]
        both = [parts, was.filter(pa.array(is_of_parts))]
        parts = (_merged if settled_us is None else _fullest)(pa.concat_tables(both), table)
    if settled_us is None:
        yield from _finished(parts, table, False)
        return
    is_settled = pa.array(_column(parts, _AT) < settled_us)
    yield from _finished(parts.filter(is_settled), table, True)
    yield from _finished(parts.filter(pc.invert(is_settled)), table, False)


def _fullest(rows: pa.Table, table: str) -> pa.Table:
    """Return that of each window which has most readings, the last one of those."""
    code = Readings(rows).code(*_KEYS[table])
    order = np.lexsort((_column(rows, "count"), code))
    last = np.append(changes(code[order])[1:], len(order)) - 1
    return rows.take(pa.array(order[last]))


def _merged(parts: pa.Table, table: str) -> pa.Table:
    """Return windows, of all their parts, in order of the table's key."""
    if not parts.num_rows:
        return parts
    parts = parts.combine_chunks()
    code = Readings(parts).code(*_KEYS[table])
    order = np.argsort(code, kind="stable")
    begins = changes(code[order])
    sizes = np.diff(begins, append=len(order))
    found = parts.take(pa.array(order[begins]))
    if len(begins) == len(order):
        return found
    parts = parts.take(pa.array(order))
    count = _column(parts, "count")
    total = np.add.reduceat(count, begins)
    alone = sizes == 1
    sum_ = np.add.reduceat(np.where(count, _column(parts, "mean") * count, 0.0), begins)
    new: dict[str, npt.NDArray[Any]] = {
        "count": total,
        "mean": np.where(alone, _column(found, "mean"), sum_ / np.maximum(total, 1)),
        "min": np.fmin.reduceat(_column(parts, "min"), begins),
        "max": np.fmax.reduceat(_column(parts, "max"), begins),
        _AT: np.minimum.reduceat(_column(parts, _AT), begins),
        **{name: _column(found, name).copy() for name in _PERCENTILES},
    }
    known = parts.column("gaps").is_valid().to_numpy()
    gaps = np.add.reduceat(np.where(known, _column(parts, "gaps"), 0), begins)
    sketches = []
    of_parts = parts.column("sketch").combine_chunks()
    for window in np.flatnonzero(~alone):
        here = begins[window] + np.flatnonzero(count[begins[window] :][: sizes[window]])
        sketch, percentiles = _sketch_of(parts, of_parts, here)
        sketches.append(sketch)
        for name, value in zip(_PERCENTILES, percentiles, strict=True):
            new[name][window] = value
    columns = {name: pa.array(column) for name, column in new.items()}
    columns["gaps"] = pa.array(gaps, mask=~np.logical_or.reduceat(known, begins))
    columns["sketch"] = _put(
        found.column("sketch").combine_chunks().filter(pa.array(alone)), alone, sketches
    )
    for name, column in columns.items():
        found = found.set_column(
            found.column_names.index(name), name, column.cast(_TYPES[name], safe=False)
        )
    return found


def _sketch_of(parts: pa.Table, sketches: pa.Array, at: Places) -> tuple[bytes | None, list[float]]:
    """Return the sketch of parts with readings, and its percentiles."""
    unknown = [place for place in at if not sketches[place].is_valid]
    if unknown or len(at) < 2:
        # Rows of before there were sketches keep the percentiles that they have.
        for place in unknown or at:
            known = [parts.column(name)[place].as_py() for name in _PERCENTILES]
            return sketches[place].as_py(), [np.nan if v is None else v for v in known]
        return None, [np.nan] * len(_PERCENTILES)
    return merged(sketches[place].as_py() for place in at)


def _column(rows: pa.Table, name: str) -> npt.NDArray[Any]:
    column = rows.column(name).combine_chunks()
    if pa.types.is_integer(column.type):
        column = column.fill_null(0)
    found: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return found


def _finished(windows: pa.Table, table: str, settled: bool) -> Iterator[Made]:
    """Yield rows of a table, by the time of their readings."""
    windows = windows.filter(pc.greater(windows.column("count"), 0))
    if not windows.num_rows:
        return
    windows = windows.take(pa.array(np.argsort(_column(windows, _AT), kind="stable")))
    if table == SIMULATED:
        window = windows.column(WINDOW)
        known = pc.if_else(pc.equal(window, _NO_WINDOW), pa.scalar(None, window.type), window)
        windows = windows.set_column(windows.column_names.index(WINDOW), WINDOW, known)
    else:
        rate = pc.divide(windows.column("count").cast(pa.float64()), _SPANS_US[table] / 1e6)
        windows = windows.append_column("rate_per_s", rate)
    schema = pa.schema([field for field in arrow_schema(table) if field.name != DATE])
    for begin in range(0, windows.num_rows, AT_A_TIME):
        rows = windows.slice(begin, AT_A_TIME).select(schema.names).cast(schema).combine_chunks()
        for batch in rows.to_batches():
            yield Made(table, settled, batch)
