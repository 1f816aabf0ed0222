"""What the log of a Delta table says: the files of a version, and what a version added."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

from motemq_pipeline.parquet_files import File
from motemq_pipeline.schemas import DATE
from motemq_pipeline.storage import Storage

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def log_name(version: int) -> str:
    """Return where a table's log has what a version changed."""
    return f"_delta_log/{version:020d}.json"


def new_files(log: bytes) -> Iterator[File]:
    """Yield the files with new rows of one entry of a log; what compaction wrote has none."""
    for line in log.splitlines():
        added = json.loads(line).get("add")
        if added and added["dataChange"]:
            stats = json.loads(added.get("stats") or "{}")
            day = added["partitionValues"].get(DATE)
            on = None if day is None else date.fromisoformat(day)
            low, high = (_noted(stats.get(side)) for side in ("minValues", "maxValues"))
            yield File(added["path"], added["size"], stats.get("numRecords", 0), on, low, high)


def committed_at(log: bytes) -> datetime:
    """Return when a version was made, by its entry of a log."""
    lines = map(json.loads, log.splitlines())
    ms: int = next(line["commitInfo"]["timestamp"] for line in lines if "commitInfo" in line)
    return datetime.fromtimestamp(ms / 1000, UTC)


def _noted(bounds: dict[str, Any] | None) -> dict[str, int]:
    """Return bounds of a log's statistics: of integers, and of times in microseconds."""
    found: dict[str, int] = {}
    for name, value in (bounds or {}).items():
        if isinstance(value, int) and not isinstance(value, bool):
            found[name] = value
        elif isinstance(value, str) and _TIME.fullmatch(value):
            found[name] = _microseconds(datetime.fromisoformat(value))
    return found


def snapshot_of(storage: Storage, version: int) -> list[File]:
    """Return the files of a table as it was at a version, the oldest rows first."""
    options = dict(storage.options) or None
    found = list(files_of(DeltaTable(storage.uri, version=version, storage_options=options)))
    found.sort(key=lambda file: (str(file.day), file.low.get("time_ns", 0), file.path))
    return found


def files_of(table: DeltaTable) -> Iterator[File]:
    """Yield the files of a table, with the bounds that are noted of their columns."""
    # Not by ``pa.table``, nor by a time's ``as_py``: they ask pandas, half a second of a command.
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions()).read_all()
    days: list[date | None] = [None] * actions.num_rows
    if "partition" in actions.column_names:
        days = [day.get(DATE) for day in actions.column("partition").to_pylist()]
    columns = [actions.column(name).to_pylist() for name in ("path", "size_bytes", "num_records")]
    bounds = (_bounds(actions, side) for side in ("min", "max"))
    for path, size, rows, day, low, high in zip(*columns, days, *bounds, strict=True):
        yield File(path, size, rows or 0, day, low, high)


def _bounds(actions: pa.Table, side: str) -> list[dict[str, int]]:
    """Return what is noted of integers, and of times in microseconds, file by file."""
    found: list[dict[str, int]] = [{} for _ in range(actions.num_rows)]
    if side not in actions.column_names:
        return found
    column = actions.column(side)
    for field, values in zip(column.type, column.flatten(), strict=True):
        if pa.types.is_timestamp(field.type):
            values = values.cast(pa.timestamp("us", field.type.tz)).cast(pa.int64())
        elif not pa.types.is_integer(field.type):
            continue
        for of_file, value in zip(found, values.to_pylist(), strict=True):
            if value is not None:
                of_file[field.name] = value
    return found


def _microseconds(time: datetime) -> int:
    passed = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (passed.days * 86_400 + passed.seconds) * 10**6 + passed.microseconds
