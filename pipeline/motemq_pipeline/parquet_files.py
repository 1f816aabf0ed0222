"""Rows to Parquet files of tables, written by the executors with pyarrow.

A task writes its files where they belong, under names that no other attempt has, and says which;
only what the driver then commits (``delta``) belongs to a table. Spark's own writer would ask
Hadoop for temporary folders, permissions, checksums and a ``_SUCCESS``: a third of a second for a
micro-batch of a few rows, and jars for an object store.
"""

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from motemq_pipeline.errors import PipelineError
from motemq_pipeline.schemas import DATE, DATED_BY, arrow_schema
from motemq_pipeline.storage import Storage
from pyspark_motemq.workers import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Making = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Sharing = Callable[[Iterator[pa.RecordBatch]], Iterator[tuple[int, pa.RecordBatch]]]

_FOUND: Final = pa.schema([("target", pa.int32()), ("file", pa.string())])
FOUND: Final = "target int, file string"  # what tasks say: the columns of ``collected``
_GROUP_ROWS: Final = 128 * 1024
_GROUP_BYTES: Final = 64 * 1024 * 1024  # what a task holds of a file
_NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"  # of rows without a time, as Spark writes it
_MOST_OPEN: Final = 64  # files of a task; with more days the oldest is closed, and begun anew


