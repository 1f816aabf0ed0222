"""Retained messages across restarts: one SQLite file, written by a thread in groups."""

import asyncio
import contextlib
import logging
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

_log = logging.getLogger(__name__)

_VERSION = 1
_SCHEMA = "CREATE TABLE IF NOT EXISTS retained (topic BLOB PRIMARY KEY, packet BLOB) WITHOUT ROWID"
_GROUP_S = 0.05  # changes of this long are one transaction


class RetainedStoreError(Exception):
    """The file cannot be used; the text says why and what to do."""


class RetainedStore:
    """Topic to stored form of the last retained message (FMQP R20).

    Only the latest change of a topic waits to be written, so what waits is bounded by what the
    broker may retain. SQLite in WAL mode: a broker killed at any instant leaves the state of some
    group that was written, at most about 0.1 s old.
    """

    def __init__(self, path: Path) -> None:
        """Open or make the file. Raises ``RetainedStoreError``."""
        self._path = path
        self._changes: dict[bytes, bytes | None] = {}
        self._wake = threading.Condition()
        self._closing = False
        self._failed = False
        with self._advice():
            self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        try:
            with self._advice():
                self._prepare()
        except RetainedStoreError:
            self._database.close()
            raise
        self._thread = threading.Thread(target=self._work, name="retained", daemon=True)

    def entries(self) -> list[tuple[bytes, bytes]]:
        """Return (topic, stored form) of all. Raises ``RetainedStoreError``. Before ``start``."""
        with self._advice():
            return self._database.execute("SELECT topic, packet FROM retained").fetchall()

    def unusable(self, reason: object) -> RetainedStoreError:
        """Return the error to raise when what is in the file cannot be."""
        return RetainedStoreError(
            f"{self._path} is damaged ({reason}); move it away to start without the retained "
            "messages in it"
        )

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def put(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Have changes written soon; None forgets a topic. Never waits for the disk."""
        with self._wake:
            if not self._failed:
                self._changes.update(changes)
                self._wake.notify()

    async def close(self, deadline_s: float) -> None:
        """Write what is waiting, at most ``deadline_s``, and close the file."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.is_alive():
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join, deadline_s)
        if self._thread.is_alive():
            _log.warning("%s: not everything was written within %g s", self._path, deadline_s)
        else:
            self._database.close()

    def _prepare(self) -> None:
        database = self._database
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version not in (0, _VERSION):
            raise RetainedStoreError(
                f"{self._path} is of another version of motemq ({version}, this one knows "
                f"{_VERSION}); move it away, or use the motemq that wrote it"
            )
        (result,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if result != "ok":
            raise self.unusable(result)
        database.execute(_SCHEMA)
        database.execute(f"PRAGMA user_version = {_VERSION}")

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._changes or self._closing)
                # More of it may come right now; one transaction costs as much as a hundred.
                self._wake.wait_for(lambda: self._closing, _GROUP_S)
                changes, self._changes = self._changes, {}
                ending = self._closing
            try:
                self._write(changes)
            except sqlite3.Error as error:
                self._give_up(error)
                return
            if ending:
                return

    def _write(self, changes: dict[bytes, bytes | None]) -> None:
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            database.executemany(
                "INSERT OR REPLACE INTO retained VALUES (?, ?)",
                [(topic, packet) for topic, packet in changes.items() if packet is not None],
            )
            database.executemany(
                "DELETE FROM retained WHERE topic = ?",
                [(topic,) for topic, packet in changes.items() if packet is None],
            )
            database.execute("COMMIT")
        except sqlite3.Error:
            with contextlib.suppress(sqlite3.Error):  # the first error is the one to tell
                database.execute("ROLLBACK")
            raise

    def _give_up(self, error: sqlite3.Error) -> None:
        with self._wake:
            self._failed = True
            self._changes.clear()
        _log.error(
            "retained messages are kept in memory only from now on: cannot write %s: %s",
            self._path,
            error,
        )

    @contextlib.contextmanager
    def _advice(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise RetainedStoreError(f"cannot use {self._path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise self.unusable(error) from error
