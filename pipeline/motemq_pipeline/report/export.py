"""Every table as one file, for programs that know no Parquet folders."""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from host_broker.printable import spreadsheet_cell
from motemq_pipeline.delta import Table, present
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.schemas import arrow_schema
from motemq_pipeline.storage import Storage

_ROWS = 64 * 1024  # in memory at a time


def export_tables(place: Storage, form: str, out: Path) -> Iterator[tuple[str, int]]:
    """Write each table to ``out/NAME.parquet`` or ``.csv``; yield its name and rows.

    ``form``: "parquet" or "csv", in which texts are printable and no formulas of a spreadsheet,
    and times are UTC. Files are replaced as a whole. Raises ``PipelineError``.
    """
    found = present(place)
    if not found:
        raise PipelineError(f"there are no tables in {place.uri}")
    for table in found:
        final = out / f"{table}.{form}"
        fresh = out / f".{final.name}.new"
        try:
            out.mkdir(parents=True, exist_ok=True)
            rows = _write(table, place, form, fresh)
            os.replace(fresh, final)
        except OSError as error:
            raise PipelineError(f"cannot write {final}: {error.strerror or error}") from error
        yield table, rows


def _write(table: str, place: Storage, form: str, fresh: Path) -> int:
    schema = arrow_schema(table)
    if form == "csv":
        schema = pa.schema(
            [field.with_type(pa.string()) if _is_bytes(field) else field for field in schema]
        )
        writer = pc.CSVWriter(fresh, schema)
    else:
        writer = pq.ParquetWriter(fresh, schema, compression="zstd")
    rows = 0
    with writer:
        for batch in Table(place, table).dataset().to_batches(batch_size=_ROWS):
            if form == "csv":
                batch = _as_text(batch, schema)
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _is_bytes(field: pa.Field) -> bool:
    return bool(pa.types.is_binary(field.type))


def _as_text(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if _is_bytes(field) or pa.types.is_string(field.type):
            texts = [
                None if value is None else spreadsheet_cell(value) for value in column.to_pylist()
            ]
            columns.append(pa.array(texts, pa.string()))
        else:
            columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