@dataclass(frozen=True, slots=True)
class File:
    """A Parquet file of a table; ``path`` is relative to the table.

    ``day`` is its partition, None where the table has none or the rows have no time. ``low`` and
    ``high`` are the least and the largest value of every column of ``bounded_columns``; times are
    microseconds since 1970. ``nulls`` is how many nulls each has; None: not known.
    """

    path: str
    size: int
    rows: int
    day: date | None
    low: dict[str, int]
    high: dict[str, int]
    nulls: dict[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A table, and which rows are its own.

    ``lacks``: a column which is null in rows of this table, ``has``: one which is not; "" for all.
    ``file_bytes``: how much a file gets, in memory, so that who changes a row writes little again.
    """

    table: str
    lacks: str = ""
    has: str = ""
    file_bytes: int | None = None


def writing(
    rows: "DataFrame", place: Storage, targets: Sequence[Target], made: Making | None = None
) -> "DataFrame":
    """Return what writes ``rows``, batch or stream, as files of ``targets`` when it runs.

    ``made``: what makes of those of a task the rows that are written; they are not copied between
    the two. ``collected`` understands the rows of the result.
    """
    return rows.mapInArrow(_writer(place, tuple(targets), made), FOUND)


def sharing(
    rows: "DataFrame", place: Storage, targets: Sequence[Target], made: Sharing
) -> "DataFrame":
    """Return what writes all that is made of ``rows``, as ``writing`` does.

    ``made`` says of each batch to which of ``targets`` it belongs.
    """

    def written(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        writers = [TargetFiles(place, target) for target in targets]
        for at, batch in made(batches):
            writers[at].add(batch)
        yield finished(writers)

    return rows.mapInArrow(written, FOUND)


def collected(written: "DataFrame", place: Storage, targets: Sequence[Target]) -> list[list[File]]:
    """Run what ``writing`` returned (or a batch of it) as one job; return each target's files.

    What attempts that failed have left lies beside them, until it is cleared away as old. Raises
    what Spark raises, and ``PipelineError`` if executors write where the driver sees nothing.
    """
    found: list[list[File]] = [[] for _ in targets]
    for row in written.collect():
        found[row.target].append(file_from_json(row.file))
    for target, files in zip(targets, found, strict=True):
        folder = place.within(target.table).folder
        if files and folder is not None and not (folder / files[0].path).exists():
            raise PipelineError(
                f"executors write into {folder} of machines of their own; give a folder of a file "
                "system that all of them share, or an object store (s3://BUCKET/PATH)"
            )
    return found


def written_by(place: Storage, target: Target, batches: Iterator[pa.RecordBatch]) -> list[File]:
    """Write ``batches`` as files of a table, in this process."""
    files = TargetFiles(place, target)
    for batch in batches:
        files.add(batch)
    return list(files.close())


def _writer(place: Storage, targets: tuple[Target, ...], made: Making | None) -> Making:
    def written(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        writers = [TargetFiles(place, target) for target in targets]
        for batch in batches if made is None else made(batches):
            for writer in writers:
                writer.add(batch)
        yield finished(writers)

    return written


def finished(writers: "Sequence[TargetFiles]") -> pa.RecordBatch:
    """Finish what a task has written, in the order of its targets; return it for ``collected``."""
    ended = [(at, file_to_json(file)) for at, each in enumerate(writers) for file in each.close()]
    columns = zip(*ended, strict=True) if ended else ([], [])
    arrays = [pa.array(of, kind) for of, kind in zip(columns, _FOUND.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_FOUND)


class TargetFiles:
    """The files of one table that one task writes: one a day, where the table has days."""

    def __init__(self, place: Storage, target: Target) -> None:
        self._target = target
        self._storage = place.within(target.table)
        self._schema = _file_schema(target.table)
        self._dated_by = DATED_BY.get(target.table)
        self._open: dict[date | None, _File] = {}
        self._closed: list[File] = []
        self._filesystem: Any = None
        self._root = ""

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the rows that belong here."""
        if self._target.lacks:
            batch = batch.filter(batch.column(self._target.lacks).is_null())
        if self._target.has:
            batch = batch.filter(batch.column(self._target.has).is_valid())
        if not batch.num_rows:
            return
        rows = batch.select(self._schema.names).cast(self._schema)
        if self._dated_by is None:
            self._add(None, rows)
            return
        days = pc.cast(rows.column(self._dated_by), pa.date32(), safe=False)
        different = pc.unique(days)
        if len(different) == 1:
            self._add(different[0].as_py(), rows)
            return
        for day in different:
            mine = pc.is_null(days) if not day.is_valid else pc.equal(days, day)
            self._add(day.as_py(), rows.filter(mine))

    def _add(self, day: date | None, rows: pa.RecordBatch) -> None:
        file = self._file(day)
        file.add(rows)
        most = self._target.file_bytes
        if most is not None and file.added_bytes >= most:
            self._close(day)

    def close(self) -> Iterator[File]:
        """Finish all files, and yield them."""
        for day in list(self._open):
            self._close(day)
        yield from self._closed

    def _close(self, day: date | None) -> None:
        self._closed.append(self._open.pop(day).close())

    def _file(self, day: date | None) -> "_File":
        found = self._open.get(day)
        if found is None:
            if len(self._open) >= _MOST_OPEN:
                self._close(next(iter(self._open)))
            folder = ""
            if self._dated_by is not None:
                folder = f"{DATE}={_NO_DAY if day is None else day.isoformat()}/"
            path = f"{folder}part-{uuid.uuid4().hex}.parquet"
            found = self._open[day] = _File(path, day, self._schema, self._opened(path))
        return found

    def _opened(self, path: str) -> tuple[str, Any]:
        if self._filesystem is None:
            self._filesystem, self._root = self._storage.filesystem()
        whole = f"{self._root}/{path}" if self._root else path
        if self._root:
            Path(whole).parent.mkdir(parents=True, exist_ok=True)
        return whole, self._filesystem


class _File:
    def __init__(
        self, path: str, day: date | None, schema: pa.Schema, opened: tuple[str, Any]
    ) -> None:
        self._path = path
        self._day = day
        self._schema = schema
        self._where, self._filesystem = opened
        self._writer = pq.ParquetWriter(self._where, schema, filesystem=self._filesystem)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = self._rows = 0
        self.added_bytes = 0
        self._low: dict[str, int] = {}
        self._high: dict[str, int] = {}
        self._nulls = dict.fromkeys(bounded_columns(schema), 0)

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        self.added_bytes += rows.nbytes
        if self._waiting_rows >= _GROUP_ROWS or self._waiting_bytes >= _GROUP_BYTES:
            self._write()

    def close(self) -> File:
        if self._waiting:
            self._write()
        self._writer.close()
        size = self._filesystem.get_file_info(self._where).size
        return File(self._path, size, self._rows, self._day, self._low, self._high, self._nulls)

    def _write(self) -> None:
        table = pa.Table.from_batches(self._waiting, self._schema)
        for name in self._nulls:
            column = table.column(name)
            self._nulls[name] += column.null_count
            bounds = pc.min_max(column.cast(pa.int64())).as_py()
            if bounds["min"] is not None:
                self._low[name] = min(self._low.get(name, bounds["min"]), bounds["min"])
                self._high[name] = max(self._high.get(name, bounds["max"]), bounds["max"])
        self._writer.write_table(table)
        self._rows += self._waiting_rows
        self._waiting = []
        self._waiting_rows = self._waiting_bytes = 0


def _file_schema(table: str) -> pa.Schema:
    """Return the columns that stand in files: what partitions the table stands in their paths."""
    schema = arrow_schema(table)
    return schema if table not in DATED_BY else schema.remove(schema.get_field_index(DATE))


def bounded_columns(schema: pa.Schema) -> list[str]:
    """Return the columns whose bounds are noted, by which readers leave files out: numbers, times.

    Days are none of them: they are partitions.
    """
    kinds = (pa.types.is_integer, pa.types.is_timestamp)
    return [field.name for field in schema if any(kind(field.type) for kind in kinds)]


def file_to_json(file: File) -> str:
    """Return a file as text."""
    day = None if file.day is None else file.day.isoformat()
    return json.dumps([file.path, file.size, file.rows, day, file.low, file.high, file.nulls])


def file_from_json(text: str) -> File:
    """Return the file of which ``file_to_json`` made the text."""
    path, size, rows, day, low, high, nulls = json.loads(text)
    on = None if day is None else date.fromisoformat(day)
    return File(path, size, rows, on, low, high, nulls)
