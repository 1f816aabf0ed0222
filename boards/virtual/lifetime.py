"""How long a board's process lives, and that no other one has its folder.

A board ends when its standard input ends, when its parent dies, at SIGTERM or SIGINT, or when it
is asked to through its control port. A *detached* one, which is to outlive the shell that started
it, heeds signals and the control port only.
"""

import logging
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, BinaryIO

from boards.file_lock import is_locked, try_lock

_MAX_LOG_LINES = 10_000  # a board that crashes for ever must not fill the disk
_LOCK = "lock"


class FolderInUse(Exception):
    """Another process runs a board on this folder."""


def take_folder(state_dir: Path) -> IO[str]:
    """Make and lock ``state_dir`` for the life of the returned file: a flash has one board.

    The file holds our process id. Raises ``FolderInUse``, ``OSError``.
    """
    descriptor = try_lock(state_dir / _LOCK)
    if descriptor is None:
        raise FolderInUse(
            f"{state_dir} is in use by a running board; stop it or choose another folder"
        )
    lock = os.fdopen(descriptor, "w")
    lock.truncate(0)  # by now nobody else's
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def holder(state_dir: Path) -> int | None:
    """Return the process id of the board that runs on ``state_dir``, None if none does.

    0 if a board is just taking or leaving the folder.
    """
    try:
        if not is_locked(state_dir / _LOCK):
            return None
        text = (state_dir / _LOCK).read_text().strip()
    except FileNotFoundError:  # it was removed between the two
        return None
    return int(text) if text.isdecimal() else 0


def handle(state_dir: Path) -> BinaryIO | None:
    """Return what can be read once the board that runs on ``state_dir`` has ended; None if none is.

    By then its process is gone, which it is not yet when it leaves the folder.
    """
    pid = holder(state_dir)
    try:
        return os.fdopen(os.pidfd_open(pid), "rb", buffering=0) if pid else None
    except ProcessLookupError:
        return None


def log_to_stderr() -> None:
    """Send log messages to standard error, and drop them once there have been very many."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", handlers=[_Capped()])


class _Capped(logging.StreamHandler):  # type: ignore[type-arg]  # not generic when it runs
    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._left = _MAX_LOG_LINES

    def emit(self, record: logging.LogRecord) -> None:
        if self._left > 0:
            self._left -= 1
            super().emit(record)


class Life:
    """Runs a board's selector until its end."""

    def __init__(self, selector: selectors.BaseSelector, *, detached: bool) -> None:
        self._selector = selector
        self._detached = detached
        self._ended = False
        self._parent = os.getppid()
        self._woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)

    def end(self) -> None:
        """Let ``run`` return."""
        self._ended = True

    def run(self, tick: Callable[[float], None], poll_s: Callable[[], float]) -> None:
        """Call what is ready, and ``tick(now)`` at least every ``poll_s()`` (monotonic seconds)."""
        signal.set_wakeup_fd(self._wake.fileno())
        signal.signal(signal.SIGTERM, lambda *_: self.end())
        signal.signal(signal.SIGINT, lambda *_: self.end())
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only to wake the selector
        self._selector.register(self._woken, selectors.EVENT_READ, lambda _: self._woken.recv(64))
        if not self._detached:
            self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ, self._on_stdin)
        try:
            while not self._ended and (self._detached or os.getppid() == self._parent):
                for key, events in self._selector.select(poll_s()):
                    key.data(events)
                tick(time.monotonic())
        finally:
            signal.set_wakeup_fd(-1)
            self._selector.unregister(self._woken)
            self._woken.close()
            self._wake.close()

    def _on_stdin(self, _events: int) -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            self.end()
