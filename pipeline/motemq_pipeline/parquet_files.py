"""Rows to Parquet files, written by the executors with pyarrow.

Spark's own writer asks Hadoop for temporary folders, permissions, checksums and a ``_SUCCESS``, and
without Hadoop's native library each of these starts a process (``chmod``): a micro-batch of a few
rows takes a third of a second. Here a task writes one file where it belongs, under a name that no
other attempt has, and says so; only what was said belongs to the table.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame

_FOUND: Final = pa.schema([("part", pa.int32()), ("file", pa.string()), ("rows", pa.int64())])
_FOUND_SPARK: Final = "part int, file string, rows long"
_GROUP_ROWS: Final = 128 * 1024
_GROUP_BYTES: Final = 64 * 1024 * 1024  # what a task holds of a file


@dataclass(frozen=True, slots=True)
class Part:
    """Where rows go: a folder that is there, and the columns of its files.

    ``lacks``: a column which is null in rows of this part, ``has``: one which is not; "" for all.
    """

    folder: Path
    schema: pa.Schema
    lacks: str = ""
    has: str = ""

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of ``batch`` that belong here, as ``schema`` has them."""
        if self.lacks:
            batch = batch.filter(batch.column(self.lacks).is_null())
        if self.has:
            batch = batch.filter(batch.column(self.has).is_valid())
        return batch.select(self.schema.names).cast(self.schema)


@dataclass(frozen=True, slots=True)
class Written:
    """The files of one part, complete, and their rows."""

    files: tuple[Path, ...]
    rows: int


def writing(rows: DataFrame, parts: Sequence[Part]) -> DataFrame:
    """Return what writes ``rows``, batch or stream, into the folders of ``parts`` when it runs.

    The folders are where all executors see them. ``collected`` understands the rows of the result.
    """
    return rows.mapInArrow(_writer(tuple(parts), uuid.uuid4().hex[:8]), _FOUND_SPARK)


def collected(written: DataFrame, parts: Sequence[Part]) -> list[Written]:
    """Run what ``writing`` returned (or a batch of it) as one job; return the files of each part.

    What attempts that failed have left lies beside them. Raises what Spark raises.
    """
    said = written.collect()
    return [
        Written(
            tuple(part.folder / row.file for row in said if row.part == number),
            sum(row.rows for row in said if row.part == number),
        )
        for number, part in enumerate(parts)
    ]


def write_empty(folder: Path, schema: pa.Schema) -> None:
    """Write a file without rows, which says the columns all the same."""
    pq.write_table(schema.empty_table(), folder / "part-00000.parquet")


def _writer(
    parts: tuple[Part, ...], run: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def written(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        own = f"{task.partitionId():05d}-{task.taskAttemptId()}" if task else "00000-0"
        files = [_File(part, f"part-{own}-{run}.parquet") for part in parts]
        for batch in batches:
            for file in files:
                file.add(batch)
        ended = [(number, file.name, file.close()) for number, file in enumerate(files)]
        full = [each for each in ended if each[2]]
        columns = zip(*full, strict=True) if full else ([], [], [])
        arrays = [pa.array(of, kind) for of, kind in zip(columns, _FOUND.types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_FOUND)

    return written


class _File:
    """One file of one task; it begins with the first row."""

    def __init__(self, part: Part, name: str) -> None:
        self.name = name
        self._part = part
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        own = self._part.of(batch)
        if not own.num_rows:
            return
        self._waiting.append(own)
        self._waiting_rows += own.num_rows
        self._waiting_bytes += own.nbytes
        if self._waiting_rows >= _GROUP_ROWS or self._waiting_bytes >= _GROUP_BYTES:
            self._write()

    def close(self) -> int:
        """Finish the file; return its rows, 0 if there is none."""
        self._write()
        if self._writer is not None:
            self._writer.close()
        return self._rows

    def _write(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._part.folder / self.name, self._part.schema)
        self._writer.write_table(pa.Table.from_batches(self._waiting, self._part.schema))
        self._rows += self._waiting_rows
        self._waiting = []
        self._waiting_rows = self._waiting_bytes = 0
