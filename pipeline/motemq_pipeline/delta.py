"""Tables in the Delta format: what every writer commits and every reader finds.

Executors write Parquet files (``parquet_files``); the driver makes them part of a table by one
commit, which carries the id of the query and the number of its batch as an application transaction,
so a batch that is repeated after a crash is recognised. Spark, pandas, polars and DuckDB read what
is committed, and nothing else.
"""

import bisect
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from motemq_pipeline.delta_log import committed_at, files_of, log_name, new_files, snapshot_of
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.parquet_files import File, bounded_columns
from motemq_pipeline.schemas import (
    DATE,
    DATED_BY,
    REWRITTEN,
    TABLES,
    VERSIONS,
    arrow_schema,
)
from motemq_pipeline.storage import HISTORY_S, Storage, refusal, unknown_scheme

if TYPE_CHECKING:  # readers need no Spark
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame, SparkSession

OWNER: Final = "motemq.query"  # of a table that a stream feeds: the id of that query
_VERSION: Final = "motemq.version"
_EXPIRED: Final = "motemq.expired"
_FILE_BYTES: Final = 100 * 1024 * 1024  # as delta-rs has it
# Who changes a row writes its file again.
_REWRITTEN_BYTES: Final = 16 * 1024 * 1024
_TRIES: Final = 20  # of a commit; only a compaction competes, and that rarely
# Log entries go by ``vacuum``, when no stream needs them any more, and by no commit. A compaction
# takes no properties of its own (delta-rs 1.6), only those of the table.
_KEEPS_LOG: Final = PostCommitHookProperties(cleanup_expired_logs=False)
_LOG_CLEANUP: Final = "delta.enableExpiredLogCleanup"
_LOG_KEPT: Final = "delta.logRetentionDuration"
# A checkpoint forgets the files that were replaced longer ago, so ``vacuum`` deletes just these.
_FILES_KEPT: Final = "delta.deletedFileRetentionDuration"
# However short the history is: streams of a table go by its log, and are always a bit behind.
LEAST_LOG_S: Final = 600.0


class Conflict(Exception):
    """Another program changed what was to be changed; trying again from the beginning helps."""


