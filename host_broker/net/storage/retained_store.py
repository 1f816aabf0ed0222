"""Retained messages across restarts: one SQLite file, which the journal's thread writes."""

import contextlib
import errno
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from host_broker.net.storage.files import sync

_VERSION = 2
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS retained "
    "(topic BLOB PRIMARY KEY, packet BLOB, properties BLOB) WITHOUT ROWID"
)
_FROM_VERSION_1 = "ALTER TABLE retained ADD COLUMN properties BLOB DEFAULT x''"

# A full disk, and a limit of a file's size, which SQLite reports as a failed write.
_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)

Entry = tuple[bytes, bytes]  # packet (encoding 1), properties as spelled


class RetainedStoreError(Exception):
    """The file cannot be used; the text says why and what to do."""


class RetainedStore:
    """Topic to packet (encoding 1) and properties of the last retained message (FMQP R20).

    SQLite in WAL mode: a broker killed at any instant leaves the state after some ``write``, and a
    machine that loses its power one that is no older than the last ``sync``.
    """

    def __init__(self, path: Path) -> None:
        """Open or make the file. Raises ``RetainedStoreError``."""
        self._path = path
        self._unsynced = False
        self._wal_is_new = True  # to its folder
        with self._advice():
            self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        try:
            with self._advice():
                self._prepare()
        except RetainedStoreError:
            self._database.close()
            raise

    def entries(self) -> list[tuple[bytes, bytes, bytes]]:
        """Return (topic, packet, properties) of all. Raises ``RetainedStoreError``."""
        with self._advice():
            found = self._database.execute("SELECT topic, packet, properties FROM retained")
            return found.fetchall()

    def unusable(self, reason: object) -> RetainedStoreError:
        """Return the error to raise when what is in the file cannot be."""
        return RetainedStoreError(
            f"{self._path} is damaged ({reason}); move it away to start without the retained "
            "messages in it"
        )

    def write(self, changes: Mapping[bytes, Entry | None]) -> None:
        """Hand changes to the kernel, all or none; None forgets a topic.

        Raises ``OSError`` (ENOSPC) if there is no room for them now; ``RetainedStoreError`` if the
        file cannot be written at all.
        """
        try:
            self._write(changes)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) in _NO_ROOM:
                raise OSError(errno.ENOSPC, f"{error}: {self._path}") from error
            raise RetainedStoreError(
                f"cannot write {self._path}: {error}; retained messages can no longer be kept, so "
                "the broker does not go on; mend the disk and start it again"
            ) from error
        self._unsynced = True

    def begin_reading(self) -> sqlite3.Connection:
        """Return another connection, in a transaction: it sees what was written until now.

        Threads may have it one after the other. Raises ``RetainedStoreError``.
        """
        with self._advice():
            reading = sqlite3.connect(
                f"{self._path.absolute().as_uri()}?mode=ro",
                uri=True,
                check_same_thread=False,
                isolation_level=None,
            )
            try:
                reading.execute("BEGIN")
                reading.execute("SELECT 1 FROM retained LIMIT 1").fetchall()  # begins it in fact
            except sqlite3.Error:
                reading.close()
                raise
        return reading

    def sync(self) -> None:
        """Have all that was written on the disk. Raises ``OSError``."""
        if not self._unsynced:
            return
        # What SQLite does itself at every COMMIT with ``synchronous = FULL``. It has its locks at
        # other files, so that closing this one loses none.
        sync(self._path.with_name(self._path.name + "-wal"))
        if self._wal_is_new:
            sync(self._path.parent)
            self._wal_is_new = False
        self._unsynced = False

    def close(self) -> None:
        """Close the file; nobody writes any more."""
        self._database.close()

    def _prepare(self) -> None:
        database = self._database
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version not in (0, 1, _VERSION):
            raise RetainedStoreError(
                f"{self._path} is of another version of motemq ({version}, this one knows "
                f"{_VERSION}); move it away, or use the motemq that wrote it"
            )
        (result,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if result != "ok":
            raise self.unusable(result)
        # In one transaction: a broker that is killed now leaves a file of one version or the other.
        database.execute("BEGIN IMMEDIATE")
        database.execute(_SCHEMA)
        if version == 1:
            database.execute(_FROM_VERSION_1)
        database.execute(f"PRAGMA user_version = {_VERSION}")
        database.execute("COMMIT")

    def _write(self, changes: Mapping[bytes, Entry | None]) -> None:
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            database.executemany(
                "INSERT OR REPLACE INTO retained VALUES (?, ?, ?)",
                [(topic, *entry) for topic, entry in changes.items() if entry is not None],
            )
            database.executemany(
                "DELETE FROM retained WHERE topic = ?",
                [(topic,) for topic, entry in changes.items() if entry is None],
            )
            database.execute("COMMIT")
        except sqlite3.Error:
            with contextlib.suppress(sqlite3.Error):  # the first error is the one to tell
                database.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _advice(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise RetainedStoreError(f"cannot use {self._path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise self.unusable(error) from error
