"""Kernel locks on files: a lock is free the moment its process ends, however that happens."""

import fcntl
import os
from pathlib import Path


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """Lock ``path``, which is made if absent; return its descriptor, None if somebody has it.

    To close the descriptor gives the lock back. ``shared``: together with others who share it. The
    file is neither truncated nor removed: who comes too late must not wipe what the holder has
    written there, and a removed file can be locked twice. A symbolic link is not followed.
    Raises ``OSError``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o664)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_locked(path: Path) -> bool:
    """Return whether somebody has ``path`` for itself; False if there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
