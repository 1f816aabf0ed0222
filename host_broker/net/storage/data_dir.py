"""The broker's data folder: made if missing, for its user only, held by one broker at a time."""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

_LOCK_NAME = "broker.lock"
_OTHERS = 0o077  # what group and others may


@contextlib.contextmanager
def is_in_use(path: Path) -> Iterator[bool]:
    """Say whether a broker is using a data folder; if none is, none can while the block lasts."""
    try:
        lock = os.open(path / _LOCK_NAME, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
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


def make_private(path: Path) -> None:
    """Take away what others may do in a folder of ours. Raises ``DataDirError``, ``OSError``."""
    ours = os.geteuid()
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = os.fstat(folder)
        _require_ours(path, status, ours)
        if status.st_mode & _OTHERS:
            os.fchmod(folder, 0o700)
    finally:
        os.close(folder)
    # From now on nobody puts anything into it.
    for found, folders, files in os.walk(path):
        for name in (*folders, *files):
            inner = Path(found, name)
            with contextlib.suppress(FileNotFoundError):  # another broker is using it
                status = inner.lstat()
                _require_ours(inner, status, ours)
                if status.st_mode & _OTHERS and not stat.S_ISLNK(status.st_mode):
                    inner.chmod(0o700 if stat.S_ISDIR(status.st_mode) else 0o600)


def _require_ours(path: Path, status: os.stat_result, ours: int) -> None:
    if status.st_uid != ours:
        raise DataDirError(
            f"{path} belongs to user {status.st_uid}, and this broker is user {ours}: what another "
            "user owns is not trusted; give it to this one (chown -R), or choose another folder"
        )


class DataDirError(Exception):
    """The folder cannot be used; the text says why."""


class DataDir:
    """A locked data folder. The kernel frees the lock however the broker ends.

    It is our user's, and nobody else may look into it (0700, its files 0600). What others own in
    it, they have put there while they could: that is refused, since we would write where they want.
    """

    def __init__(self, path: Path) -> None:
        """Make and lock the folder.

        Raises ``DataDirError`` if another broker holds it, or if it is another user's.
        """
        self.path = path
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            make_private(path)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._lock = os.open(path / _LOCK_NAME, flags, 0o600)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise DataDirError(
                    f"cannot use --data {path}: {_LOCK_NAME} in it is a symbolic link, which no "
                    "broker makes; look at who did, and remove it"
                ) from error
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