class Table:
    """One table of a place. A handle belongs to one thread.

    ``history_s``: how long what was replaced is kept.
    """

    def __init__(self, place: Storage, name: str, history_s: float = HISTORY_S) -> None:
        if name not in TABLES:
            raise PipelineError(f"there is no table {name!r}; there are {', '.join(TABLES)}")
        self.name = name
        self.storage = place.within(name)
        self._place = place
        self._history_s = history_s
        self._options = dict(self.storage.options) or None
        self._handle: DeltaTable | None = None

    @property
    def log_s(self) -> float:
        """How long an entry of the log, and a file that was replaced, is kept at least, in seconds.

        Who reads what came, by the log, needs the files that it names.
        """
        return max(self._history_s, LEAST_LOG_S)

    def exists(self) -> bool:
        """Whether the table was ever made."""
        with self._in_words():
            return DeltaTable.is_deltatable(self.storage.uri, self._options)

    def create(self) -> None:
        """Make the table, without rows, if it is not there.

        Raises ``PipelineError`` if it is there with the columns of another version.
        """
        with self._in_words():
            if not DeltaTable.is_deltatable(self.storage.uri, self._options):
                self._refuse_folder_of_old()
                self._handle = DeltaTable.create(
                    self.storage.uri,
                    arrow_schema(self.name),
                    mode="ignore",
                    partition_by=self._partition_by,
                    storage_options=self._options,
                    configuration=self._properties() | {_VERSION: self._version()},
                    raise_if_key_not_exists=False,  # Delta allows keys of our own
                )
        self.check_version()

    def check_version(self) -> None:
        """Raise ``PipelineError`` if the table is of another version of MoteMQ."""
        found = self.handle().metadata().configuration.get(_VERSION)
        ours = self._version()
        if found != ours:
            raise PipelineError(
                f"the table {self.name} in {self._place.uri} has version {found}, this MoteMQ "
                f"reads version {ours}; make the tables again from the journal"
            )

    def is_ours(self) -> bool:
        """Whether the table is there, with the columns of this version of MoteMQ."""
        if not self.exists():
            return False
        return self.handle().metadata().configuration.get(_VERSION) == self._version()

    def handle(self, at: int | datetime | None = None) -> DeltaTable:
        """Return delta-rs's table as it is now, or as it was at a version or time.

        Raises ``PipelineError`` if the table was never written, or its past is no longer kept.
        """
        with self._in_words():
            if at is not None:
                return self._past(at)
            if self._handle is None:
                self._handle = DeltaTable(self.storage.uri, storage_options=self._options)
            else:
                self._handle.update_incremental()
            return self._handle

    def _past(self, at: int | datetime) -> DeltaTable:
        past = DeltaTable(self.storage.uri, storage_options=self._options)
        what = f"the table {self.name} in {self._place.uri}"
        if isinstance(at, datetime):
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
            past.load_as_version(at)
            # Of what is older than its log delta-rs gives the oldest there is.
            log = self.storage.read_bytes(log_name(past.version()))
            if log is not None and (begun := committed_at(log)) > at:
                raise PipelineError(
                    f"{what} is known from {begun:%Y-%m-%dT%H:%M:%SZ} on, not as it was at "
                    f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}: it was not there, or what it was is "
                    "no longer kept ([tables] history)"
                )
            return past
        latest = past.version()
        if not 0 <= at <= latest:
            raise PipelineError(f"{what} has no version {at}; the latest is {latest}")
        try:
            past.load_as_version(at)
        except TableNotFoundError:
            raise PipelineError(
                f"version {at} of {what} is no longer kept ([tables] history); the latest is "
                f"{latest}"
            ) from None
        return past

    def owner(self) -> str:
        """Return the id of the query that feeds the table, "" if none does."""
        return str(self.handle().metadata().configuration.get(OWNER, ""))

    def own(self, query: str) -> None:
        """Note, before its first rows, which query feeds the table."""
        if self.owner() != query:
            with self._in_words():
                self._set(OWNER, query)

    def _set(self, key: str, value: str) -> None:
        self.handle().alter.set_table_properties(
            {key: value}, raise_if_not_exists=False, post_commithook_properties=_KEEPS_LOG
        )

    def has(self, app: str, batch: int) -> bool:
        """Whether the table has a batch of the application ``app``, or a later one."""
        done = self.handle().transaction_version(app)
        return done is not None and done >= batch

    def add(self, files: Sequence[File], app: str, batch: int) -> bool:
        """Make ``files`` part of the table, once; False if it has this batch already."""
        return self.change(files, (), app, batch)

    def change(
        self,
        added: Sequence[File],
        removed: Sequence[File],
        app: str,
        batch: int,
        after: int | None = None,
    ) -> bool:
        """Add and remove files in one commit, which is batch ``batch`` of the application ``app``.

        ``after``: the batch that must be the application's last one so far.

        False if the table has that batch, or a later one: nothing is changed then. Raises
        ``Conflict`` if another writer removed what is to be removed, or added another batch.
        """
        actions: list[AddAction | RemoveAction] = [_added(file, self.name) for file in added]
        now_ms = time.time_ns() // 10**6
        partitioned = bool(self._partition_by)
        actions += [
            RemoveAction(
                file.path,
                True,
                now_ms,
                file.size,
                {DATE: _day(file.day)} if partitioned else {},
            )
            for file in removed
        ]
        for _ in range(_TRIES):
            if self.has(app, batch):
                return False
            is_next = after is None or self.handle().transaction_version(app) == after
            if not is_next or (removed and not self._holds(removed)):
                raise Conflict(f"another program changed {self.storage.uri}")
            transaction = CommitProperties(app_transactions=[Transaction(app, batch)])
            if self._committed(actions, "append", transaction):
                return True
        raise Conflict(f"other programs change {self.storage.uri} all the time")

    def replace(self, files: Sequence[File], app: str = "", batch: int = 0) -> None:
        """Replace all rows by those of ``files``; readers see the old table or the new one.

        So they do where the table is of another version of MoteMQ: its columns and its rows are
        replaced by one commit. Until the next one it has no version: whoever is killed between the
        two has lost nothing, and the table is to be replaced again.
        """
        if not self.exists():
            self.create()
        transactions = [Transaction(app, batch)] if app else []
        properties = CommitProperties(app_transactions=transactions)
        for _ in range(_TRIES):
            is_ours = self.is_ours()
            # If they are there, the answer to their commit was lost: a second would remove them.
            is_done = bool(files) and self._holds(files)
            if not is_done:
                added = [_added(file, self.name) for file in files]
                if is_ours:
                    is_done = self._committed([*added], "overwrite", properties)
                else:
                    is_done = self._made_anew(added, properties)
            if is_done:
                if not is_ours:
                    self._set(_VERSION, self._version())
                return
        raise Conflict(f"other programs change {self.storage.uri} all the time")

    def files(self, at: int | datetime | None = None) -> list[File]:
        """Return the files that are the table."""
        with self._in_words():
            return list(files_of(self.handle(at)))

    def added(self, after: int, until: int) -> list[File] | None:
        """Return the files with rows that versions above ``after`` up to ``until`` added.

        None if that is not known any more, because the log was cleared.
        """
        found: list[File] = []
        for version in range(after + 1, until + 1):
            text = self.storage.read_bytes(log_name(version))
            if text is None:
                return None
            found += new_files(text)
        return found

    def count(self) -> int:
        """Return the number of rows, from the log. Raises ``PipelineError``."""
        return sum(file.rows for file in self.files())

    def dataset(self, at: int | datetime | None = None) -> "ds.Dataset":
        """Return the table for pyarrow, and what takes that: DuckDB, polars, pandas."""
        with self._in_words():
            return self.handle(at).to_pyarrow_dataset()

    def read(
        self,
        spark: "SparkSession",
        files: Iterable[File] | None = None,
        at: int | datetime | None = None,
    ) -> "DataFrame":
        """Return the table, or some of its files, for Spark, which needs no jar for that."""
        found = list(self.files(at) if files is None else files)
        if not found:
            return spark.createDataFrame([], TABLES[self.name])
        if self.storage.folder is None:
            from motemq_pipeline.table_source import read_files  # PySpark: a query needs none

            return read_files(spark, self.storage, self.name, found)
        paths = [f"{self.storage.uri}/{file.path}" for file in found]
        # What partitions a table stands in the paths, not in the files.
        reader = spark.read.schema(TABLES[self.name]).option("basePath", self.storage.uri)
        return reader.parquet(*paths)

    @property
    def most_bytes(self) -> int:
        """How large a file gets by putting others together."""
        return _REWRITTEN_BYTES if self.name in REWRITTEN else _FILE_BYTES

    def compact(self, file_bytes: int | None = None) -> tuple[int, int]:
        """Put small files together; returns the number of files before and after.

        Readers are not disturbed, and what was replaced stays for ``history_s``.
        """
        before = len(self.files())
        with self._in_words():
            try:
                if self.handle().metadata().configuration.get(_LOG_CLEANUP) != "false":
                    self._set(_LOG_CLEANUP, "false")  # a table of before
                self.handle().optimize.compact(target_size=file_bytes or self.most_bytes)
            except CommitFailedError:
                return before, before  # a batch came first; next time
        return before, len(self.files())

    def expire(self, column_day: date) -> None:
        """Delete the rows of days before ``column_day``; ``expired`` says so from then on."""
        if not any(file.day is not None and file.day < column_day for file in self.files()):
            return
        with self._in_words():
            if (self.expired() or date.min) < column_day:
                self._set(_EXPIRED, column_day.isoformat())
            self.handle().delete(
                f"{DATE} < '{column_day.isoformat()}'", post_commithook_properties=_KEEPS_LOG
            )

    def expired(self) -> date | None:
        """Return the day before which all rows were deleted, None if none ever were."""
        found = self.handle().metadata().configuration.get(_EXPIRED)
        return None if found is None else date.fromisoformat(found)

    def unread_since(self, after: int) -> datetime | None:
        """Return since when there are rows that a reader of versions up to ``after`` lacks.

        None if there are none, or if the log no longer has them. However long the log is, few of
        its entries are read.
        """
        latest = self.handle().version()
        # What was cleared away is what is oldest.
        first = bisect.bisect_left(range(latest + 1), True, lo=after + 1, key=self._is_in_log)
        for version in range(first, latest + 1):
            text = self.storage.read_bytes(log_name(version))
            if text is not None and any(True for _ in new_files(text)):
                return committed_at(text)
        return None

    def _is_in_log(self, version: int) -> bool:
        return self.storage.read_bytes(log_name(version)) is not None

    def vacuum(self, orphans_after_s: float | None = None) -> None:
        """Delete the files and log entries that are older than the history.

        ``orphans_after_s``: look for files, too, that no commit ever mentioned, and delete those of
        this age, which must be above that of the longest batch.
        """
        with self._in_words():
            for key in (_LOG_KEPT, _FILES_KEPT):
                if self.handle().metadata().configuration.get(key) != _interval(self.log_s):
                    self._set(key, _interval(self.log_s))  # as it is now said
            handle = self.handle()
            self._delete_files(handle)
            if orphans_after_s is not None:
                self._delete_files(handle, math.ceil(max(self.log_s, orphans_after_s) / 3600))
            if handle.version() > 0:
                handle.create_checkpoint()
            handle.cleanup_metadata()

    def _delete_files(self, handle: DeltaTable, orphans_after_h: int | None = None) -> None:
        """Delete files that were replaced, or whatever else is no file of the table."""
        handle.vacuum(
            retention_hours=orphans_after_h,  # None: what the table says
            dry_run=False,
            enforce_retention_duration=False,
            post_commithook_properties=_KEEPS_LOG,
            full=orphans_after_h is not None,
        )

    def _committed(
        self, actions: list[AddAction | RemoveAction], mode: str, properties: CommitProperties
    ) -> bool:
        """Commit on the handle that was looked at; False if somebody else was first."""
        handle = self._handle
        if handle is None:
            raise ValueError("look at the table before a commit")
        with self._in_words():
            try:
                handle.create_write_transaction(
                    actions,
                    mode,
                    arrow_schema(self.name),
                    self._partition_by,
                    commit_properties=properties,
                    post_commithook_properties=_KEEPS_LOG,
                )
            except CommitFailedError:
                # Also when only the answer was lost: whoever looks again sees its own commit.
                self._handle = None
                return False
        return True

    def _made_anew(self, added: list[AddAction], properties: CommitProperties) -> bool:
        """Commit columns and rows in place of the table's, without a version.

        False if somebody else was first.
        """
        with self._in_words():
            try:
                # This of delta-rs takes no property of our own, and what does takes no rows.
                create_table_with_add_actions(
                    self.storage.uri,
                    Schema.from_arrow(arrow_schema(self.name)),
                    added,
                    "overwrite",
                    self._partition_by,
                    configuration=self._properties(),
                    storage_options=self._options,
                    commit_properties=properties,
                    post_commithook_properties=_KEEPS_LOG,
                )
            except CommitFailedError:
                return False
        return True

    def _holds(self, files: Sequence[File]) -> bool:
        here = {file.path for file in self.files()}
        return all(file.path in here for file in files)

    @property
    def _partition_by(self) -> list[str]:
        return [DATE] if self.name in DATED_BY else []

    def _version(self) -> str:
        return str(VERSIONS[self.name])

    def _properties(self) -> dict[str, str | None]:
        return {
            _LOG_KEPT: _interval(self.log_s),
            _LOG_CLEANUP: "false",
            _FILES_KEPT: _interval(self.log_s),
            # Those that executors note (``parquet_files``). delta-rs takes a column whose bounds
            # it expects and does not find for one that is empty.
            "delta.dataSkippingStatsColumns": ",".join(bounded_columns(arrow_schema(self.name))),
        }

    def _refuse_folder_of_old(self) -> None:
        folder = self.storage.folder
        if folder is not None and any(folder.glob(".d-*")):
            raise PipelineError(
                f"the table {self.name} in {self._place.uri} is of an older MoteMQ, which kept "
                "Parquet folders; choose another place, and make the tables again from the journal"
            )

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except CommitFailedError:
            raise
        except TableNotFoundError as error:
            if refused := unknown_scheme(str(error)):
                raise PipelineError(f"{self._place.uri}: {refused}") from None
            raise PipelineError(
                f"there is no table {self.name} in {self._place.uri}; 'motemq pipeline run' and "
                "'motemq pipeline backfill' write it"
            ) from None
        except (DeltaError, OSError) as error:  # the second, where a store does not answer
            what = f"the table {self.name} in {self._place.uri}"
            raise refusal(what, str(error)) from error


