"""The files of tables that protocols keep in the data folder (``ProtocolSpec.tables``).

People and their programs change them while the broker runs: what they have done is noticed each
second, and told to the protocol.
"""

import logging
import sqlite3
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from host_broker.tables import Rows, Statement, TableFile

OPEN_S = 5.0  # that another program may be in the middle of a change at the start
LOOK_S = 1.0  # between two looks at whether somebody has changed something
MAX_ROWS = 100_000  # of one query; what is beyond is not told
MAX_PENDING = 10_000  # changes that wait because somebody else writes the file
_log = logging.getLogger(__name__)
# What another program's transaction makes us wait for.
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class TableFileError(Exception):
    """The file cannot be used; the text says why and what to do."""


class ProtocolTables:
    """One file. A broker that is killed at any instant leaves all changes that it has made.

    While another program is in the middle of a change, ours wait: nothing waits for them.
    """

    def __init__(self, folder: Path, file: TableFile) -> None:
        """Open or make the file, and its tables. Raises ``TableFileError``."""
        self.path = folder / file.name
        self._file = file
        self._pending: deque[Statement] = deque()
        self._version = -1  # of what was told; SQLite counts what others have changed
        self._told_full = False
        self._told_gone = False
        try:
            # Of whoever runs this broker, and nobody else's: a database is code, too (triggers).
            if self.path.is_symlink():
                raise TableFileError(f"{self.path} is a symbolic link; move it away")
            self._database = sqlite3.connect(
                self.path, timeout=OPEN_S, isolation_level=None, check_same_thread=False
            )
        except (sqlite3.Error, OSError) as error:
            raise TableFileError(f"cannot use {self.path}: {error}") from error
        try:
            self._prepare()
        except (sqlite3.Error, OSError) as error:
            self._database.close()
            advice = "mend it, or move it away to start without it"
            if _is_locked(error):
                advice = "another program is in the middle of a change of it; end that first"
            raise TableFileError(f"cannot use {self.path}: {error}; {advice}") from error
        except TableFileError:
            self._database.close()
            raise

    def _prepare(self) -> None:
        database = self._database
        database.execute("PRAGMA foreign_keys = ON")
        # Readers and one writer at a time, without waiting for the disk.
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        (result,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if result != "ok":
            raise TableFileError(f"{self.path} is damaged ({result}); move it away")
        for statement in self._file.schema:
            database.execute(statement)
        self.path.chmod(stat.S_IRUSR | stat.S_IWUSR)
        for name, query in self._file.queries:
            try:
                database.execute(f"{query} LIMIT 0")
            except sqlite3.Error as error:
                raise TableFileError(
                    f"{self.path}: what is in it of {name!r} cannot be read ({error}); it must "
                    f"have: {'; '.join(self._file.schema)}"
                ) from error
        # From here on whoever holds a lock lets us wait no time at all.
        database.execute("PRAGMA busy_timeout = 0")
        self._inode = self.path.stat().st_ino

    def changed(self) -> Mapping[str, Rows] | None:
        """Return all rows if somebody else has changed some since the last time, else None.

        The first time they are always returned. None also while changes of ours still wait.
        """
        self._look_for_it()
        if not self.write(()):
            return None
        try:
            (version,) = self._database.execute("PRAGMA data_version").fetchone()
            if version == self._version:
                return None
            found = self._read()
        except sqlite3.Error as error:
            self._complain(error)
            return None
        self._version = version
        return found

    def write(self, statements: Iterable[Statement]) -> bool:
        """Make changes, after those that still wait; whether none waits now.

        One that the file refuses, as it would leave rows without what they refer to, is left out.
        """
        self._pending.extend(statements)
        while len(self._pending) > MAX_PENDING:
            lost = self._pending.popleft()
            _log.error("%s is locked for too long: lost is %s", self.path, _said(lost))
        while self._pending:
            statement = self._pending[0]
            try:
                self._database.execute(statement.text, statement.values)
            except sqlite3.IntegrityError as error:
                _log.info("%s: %s: %s", self.path, error, _said(statement))
            except sqlite3.Error as error:
                if _is_locked(error):
                    return False
                self._complain(error)
                return False
            self._pending.popleft()
            self._told_full = False
        return True

    def copy(self) -> bytes:
        """Return the file as it is now, whole, whoever writes it; another thread may call this.

        Raises ``sqlite3.Error``.
        """
        reading = sqlite3.connect(self.path, timeout=5.0)
        try:
            return reading.serialize()
        finally:
            reading.close()

    def close(self) -> None:
        """Close the file; what still waits is lost, and told."""
        if not self.write(()):
            for lost in self._pending:
                _log.error("%s cannot be written: lost is %s", self.path, _said(lost))
        self._database.close()

    def _read(self) -> dict[str, Rows]:
        """Return the rows of all queries, of one moment."""
        database = self._database
        found: dict[str, Rows] = {}
        database.execute("BEGIN")
        try:
            for name, query in self._file.queries:
                rows = database.execute(query).fetchmany(MAX_ROWS + 1)
                if len(rows) > MAX_ROWS:
                    _log.error(
                        "%s has more than %d rows of %r: the rest is ignored",
                        self.path,
                        MAX_ROWS,
                        name,
                    )
                    del rows[MAX_ROWS:]
                found[name] = rows
        finally:
            database.execute("COMMIT")
        return found

    def _look_for_it(self) -> None:
        """Log once that somebody has deleted the file, or put another one in its place."""
        try:
            is_there = self.path.stat().st_ino == self._inode
        except OSError:
            is_there = False
        if not is_there and not self._told_gone:
            _log.error(
                "%s was deleted, or replaced, while the broker uses it: what is there now is not "
                "read, and changes of clients are lost at the end; stop the broker, put the file "
                "there, and start it again",
                self.path,
            )
        self._told_gone = not is_there

    def _complain(self, error: Exception) -> None:
        """Log once that the file cannot be used, until it can."""
        if not self._told_full:
            self._told_full = True
            _log.error("%s: %s; it is tried again each second", self.path, error)


class TableWatch:
    """The files of all protocols, looked at each second."""

    def __init__(self, tables: Mapping[str, ProtocolTables]) -> None:
        """``tables``: by the name of their protocol."""
        self._tables = tables

    def write(self, changes: Iterable[tuple[str, Statement]]) -> None:
        """Make changes of protocols, in order."""
        by_name: dict[str, list[Statement]] = {}
        for name, statement in changes:
            by_name.setdefault(name, []).append(statement)
        for name, statements in by_name.items():
            tables = self._tables.get(name)
            if tables is not None:
                tables.write(statements)

    def look(self, tell: Callable[[str, Mapping[str, Rows]], None]) -> None:
        """Tell, by protocol, what is in those files that somebody else has changed."""
        for name, tables in self._tables.items():
            found = tables.changed()
            if found is not None:
                tell(name, found)

    def copies(self) -> Iterator[tuple[Path, bytes]]:
        """Give each file and what is in it, for a backup. Raises ``sqlite3.Error``."""
        for tables in self._tables.values():
            yield tables.path, tables.copy()

    def close(self) -> None:
        """Close all."""
        for tables in self._tables.values():
            tables.close()


def _is_locked(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _LOCKED


def _said(statement: Statement) -> str:
    return f"{statement.text} {statement.values!r}"
