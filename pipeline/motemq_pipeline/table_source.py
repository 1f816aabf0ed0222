"""Delta tables as a source of Spark: whole, and as a stream of what is added. No jar is needed.

A stream begins with the table as it is, then follows its log. What compaction rewrites is no news,
and what is deleted is none. What was cleared away before it was read ends the stream; without
``fail_on_data_loss`` it is left out. Offsets are ``{"snapshot": version that the stream began with,
"taken": files of it that were read, -1 for all, "version": last version that was read}``. The
stream's first offset names no version: Spark notes where a batch ends, not where the first one
begins, and asks for that again when it repeats it.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from motemq_pipeline.errors import PipelineError
from motemq_pipeline.parquet_files import File, file_from_json, file_to_json
from motemq_pipeline.schemas import DATE, TABLES, arrow_schema
from motemq_pipeline.storage import Storage
from pyspark_motemq.workers import settle

FORMAT: Final = "motemq_table"
_TASK_BYTES: Final = 16 * 1024 * 1024  # of Parquet, about what one task reads
_BATCH_ROWS: Final = 32_768
_Offset = dict[str, int]
_BEGINNING: Final[_Offset] = {"snapshot": -1, "taken": 0, "version": -1}
ALL_TAKEN: Final = -1
_CLEARED: Final = (
    "its log was cleared before it was read ([tables] history is how long it is kept); begin with "
    "a new checkpoint, and new tables"
)


def read_files(
    spark: SparkSession, storage: Storage, name: str, files: Sequence[File]
) -> DataFrame:
    """Return rows of some files of a table, read by Python in the executors."""
    encoded = json.dumps([file_to_json(file) for file in files])
    found: DataFrame = _reader(spark.read, spark, storage, name).option("files", encoded).load()
    return found


def stream(
    spark: SparkSession,
    storage: Storage,
    name: str,
    max_rows: int,
    fail_on_data_loss: bool = True,
) -> DataFrame:
    """Return a stream of what a table has and gets; a batch has about ``max_rows``."""
    reader = _reader(spark.readStream, spark, storage, name).option("maxRows", str(max_rows))
    found: DataFrame = reader.option("failOnDataLoss", str(fail_on_data_loss)).load()
    return found


def _reader(reader: Any, spark: SparkSession, storage: Storage, name: str) -> Any:
    spark.dataSource.register(TableSource)
    options = {"uri": storage.uri, "table": name, "storage": json.dumps(dict(storage.given))}
    return reader.format(FORMAT).options(**options)


class TableSource(DataSource):
    """The data source ``motemq_table``; options ``uri`` of the table, ``table``, its name."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of the table."""
        return TABLES[self.options["table"]]

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads files that the driver chose."""
        encoded = json.loads(self.options["files"])
        return _Files(
            self._storage(), self.options["table"], [file_from_json(one) for one in encoded]
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return what follows the table."""
        max_rows = int(self.options.get("maxRows", "0"))
        fails = self.options.get("failOnDataLoss", str(True)) == str(True)
        return TableStream(self._storage(), self.options["table"], max_rows, fails)

    def _storage(self) -> Storage:
        return Storage.at(self.options["uri"], json.loads(self.options.get("storage", "{}")))


@dataclass
class _Share(InputPartition):
    """The files of one task. The storage travels with it, so executors need no credentials."""

    storage: Storage
    table: str
    files: list[tuple[str, str | None]]  # path and day
    all_there: bool  # a file that is gone is an error


def _shares(
    storage: Storage, table: str, files: Sequence[File], all_there: bool = True
) -> list[InputPartition]:
    found: list[InputPartition] = []
    size = 0
    for file in files:
        if not found or size + file.size > _TASK_BYTES:
            found.append(_Share(storage, table, [], all_there))
            size = 0
        size += file.size
        day = None if file.day is None else file.day.isoformat()
        found[-1].files.append((file.path, day))  # type: ignore[attr-defined]
    return found


def _rows(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, _Share):
        return  # Spark reads nothing as one partition without a value
    settle()
    schema = arrow_schema(partition.table)
    filesystem, root = partition.storage.filesystem()
    for path, day in partition.files:
        whole = f"{root}/{path}" if root else path
        try:
            opened = pq.ParquetFile(whole, filesystem=filesystem)
        except FileNotFoundError:
            if partition.all_there:
                raise
            continue
        with opened as file:
            for batch in file.iter_batches(batch_size=_BATCH_ROWS, use_threads=False):
                yield _with_day(batch, schema, day)


