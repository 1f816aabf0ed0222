"""Retained messages, and those of durable queues, across restarts: one SQLite file, which the
journal's thread writes."""

import contextlib
import errno
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from host_broker.bus.queue import read_place, spell_place
from host_broker.net.storage.files import sync

_VERSION = 3
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS retained "
    "(topic BLOB PRIMARY KEY, packet BLOB, properties BLOB) WITHOUT ROWID",
    # Since version 3. Number 0 is the queue itself.
    "CREATE TABLE IF NOT EXISTS queued "
    "(queue BLOB, number INTEGER, packet BLOB, properties BLOB, PRIMARY KEY (queue, number)) "
    "WITHOUT ROWID",
)
_FROM_VERSION_1 = "ALTER TABLE retained ADD COLUMN properties BLOB DEFAULT x''"

# A full disk, and a limit of a file's size, which SQLite reports as a failed write.
_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)

_EMPTY_QUEUES = (
    "DELETE FROM queued WHERE number = 0 AND instr(properties, x'20') = 0 "  # no checkpoints
    "AND queue NOT IN (SELECT queue FROM queued WHERE number > 0)"
)

Entry = tuple[bytes, bytes]  # packet (encoding 1), properties as spelled
Changes = Mapping[bytes, Entry | None]  # None: it is there no more
NO_CHANGES: Changes = {}


class MessageStoreError(Exception):
    """The file cannot be used; the text says why and what to do."""


class MessageStore:
    """Topic to packet (encoding 1) and properties of the last retained message (FMQP R20); queue
    and number to the same of each message in a durable queue.

    SQLite in WAL mode: a broker killed at any instant leaves the state after some ``write``, and a
    machine that loses its power one that is no older than the last ``sync``.
    """

    def __init__(self, path: Path) -> None:
        """Open or make the file. Raises ``MessageStoreError``."""
        self._path = path
        self._unsynced = False
        self._wal_is_new = True  # to its folder
        with self._advice():
            self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        try:
            with self._advice():
                self._prepare()
        except MessageStoreError:
            self._database.close()
            raise

    def entries(self) -> list[tuple[bytes, bytes, bytes]]:
        """Return (topic, packet, properties) of all. Raises ``MessageStoreError``."""
        with self._advice():
            found = self._database.execute("SELECT topic, packet, properties FROM retained")
            return found.fetchall()

    def queued(self) -> list[tuple[bytes, bytes, bytes]]:
        """Return (key, packet, properties) of what durable queues have, in the order of queues and
        numbers; of each the queue itself first. Those that are empty are forgotten.

        Raises ``MessageStoreError``.
        """
        with self._advice():
            self._database.execute(_EMPTY_QUEUES)
            found = self._database.execute("SELECT * FROM queued ORDER BY queue, number")
            return [
                (spell_place(queue, number), packet, properties)
                for queue, number, packet, properties in found
            ]

    def unusable(self, reason: object) -> MessageStoreError:
        """Return the error to raise when what is in the file cannot be."""
        return MessageStoreError(
            f"{self._path} is damaged ({reason}); move it away to start without the retained "
            "messages in it, and those that wait in queues"
        )

    def write(self, retained: Changes, queued: Changes = NO_CHANGES) -> None:
        """Hand changes of topics, and of places in queues, to the kernel: all or none.

        Raises ``OSError`` (ENOSPC) if there is no room for them now; ``MessageStoreError`` if the
        file cannot be written at all.
        """
        try:
            self._write(retained, queued)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) in _NO_ROOM:
                raise OSError(errno.ENOSPC, f"{error}: {self._path}") from error
            raise MessageStoreError(
                f"cannot write {self._path}: {error}; retained messages and queues can no longer "
                "be kept, so the broker does not go on; mend the disk and start it again"
            ) from error
        self._unsynced = True

    def begin_reading(self) -> sqlite3.Connection:
        """Return another connection, in a transaction: it sees what was written until now.

        Threads may have it one after the other. Raises ``MessageStoreError``.
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
        if version not in (0, 1, 2, _VERSION):
            raise MessageStoreError(
                f"{self._path} is of another version of motemq ({version}, this one knows "
                f"{_VERSION}); move it away, or use the motemq that wrote it"
            )
        (result,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if result != "ok":
            raise self.unusable(result)
        # In one transaction: a broker that is killed now leaves a file of one version or the other.
        database.execute("BEGIN IMMEDIATE")
        for table in _SCHEMA:
            database.execute(table)
        if version == 1:
            database.execute(_FROM_VERSION_1)
        database.execute(f"PRAGMA user_version = {_VERSION}")
        database.execute("COMMIT")

    def _write(self, retained: Changes, queued: Changes) -> None:
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            database.executemany(
                "INSERT OR REPLACE INTO retained VALUES (?, ?, ?)",
                [(topic, *entry) for topic, entry in retained.items() if entry is not None],
            )
            database.executemany(
                "DELETE FROM retained WHERE topic = ?",
                [(topic,) for topic, entry in retained.items() if entry is None],
            )
            database.executemany(
                "INSERT OR REPLACE INTO queued VALUES (?, ?, ?, ?)",
                [(*read_place(key), *entry) for key, entry in queued.items() if entry is not None],
            )
            database.executemany(
                "DELETE FROM queued WHERE queue = ? AND number = ?",
                [read_place(key) for key, entry in queued.items() if entry is None],
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
            raise MessageStoreError(f"cannot use {self._path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise self.unusable(error) from error
