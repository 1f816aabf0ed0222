"""A disk that takes nothing until it is told to: in place of the calls that write and sync.

It has no room for a stage either, so answers wait for the thread that writes segments.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from host_broker.net.journal import segment, stage
from host_broker.net.storage import files

WITHIN_S = 20.0


class Gate:
    """Where the journal's thread waits."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._reached = threading.Event()

    def pass_through(self) -> None:
        self._reached.set()
        assert self._open.wait(WITHIN_S)

    def wait_until_reached(self) -> None:
        """Return when somebody waits, or has waited, since the gate was closed."""
        assert self._reached.wait(WITHIN_S)

    def open(self) -> None:
        self._open.set()

    def close(self) -> None:
        self._reached.clear()
        self._open.clear()


@contextlib.contextmanager
def gated_disk(patch: pytest.MonkeyPatch) -> Iterator[tuple[Gate, Gate]]:
    """Put a gate before every write of a segment, and one before every fsync; both are open."""
    writes, syncs = Gate(), Gate()
    write_all, fsync = segment.write_all, os.fsync

    def write(file: int, buffers: Any) -> None:
        writes.pass_through()
        write_all(file, buffers)

    def refused(file: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def synced(file: int) -> None:
        syncs.pass_through()
        fsync(file)

    writes.open()
    syncs.open()
    with patch.context() as patched:
        patched.setattr(segment, "write_all", write)
        patched.setattr(files.os, "fsync", synced)
        patched.setattr(stage.os, "posix_fallocate", refused)
        try:
            yield writes, syncs
        finally:
            writes.open()
            syncs.open()