def _with_day(batch: pa.RecordBatch, schema: pa.Schema, day: str | None) -> pa.RecordBatch:
    columns = []
    for field in schema:
        if field.name == DATE:
            days = pa.array([day], pa.string()).cast(pa.date32())
            columns.append(pa.repeat(days[0], batch.num_rows).cast(pa.date32()))
        elif field.name not in batch.schema.names:  # of a version before
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            columns.append(batch.column(field.name).cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _Files(DataSourceReader):
    def __init__(self, storage: Storage, table: str, files: list[File]) -> None:
        self._storage = storage
        self._table = table
        self._files = files

    def partitions(self) -> list[InputPartition]:
        return _shares(self._storage, self._table, self._files)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(partition)


class TableStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a table. ``max_rows``: about so many a batch; 0: all that is there."""

    def __init__(
        self, storage: Storage, table: str, max_rows: int, fail_on_data_loss: bool = True
    ) -> None:
        self._storage = storage
        self._table = table
        self._max_rows = max_rows
        self._fail_on_data_loss = fail_on_data_loss
        self._added: dict[int, list[File]] = {}  # by version, of those that are to be read
        self._snapshots: dict[int, list[File]] = {}
        self._target: int | None = None  # of AvailableNow
        self._handle: Any = None

    def initialOffset(self) -> _Offset:
        """Return what stands before every version: the first batch says where it begins."""
        return dict(_BEGINNING)

    def latestOffset(self, start: _Offset, limit: ReadLimit) -> _Offset:
        """Return up to where the next batch goes."""
        last = self._target if self._target is not None else self._version()
        if start == _BEGINNING:
            start = _start_of(last)
        everything = isinstance(limit, ReadAllAvailable) or not self._max_rows
        return self._end(start, last, 0 if everything else self._max_rows)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that ``latestOffset`` applies."""
        return ReadMaxRows(self._max_rows) if self._max_rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no further than what is there now."""
        self._target = self._version()

    def partitions(self, start: _Offset, end: _Offset) -> list[InputPartition]:
        """Return the tasks of a batch; raises ``PipelineError`` if some of it is gone."""
        if start == _BEGINNING:
            start = _start_of(end["snapshot"])
        files: list[File] = []
        if start["taken"] != end["taken"]:
            until = end["taken"] if end["taken"] != ALL_TAKEN else None
            files += self._snapshot(start["snapshot"])[start["taken"] : until]
        for version in range(start["version"] + 1, end["version"] + 1):
            files += self._added_by(version)
        return _shares(self._storage, self._table, files, self._fail_on_data_loss)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        return _rows(partition)

    def commit(self, end: _Offset) -> None:
        """Forget what was read."""
        for version in [each for each in self._added if each <= end["version"]]:
            del self._added[version]

    def stop(self) -> None:
        """Nothing is open between calls."""

    def _end(self, start: _Offset, last: int, max_rows: int) -> _Offset:
        end = dict(start)
        rows = 0
        if end["taken"] != ALL_TAKEN:
            snapshot = self._snapshot(end["snapshot"])
            while end["taken"] < len(snapshot):
                if rows and max_rows and rows >= max_rows:
                    return end
                rows += snapshot[end["taken"]].rows
                end["taken"] += 1
            end["taken"] = ALL_TAKEN
        while end["version"] < last:
            if rows and max_rows and rows >= max_rows:
                break
            rows += sum(file.rows for file in self._added_by(end["version"] + 1))
            end["version"] += 1
        return end

    def _version(self) -> int:
        from deltalake import DeltaTable

        if self._handle is None:
            options = dict(self._storage.options) or None
            self._handle = DeltaTable(self._storage.uri, storage_options=options)
        else:
            self._handle.update_incremental()
        return int(self._handle.version())

    def _snapshot(self, version: int) -> list[File]:
        """Return the files of the table as it was when the stream began."""
        if version not in self._snapshots:
            from deltalake.exceptions import TableNotFoundError

            from motemq_pipeline.delta_log import snapshot_of

            try:
                files = snapshot_of(self._storage, version)
            except TableNotFoundError:  # the version is cleared away
                if self._fail_on_data_loss:
                    raise PipelineError(
                        f"what {self._storage.uri} had when this stream of it began, in version "
                        f"{version}, is no longer known: {_CLEARED}"
                    ) from None
                files = []
            self._snapshots = {version: files}
        return self._snapshots[version]

    def _added_by(self, version: int) -> list[File]:
        if version not in self._added:
            from motemq_pipeline.delta_log import log_name, new_files

            text = self._storage.read_bytes(log_name(version))
            if text is None and self._fail_on_data_loss:
                raise PipelineError(
                    f"what version {version} of {self._storage.uri} added is no longer known: "
                    f"{_CLEARED}"
                )
            self._added[version] = list(new_files(text or b""))
        return self._added[version]


def _start_of(version: int) -> _Offset:
    return {"snapshot": version, "taken": 0, "version": version}
