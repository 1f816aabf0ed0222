"""The broker's data folder: made if missing, and held by one broker at a time."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

_LOCK_NAME = "broker.lock"


@contextlib.contextmanager
def is_in_use(path: Path) -> Iterator[bool]:
    """Say whether a broker is using a data folder; if none is, none can while the block lasts."""
    try:
        lock = os.open(path / _LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:  # no broker has ever used it
        yield False
        return
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield True
        else:
            yield False
    finally:
        os.close(lock)


class DataDirError(Exception):
    """The folder cannot be used; the text says why."""


class DataDir:
    """A locked data folder. The kernel frees the lock however the broker ends."""

    def __init__(self, path: Path) -> None:
        """Make and lock the folder. Raises ``DataDirError`` if another broker holds it."""
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DataDirError(f"cannot use --data {path}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._lock, 20, 0).decode("ascii", "replace").strip()
            os.close(self._lock)
            raise DataDirError(
                f"--data {path} is in use by another broker (process {holder or 'unknown'}); "
                "stop it or choose another folder"
            ) from error
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    @property
    def journal(self) -> Path:
        """The folder of the journal (docs/journal.md)."""
        return self.path / "journal"

    @property
    def retained(self) -> Path:
        """The file of the retained messages (SQLite)."""
        return self.path / "retained.sqlite"

    @property
    def published(self) -> Path:
        """The file of what publishers have published once."""
        return self.path / "published.json"

    def release(self) -> None:
        """Let another broker have the folder."""
        os.close(self._lock)
