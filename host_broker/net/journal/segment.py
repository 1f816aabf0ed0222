"""One partition's files on disk: where it is, and the segment it is writing."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from host_broker.net.journal.format import record_head, segment_header, segment_name
from host_broker.net.journal.scan import next_sequence
from host_broker.outputs import Buffer, Record
from host_broker.settings import JournalSettings

_MOST_BUFFERS = os.sysconf("SC_IOV_MAX")  # of one call
_UNBORN = ".new"  # a segment gets its name when its header is whole


class Partition:
    """A partition being written: numbers records, and begins a segment whenever one is due.

    Everything raises ``OSError`` for what the disk refuses.
    """

    def __init__(self, journal: Path, number: int, run: int, settings: JournalSettings) -> None:
        """Find where to go on; ``run`` tells this run of the broker from others.

        Raises ``JournalError`` if the last segment is corrupt.
        """
        self._folder = journal / f"p{number:04d}"
        self._folder.mkdir(parents=True, exist_ok=True)
        for left_over in self._folder.glob("*" + _UNBORN):
            left_over.unlink()
        self._number = number
        self._run = run
        self._segment_bytes = settings.segment_bytes
        self._fsync = settings.fsync
        self._sequence = next_sequence(self._folder, number)
        self._file: int | None = None
        self._file_bytes = 0
        self._waiting: list[Buffer] = []

    def append(self, time_ns: int, record: Record) -> None:
        """Take one record; ``flush`` writes what was taken."""
        if self._file is None:
            self._begin_segment()
        head = record_head(record, time_ns, self._sequence)
        self._waiting += (head, record.body)
        self._file_bytes += len(head) + len(record.body)
        self._sequence += record.count
        if self._file_bytes > self._segment_bytes:
            self.flush()
            self.close()

    def flush(self) -> None:
        """Hand everything taken to the kernel, and to the disk if so set."""
        if self._file is None or not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        write_all(self._file, waiting)
        if self._fsync:
            os.fsync(self._file)

    def close(self) -> None:
        """Close the segment; the next record begins another."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _begin_segment(self) -> None:
        """Make a segment whose header is whole from the moment it can be seen.

        It may take the place of a segment of the same name: one that a broker began and was
        killed before its first record was whole.
        """
        path = self._folder / segment_name(self._sequence)
        unborn = path.with_suffix(path.suffix + _UNBORN)
        header = segment_header(self._number, self._sequence, time.time_ns(), self._run)
        file = os.open(unborn, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            write_all(file, [header])
            if self._fsync:
                os.fsync(file)
            unborn.rename(path)
            if self._fsync:
                _fsync_folder(self._folder)
        except OSError:
            os.close(file)
            raise
        self._file = file
        self._file_bytes = len(header)


def write_all(file: int, buffers: Sequence[Buffer]) -> None:
    """Write all buffers, however many calls the kernel wants for it.

    They are not joined first: copying them would keep the event loop from running meanwhile.
    """
    for first in range(0, len(buffers), _MOST_BUFFERS):
        some = [memoryview(buffer) for buffer in buffers[first : first + _MOST_BUFFERS]]
        written = os.writev(file, some)
        while some := _after(some, written):
            written = os.writev(file, some)


def _after(buffers: list[memoryview], written: int) -> list[memoryview]:
    """Return what is left of buffers when so many bytes of them are written."""
    for number, buffer in enumerate(buffers):
        if written < len(buffer):
            return [buffer[written:], *buffers[number + 1 :]]
        written -= len(buffer)
    return []


def _fsync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
