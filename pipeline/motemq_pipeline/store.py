"""Tables as folders of Parquet files that appear whole, once, and never change.

``TABLES/NAME/.d-LOW-HIGH/`` holds what the batches LOW to HIGH of a stream added; a table that is
replaced as a whole is one such piece, from 0. A piece whose numbers lie within another's is
superseded by it. So one rename is the commit of a batch, of a compaction, of a replacement; readers
need nothing but the names, and what they have open stays for a minute after it is superseded.

``TABLES/NAME/LOW-HIGH-N.parquet`` are the same files again (hard links), for programs that read
the folder as it is.
"""

import contextlib
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from motemq_pipeline.alerts.stream import SCHEMA as ALERTS
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.schemas import TABLES as OF_JOURNAL_AND_RIG

TABLES = {**OF_JOURNAL_AND_RIG, "alerts": ALERTS}
OWNERS = ".streams"  # beside the tables: which checkpoint feeds each
KEPT_S = 60.0  # what is superseded stays so long for those who read it
_PIECE = re.compile(r"\.d-(\d{12})-(\d{12})")
_SHOWN = re.compile(r"\d{12}-\d{12}-\d+\.parquet")
_ARROW = {
    "int": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """What the batches ``low`` to ``high`` added to a table."""

    low: int
    high: int
    folder: Path

    def files(self) -> list[Path]:
        """Return its Parquet files, in order."""
        return sorted(self.folder.glob("*.parquet"))

    def size(self) -> int:
        """Return its bytes."""
        return sum(file.stat().st_size for file in self.files())


def place(table: str, tables: Path, low: int, high: int) -> Path:
    """Return the folder of a piece, there or not."""
    return tables / table / f".d-{low:012d}-{high:012d}"


def pieces(table: str, tables: Path) -> tuple[list[Piece], list[Piece]]:
    """Return the pieces that are the table now, in order, and those that are superseded."""
    folder = tables / table
    names = os.listdir(folder) if folder.is_dir() else []
    found = [
        Piece(int(match[1]), int(match[2]), folder / name)
        for name in names
        if (match := _PIECE.fullmatch(name))
    ]
    live: list[Piece] = []
    superseded: list[Piece] = []
    for piece in sorted(found, key=lambda each: (each.low, -each.high)):
        within = bool(live) and piece.high <= live[-1].high
        (superseded if within else live).append(piece)
    return live, superseded


def files(table: str, tables: Path, after: int = -1) -> list[Path]:
    """Return the files that are the table now, of pieces that reach above batch ``after``.

    Raises ``PipelineError`` if the table was never written.
    """
    if not (tables / table).is_dir():
        raise PipelineError(
            f"there is no table {table} in {tables}; 'motemq pipeline run' and "
            "'motemq pipeline backfill' write it"
        )
    live, _ = pieces(table, tables)
    return [file for piece in live if piece.high > after for file in piece.files()]


def has(table: str, tables: Path, batch: int) -> bool:
    """Return whether a batch of the table's stream is in it, compacted or not."""
    return any(piece.low <= batch <= piece.high for piece in pieces(table, tables)[0])


def create(table: str, tables: Path) -> None:
    """Make the table, without rows, if it is not there."""
    (tables / table).mkdir(parents=True, exist_ok=True)


def show(table: str, tables: Path, kept_s: float = KEPT_S) -> None:
    """Bring the visible files up to date, and delete what has long been superseded."""
    folder = tables / table
    with _folder_locked(folder):
        live, superseded = pieces(table, tables)
        wanted = {name: file for piece in live for name, file in _shown(piece)}
        shown = {name for name in os.listdir(folder) if _SHOWN.fullmatch(name)}
        for name in shown - wanted.keys():
            (folder / name).unlink()
        for name in wanted.keys() - shown:
            _link(wanted[name], folder / name)
        for piece in superseded:
            newer = next(each for each in live if each.low <= piece.low and piece.high <= each.high)
            if time.time() - newer.folder.stat().st_mtime >= kept_s:
                shutil.rmtree(piece.folder, ignore_errors=True)


def show_new(table: str, tables: Path, piece: Piece) -> None:
    """``show`` for a piece that has just come, without a look at all the others."""
    folder = tables / table
    with _folder_locked(folder):
        for name, file in _shown(piece):
            _link(file, folder / name)


def _shown(piece: Piece) -> list[tuple[str, Path]]:
    """Return the visible names of a piece's files."""
    stem = f"{piece.low:012d}-{piece.high:012d}"
    return [(f"{stem}-{number}.parquet", file) for number, file in enumerate(piece.files())]


@contextlib.contextmanager
def _folder_locked(folder: Path) -> Iterator[None]:
    """Keep a compaction and the batches of a stream from showing different states."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _link(file: Path, name: Path) -> None:
    name.unlink(missing_ok=True)
    try:
        os.link(file, name)
    except OSError:  # a file system without hard links
        shutil.copyfile(file, name)


def read(spark: SparkSession, table: str, tables: Path, after: int = -1) -> DataFrame:
    """Return a table as Spark reads it, with the columns of ``schemas``.

    ``after``: only what batches above this number added, and what was compacted with it.
    """
    found = [str(file) for file in files(table, tables, after)]
    if not found:
        return spark.createDataFrame([], TABLES[table])
    return spark.read.schema(TABLES[table]).parquet(*found)


def dataset(table: str, tables: Path) -> ds.Dataset:
    """Return a table for pyarrow, with the columns of ``schemas``; no Spark needed.

    Raises ``PipelineError`` if the table was never written.
    """
    found = [str(file) for file in files(table, tables)]
    schema = arrow_schema(table)
    if not found:
        return ds.dataset(schema.empty_table())
    return ds.dataset(found, schema=schema, format="parquet")


def tail(table: str, tables: Path, names: list[str], rows: int) -> list[dict[str, Any]]:
    """Return about the last ``rows`` rows that a stream added, oldest first; no Spark needed."""
    found: list[dict[str, Any]] = []
    for file in reversed(files(table, tables)):
        parquet = pq.ParquetFile(file)
        for group in reversed(range(parquet.num_row_groups)):
            if len(found) >= rows:
                return found[-rows:]
            found = parquet.read_row_group(group, columns=names).to_pylist() + found
    return found[-rows:]


def is_fed(tables: Path) -> bool:
    """Whether a continuous run feeds these tables."""
    return (tables / OWNERS).is_dir()


def arrow_schema(table: str) -> pa.Schema:
    """Return the columns of ``schemas`` for pyarrow."""
    named = (column.split(" ") for column in TABLES[table].split(", "))
    return pa.schema([pa.field(name, _ARROW[kind]) for name, kind in named])


def count(table: str, tables: Path) -> int:
    """Return the number of rows of a table from its Parquet footers; no Spark needed.

    Raises ``PipelineError`` if the table was never written.
    """
    return _rows(files(table, tables))


def _rows(found: Iterable[Path]) -> int:
    return sum(pq.ParquetFile(file).metadata.num_rows for file in found)
