"""What Spark makes, added to tables: whole, once, by one rename (``store``)."""

import functools
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from motemq_pipeline import store
from motemq_pipeline.parquet_files import Part, Written, collected, write_empty, writing
from motemq_pipeline.schemas import SPARK_SCHEMA_KEY, VERSION_KEY, VERSIONS

_SPARK = {"int": "integer", "bigint": "long"}  # in JSON


@dataclass(frozen=True, slots=True)
class Target:
    """A table, and which rows are its own: as ``parquet_files.Part`` has it."""

    table: str
    lacks: str = ""
    has: str = ""

    def part(self, folder: Path) -> Part:
        """Return the part that writes the table's rows into ``folder``."""
        return Part(folder, file_schema(self.table), self.lacks, self.has)


def write(table: str, rows: DataFrame, tables: Path) -> int:
    """Replace the table and return its number of rows.

    Readers see the old table or the new one, never a part. A run that is killed leaves the old
    one.
    """
    (written,) = write_each([Target(table)], rows, tables)
    return written


def write_each(targets: Sequence[Target], rows: DataFrame, tables: Path) -> list[int]:
    """``write`` several tables in one job, which looks at ``rows`` once; return their numbers."""
    finals = []
    for target in targets:
        live, _ = store.pieces(target.table, tables)
        if not live:  # of a version that knew no pieces
            shutil.rmtree(tables / target.table, ignore_errors=True)
        number = live[-1].high + 1 if live else 0
        finals.append(store.place(target.table, tables, 0, number))
    return _commit(rows, targets, tables, finals, even_empty=True)


def append(table: str, rows: DataFrame, tables: Path, batch: int) -> int:
    """Add what one batch of a stream has, once; return how many rows were added.

    A batch that is there already, because Spark repeats it after a crash, is not written again.
    The table of a stream is written by this stream only, batch after batch.
    """
    if store.has(table, tables, batch):
        return 0
    final = store.place(table, tables, batch, batch)
    (added,) = _commit(rows, [Target(table)], tables, [final], even_empty=False)
    return added


def staging(table: str, tables: Path) -> Path:
    """Return the folder for files of batches that are not yet the table's, now empty."""
    folder = tables / table / ".staging"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def add(table: str, written: Written, tables: Path, batch: int) -> None:
    """Make the files, from ``staging``, one batch of the table, if that has it not yet."""
    if not written.rows or store.has(table, tables, batch):
        for file in written.files:
            file.unlink()
        return
    final = store.place(table, tables, batch, batch)
    fresh = _fresh(final)
    for file in written.files:
        file.rename(fresh / file.name)
    fresh.rename(final)
    store.show_new(table, tables, store.Piece(batch, batch, final))


def _commit(
    rows: DataFrame,
    targets: Sequence[Target],
    tables: Path,
    finals: Sequence[Path],
    even_empty: bool,
) -> list[int]:
    parts = [target.part(_fresh(final)) for target, final in zip(targets, finals, strict=True)]
    found = collected(writing(rows, parts), parts)
    for target, part, written, final in zip(targets, parts, found, finals, strict=True):
        for file in part.folder.iterdir():
            if file not in written.files:
                file.unlink()  # of an attempt that failed
        if written.rows or even_empty:
            if not written.rows:
                write_empty(part.folder, part.schema)
            part.folder.rename(final)
            store.show(target.table, tables)
        else:
            shutil.rmtree(part.folder)
    return [written.rows for written in found]


def _fresh(final: Path) -> Path:
    """Return an empty folder in which what becomes ``final`` is made."""
    fresh = final.with_name(f".new{final.name}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    return fresh


@functools.cache
def file_schema(table: str) -> pa.Schema:
    """Return ``store.arrow_schema`` with what Spark notes in its files: the version."""
    fields = [
        {
            "name": column,
            "type": _SPARK.get(kind, kind),
            "nullable": True,
            "metadata": {VERSION_KEY: VERSIONS[table]} if not number and table in VERSIONS else {},
        }
        for number, (column, kind) in enumerate(
            each.split(" ") for each in store.TABLES[table].split(", ")
        )
    ]
    noted = json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"))
    return store.arrow_schema(table).with_metadata({SPARK_SCHEMA_KEY: noted})
