"""Many small files of a table to few large ones, while it is written and read. Needs no Spark."""

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from motemq_pipeline import store
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.store import Piece

FILE_BYTES = 128 * 1024 * 1024  # a compacted file is about so large
_ROWS = 64 * 1024  # in memory at a time
_GROUP_ROWS = 1024 * 1024
_FAN_IN = 32  # pieces of about one size that the run itself puts together
_LOCK = ".lock-compact"


@dataclass(frozen=True, slots=True)
class Compacted:
    """A table: its files before and after."""

    table: str
    before: int
    after: int


def compact(tables: Path, file_bytes: int = FILE_BYTES) -> list[Compacted]:
    """Put the files of every table together to ones of about ``file_bytes``.

    Rows and their order stay. Readers are not disturbed: what they have open stays for a minute.
    Killed, it leaves the table as it was. Raises ``PipelineError`` if another one is at work.
    """
    done = []
    with _one_at_a_time(tables) as ours:
        if not ours:
            raise PipelineError(f"the tables in {tables} are being compacted by another process")
        for table in _present(tables):
            live, _ = store.pieces(table, tables)
            before = sum(len(piece.files()) for piece in live)
            for group in _groups(live, file_bytes):
                _put_together(table, tables, group)
            live, _ = store.pieces(table, tables)
            done.append(Compacted(table, before, sum(len(piece.files()) for piece in live)))
    return done


def compact_small(tables: Path) -> None:
    """Put pieces of about one size together where there are many, as a run does now and then.

    So a row is written again only a few times in its life.
    """
    with _one_at_a_time(tables) as ours:
        if ours:
            for table in _present(tables):
                store.show(table, tables)
                for group in _alike(store.pieces(table, tables)[0]):
                    _put_together(table, tables, group)


def _present(tables: Path) -> list[str]:
    return [table for table in store.TABLES if (tables / table).is_dir()]


def _groups(live: list[Piece], file_bytes: int) -> Iterator[list[Piece]]:
    """Yield neighbours that make one file of about ``file_bytes``, and pieces of many files."""
    group: list[Piece] = []
    size = 0
    for piece in live:
        if group and size + piece.size() > file_bytes:
            yield from _worth_it(group)
            group, size = [], 0
        group.append(piece)
        size += piece.size()
    yield from _worth_it(group)


def _worth_it(group: list[Piece]) -> Iterator[list[Piece]]:
    # A piece alone keeps its name whatever is done to it, so it stays as it is.
    if len(group) > 1:
        yield group


def _alike(live: list[Piece]) -> Iterator[list[Piece]]:
    """Yield runs of ``_FAN_IN`` neighbours none of which is much larger than the others."""
    group: list[Piece] = []
    kind = -1
    for piece in live:
        its = _magnitude(piece)
        if its != kind:
            group, kind = [], its
        group.append(piece)
        if len(group) == _FAN_IN:
            if piece.size() < FILE_BYTES:
                yield group
            group = []


def _magnitude(piece: Piece) -> int:
    return ((piece.high - piece.low + 1).bit_length() - 1) // 5  # batches: 1.., 32.., 1024.., …


def _put_together(table: str, tables: Path, group: list[Piece]) -> None:
    final = store.place(table, tables, group[0].low, group[-1].high)
    fresh = final.with_name(f".new{final.name}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    files = [file for piece in group for file in piece.files()]
    # With what Spark notes of a table: its version.
    schema = store.arrow_schema(table).with_metadata(pq.read_schema(files[-1]).metadata)
    with pq.ParquetWriter(fresh / "part-00000.parquet", schema, compression="zstd") as writer:
        for batch in _row_groups(files, schema):
            writer.write_table(batch)
    fresh.rename(final)
    store.show(table, tables)


def _row_groups(files: list[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield all rows in order; a small file's few rows do not become a group of their own."""
    rows = ds.dataset([str(file) for file in files], schema=schema, format="parquet")
    scanner = rows.scanner(
        batch_size=_ROWS, batch_readahead=1, fragment_readahead=1, use_threads=False
    )
    waiting: list[pa.RecordBatch] = []
    count = size = 0
    for batch in scanner.to_batches():
        waiting.append(batch)
        count, size = count + batch.num_rows, size + batch.nbytes
        if count >= _GROUP_ROWS or size >= FILE_BYTES:
            yield pa.Table.from_batches(waiting, schema)
            waiting, count, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema)


@contextlib.contextmanager
def _one_at_a_time(tables: Path) -> Iterator[bool]:
    with (tables / _LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
