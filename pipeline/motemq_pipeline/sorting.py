"""Rows in the order of some columns, where they are too many for memory: sorted by way of files.

An external merge sort of Arrow tables. What is added at a time becomes one sorted run in a file
without a name, which is gone when its process is, however that ends.
"""

import contextlib
import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, Final

import pyarrow as pa

MOST_RUNS: Final = 64  # files that are open at a time; of more, one is made
_Key = tuple[tuple[bool, Any], ...]


class Runs:
    """Rows in files, which go with the block, in the order of ``key``: null behind all others.

    ``most``: rows that are added at a time, and that ``pieces`` yields at a time, at most.
    """

    def __init__(self, key: Sequence[str], most: int) -> None:
        self._key = tuple(key)
        self._most = most
        # One of every run may be in memory.
        self._batch_rows = max(most // MOST_RUNS, 1)
        self._runs: list[IO[bytes]] = []
        self._files = contextlib.ExitStack()

    def __enter__(self) -> "Runs":
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def add(self, rows: pa.Table) -> None:
        """Take rows, in any order."""
        if not rows.num_rows:
            return
        if len(self._runs) == MOST_RUNS:
            merged = self._written(map(self._ordered, self.pieces()))
            for run in self._runs:
                run.close()
            self._runs = [merged]
        self._runs.append(self._written([self._ordered(rows)]))

    def pieces(self) -> Iterator[pa.Table]:
        """Yield all rows, once: none of a piece comes before one of the piece before it.

        Within a piece they are in no order.
        """
        heads = [_Head(run, self._key) for run in self._runs]
        held: list[pa.RecordBatch] = []
        rows = 0
        while heads:
            # What is not after this is in memory, of all runs.
            end = min(head.end for head in heads)
            for head in heads:
                held.append(head.until(end))
                rows += held[-1].num_rows
            heads = [head for head in heads if head.has_rows]
            if not heads or rows + len(heads) * self._batch_rows > self._most:
                yield pa.Table.from_batches(held)
                held, rows = [], 0

    def _ordered(self, rows: pa.Table) -> pa.Table:
        return rows.sort_by([(name, "ascending") for name in self._key])

    def _written(self, tables: Iterable[pa.Table]) -> IO[bytes]:
        file = tempfile.TemporaryFile(dir=scratch())  # noqa: SIM115 - closed with the others
        self._files.callback(file.close)
        tables = iter(tables)
        first = next(tables)
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(file, first.schema, options=options) as writer:
            for table in itertools.chain([first], tables):
                writer.write_table(table, max_chunksize=self._batch_rows)
        file.seek(0)
        return file


class _Head:
    """What is in memory of a run: a batch, from a place on, of which ``end`` is the last key."""

    def __init__(self, run: IO[bytes], key: tuple[str, ...]) -> None:
        self._key = key
        self._batches = iter(pa.ipc.open_stream(run))
        self._at = 0
        self._next()

    def until(self, end: _Key) -> pa.RecordBatch:
        """Take the rows that are in memory and not after ``end``."""
        low, high = self._at, self._batch.num_rows
        while low < high:  # as ``bisect_right`` does
            middle = (low + high) // 2
            low, high = (low, middle) if end < self._key_of(middle) else (middle + 1, high)
        found = self._batch.slice(self._at, low - self._at)
        self._at = low
        if low == self._batch.num_rows:
            self._next()
        return found

    def _next(self) -> None:
        batch = next(self._batches, None)
        self.has_rows = batch is not None
        if batch is not None:
            self._batch, self._at = batch, 0
            self.end = self._key_of(batch.num_rows - 1)

    def _key_of(self, row: int) -> _Key:
        values = [self._batch.column(name)[row].as_py() for name in self._key]
        return tuple((value is None, 0 if value is None else value) for value in values)


def scratch() -> str | None:
    """Return the folder for files of a task: Spark's, where that says which; None: the usual."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return folder if folder and os.access(folder, os.W_OK) else None
