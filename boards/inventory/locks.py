"""One rig at a time on a board: a kernel lock, and a record that says whose it is.

The lock is the kernel's, so it is free the moment its process ends, however that happens. The
record is only text for people: it is written after the lock is taken, and the file is never
removed (a removed file can be locked twice).
"""

import contextlib
import datetime
import fcntl
import getpass
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_LOOK_S = 0.1


class Locked(Exception):
    """Somebody else has it; the text says who, since when and what for."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock."""

    pid: int
    user: str
    since: str  # UTC, ISO 8601
    what: str

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.what} (process {self.pid} of {self.user}, since {self.since})"


class BoardLock:
    """The lock of one board, held from ``take`` to ``release`` or the end of the process."""

    def __init__(self, board_id: str, descriptor: int) -> None:
        self.board_id = board_id
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, state_dir: Path, board_id: str, what: str, *, wait_s: float = 0.0) -> Self:
        """Take the board's lock, now or within ``wait_s`` seconds; ``what`` tells others what for.

        Raises ``Locked``.
        """
        until = time.monotonic() + wait_s
        while True:
            try:
                return cls._take(state_dir, board_id, what)
            except Locked:
                if time.monotonic() >= until:
                    raise
                time.sleep(_LOOK_S)

    @classmethod
    def _take(cls, state_dir: Path, board_id: str, what: str) -> Self:
        path = _path(state_dir, board_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Neither truncated nor removed: a loser must not wipe the holder's record.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o664)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            held = _read(path)
            raise Locked(
                f"{board_id} is in use by {held.text if held else 'another rig'}"
            ) from None
        record = {
            "pid": os.getpid(),
            "user": _user(),
            "since": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "what": what,
        }
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(record).encode() + b"\n", 0)
        return cls(board_id, descriptor)

    def release(self) -> None:
        """Let others have the board; harmless when that was done."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # a full disk must not keep the lock
                os.truncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def holder(state_dir: Path, board_id: str) -> Holder | None:
    """Return who holds the board's lock, None if it is free. Takes nothing."""
    path = _path(state_dir, board_id)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return _read(path) or Holder(0, "somebody", "?", "another rig")
    finally:
        os.close(descriptor)


def _path(state_dir: Path, board_id: str) -> Path:
    return state_dir / "locks" / f"{board_id}.lock"


def _read(path: Path) -> Holder | None:
    try:
        row = json.loads(path.read_text())
        return Holder(int(row["pid"]), str(row["user"]), str(row["since"]), str(row["what"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # between its lock and its record


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