class Backlog:
    """How many rows of a table a stream of it (``table_source``) has yet to read."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._rows: dict[int, int] = {}  # that a version added
        self._snapshots: dict[int, list[int]] = {}  # rows of their files

    def rows(self, offset: Mapping[str, int] | None) -> int:
        """Return the rows behind an offset of the stream; None: it has read nothing yet."""
        latest = self._table.handle().version()
        if offset is None or offset["snapshot"] < 0:
            return self._table.count()
        known = self._rows
        self._rows = {}
        for version in range(offset["version"] + 1, latest + 1):
            if version not in known:
                known[version] = sum(f.rows for f in self._table.added(version - 1, version) or ())
            self._rows[version] = known[version]
        return sum(self._rows.values()) + self._of_snapshot(offset["snapshot"], offset["taken"])

    def _of_snapshot(self, version: int, taken: int) -> int:
        """Return the rows of what was there when the stream began that it has not taken."""
        if taken < 0:
            return 0
        if version not in self._snapshots:
            files = snapshot_of(self._table.storage, version)
            self._snapshots[version] = [file.rows for file in files]
        return sum(self._snapshots[version][taken:])


def present(place: Storage) -> list[str]:
    """Return the names of the tables that are in a place."""
    return [name for name in TABLES if Table(place, name).exists()]


def _added(file: File, table: str) -> AddAction:
    times = {field.name for field in arrow_schema(table) if pa.types.is_timestamp(field.type)}

    def bounds(of: dict[str, int], up: int) -> dict[str, Any]:
        # Delta notes times in milliseconds; the bounds may be wider than the rows, never narrower.
        return {
            name: _iso_ms(-(-us // 1000) if up else us // 1000) if name in times else us
            for name, us in of.items()
        }

    stats = {
        "numRecords": file.rows,
        "minValues": bounds(file.low, 0),
        "maxValues": bounds(file.high, 1),
        "nullCount": file.nulls or {},
    }
    partition = {DATE: _day(file.day)} if table in DATED_BY else {}
    return AddAction(
        file.path, file.size, partition, time.time_ns() // 10**6, True, json.dumps(stats)
    )


def _interval(seconds: float) -> str:
    return f"interval {max(1, round(seconds))} seconds"


def _day(day: date | None) -> str | None:
    return None if day is None else day.isoformat()


def _iso_ms(ms: int) -> str:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
