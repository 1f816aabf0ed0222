"""Who writes a folder of tables: one process at a time, as long as it lives."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from motemq_pipeline.errors import PipelineError

_LOCK = ".lock"  # the kernel frees it when its holder ends, however that ends


@contextlib.contextmanager
def only_writer(tables: Path) -> Iterator[None]:
    """Hold the tables for ourselves; raises ``PipelineError`` if another process does."""
    tables.mkdir(parents=True, exist_ok=True)
    with (tables / _LOCK).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read() or "another process"
            raise PipelineError(
                f"the tables in {tables} are being written by {holder}; one at a time"
            ) from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()}")
        lock.flush()
        yield


def is_written(tables: Path) -> bool:
    """Whether a process holds the tables now."""
    try:
        with (tables / _LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False
