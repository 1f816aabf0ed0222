"""One partition's files on disk: where it is, and the segment it is writing."""

import contextlib
import logging
import os
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from host_broker.net.journal.assembly import Assembled, assemble
from host_broker.net.journal.format import (
    BLOCK_HEADER_LENGTH,
    LOST,
    SEGMENT_SUFFIX,
    Block,
    SegmentHeader,
    block_header,
    segment_mark,
    segment_name,
    take_block,
)
from host_broker.net.journal.index import SegmentIndex, index_path
from host_broker.net.journal.page_cache import WrittenPages
from host_broker.net.journal.scan import newest_mark, recover
from host_broker.net.storage.files import sync
from host_broker.outputs import Buffer, Record
from host_broker.settings import JournalSettings

_log = logging.getLogger(__name__)

BLOCK_BYTES = 256 * 1024  # of bodies; more only if a single record has more
_MOST_BUFFERS = os.sysconf("SC_IOV_MAX")  # of one call
UNBORN = ".new"  # a segment gets its name when its header is whole


class SegmentFile:
    """A segment being written, from its header to the end; ``index`` says what is in it.

    Everything raises ``OSError`` for what the disk refuses.
    """

    def __init__(self, folder: Path, header: SegmentHeader, *, fsync: bool = False) -> None:
        """Make a segment whose header is whole from the moment it can be seen.

        It may take the place of a segment of the same name: one that a broker began and was
        killed before its first block was whole.
        """
        path = folder / segment_name(header.first)
        unborn = path.with_suffix(path.suffix + UNBORN)
        packed = header.pack()
        index_path(path).unlink(missing_ok=True)
        self._fsync = fsync
        self._file = os.open(unborn, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write_all(self._file, [packed])
            if fsync:
                os.fsync(self._file)
            unborn.rename(path)
            if fsync:
                sync(folder)
        except OSError:
            os.close(self._file)
            raise
        self._mark = segment_mark(packed)
        self.index = SegmentIndex(path, header.journal, header.partition, header.first, header.run)

    def write(self, blocks: list[Assembled], segment_bytes: int | None = None) -> None:
        """Hand blocks to the kernel, up to the one with which it has more than ``segment_bytes``.

        They are taken from the list when they are written, so that one may go on with the rest
        after an ``OSError``: the file never keeps a part of a block that the disk refused.
        """
        number, size = self.index.tail
        buffers: list[Buffer] = []
        count = 0
        for each in blocks:
            buffers += each.block(number, self._mark)
            count += 1
            number += each.messages
            size += BLOCK_HEADER_LENGTH + each.length
            if segment_bytes is not None and size > segment_bytes:
                break
        try:
            write_all(self._file, buffers)
            if self._fsync:
                os.fsync(self._file)
        except BaseException:
            self._take_written(blocks, count, os.lseek(self._file, 0, os.SEEK_CUR))
            raise
        self._take_written(blocks, count, size)

    def write_lost(self, count: int) -> None:
        """Write that so many messages are lost that had the next numbers."""
        while count:
            some = min(count, 2**32 - 1)
            block = Block(BLOCK_HEADER_LENGTH, 0, LOST, self.index.next, 0, 0, some, 0, self._mark)
            write_all(self._file, [block_header(block, [])])
            self.index.add(block.length, some, 0)
            count -= some

    def copy(self, source: BinaryIO, end: int) -> None:
        """Write the whole blocks that ``source`` has from where it is up to the offset ``end``."""
        while source.tell() < end:
            head = source.read(BLOCK_HEADER_LENGTH)
            block = take_block(head, 0)
            if block is None:
                raise ValueError("no block begins here")
            rest = source.read(block.length - BLOCK_HEADER_LENGTH)
            data = memoryview(head + rest)
            mark = newest_mark(data, 0, block) if block.clients_length else ""
            block.segment = self._mark
            write_all(self._file, [block_header(block, [rest]), rest])
            self.index.add(block.length, block.messages, block.latest_ns, mark)

    def close(self) -> None:
        """Close the file and write its index."""
        os.close(self._file)
        with contextlib.suppress(OSError):  # who needs it makes it anew
            self.index.save(self.index.end)

    def _take_written(self, blocks: list[Assembled], count: int, end: int) -> None:
        """Take from ``blocks`` those of the first ``count`` that are whole in the file, which was
        written up to ``end``."""
        index = self.index
        written = 0
        for each in blocks[:count]:
            length = BLOCK_HEADER_LENGTH + each.length
            if index.end + length > end:
                break
            index.add(length, each.messages, each.latest_ns, each.mark)
            written += 1
        del blocks[:written]
        if written < count:
            # What there is of the next one is no block yet, and is written once more.
            os.lseek(self._file, index.end, os.SEEK_SET)
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, index.end)


class Partition:
    """A partition being written: numbers messages, and begins a segment whenever one is due.

    Everything raises ``OSError`` for what the disk refuses, and may then be called again: it goes
    on as if nothing had been tried.
    """

    def __init__(
        self, journal: Path, number: int, identity: uuid.UUID, run: int, settings: JournalSettings
    ) -> None:
        """Find where to go on; ``run`` tells this run of the broker from others.

        Raises ``JournalError`` if the last segment is corrupt.
        """
        self._folder = journal / f"p{number:04d}"
        self._folder.mkdir(parents=True, exist_ok=True)
        for left_over in self._folder.glob("*" + UNBORN):
            left_over.unlink()
        self._number = number
        self._identity = identity
        self._run = run
        self._segment_bytes = settings.segment_bytes
        self._survives_power_loss = settings.ack == "synced"
        self.next, torn = recover(self._folder, number, identity)
        if torn:
            _log.warning("journal: torn: %s", torn)
        self._segment: SegmentFile | None = None
        self._pages = WrittenPages(settings.cached_bytes)
        self._waiting: list[tuple[int, list[Record]]] = []
        self._blocks: list[Assembled] = []
        # Segments, and the folder if they are new in it. Of those that an earlier run has left,
        # nobody knows.
        segments = sorted(self._folder.glob("[0-9]*" + SEGMENT_SUFFIX))
        self._unsynced: dict[Path, None] = dict.fromkeys([*segments, self._folder])
        self._synced = 0
        if self._survives_power_loss:
            self.sync()

    @property
    def folder(self) -> Path:
        """Where its segments are."""
        return self._folder

    @property
    def readable(self) -> int | None:
        """The number after the last message that readers may have; None: all may be read.

        Other threads may ask. With ``synced`` it is what is on the disk: a loss of power must not
        take back what somebody has read, and give its numbers to other messages.
        """
        return self._synced if self._survives_power_loss else None

    @property
    def index(self) -> SegmentIndex | None:
        """Of the segment being written, None if there is none; other threads may read it."""
        segment = self._segment
        return segment.index if segment is not None else None

    def append(self, time_ns: int, record: Record) -> None:
        """Take one record; ``flush`` writes what was taken."""
        self._waiting.append((time_ns, [record]))

    def flush(self) -> None:
        """Hand everything taken to the kernel."""
        waiting, self._waiting = self._waiting, []
        self._blocks += assemble(waiting, 1, BLOCK_BYTES)
        self.write(self._blocks)

    def write(self, blocks: list[Assembled]) -> None:
        """Hand blocks to the kernel.

        They are taken from the list when they are written, so that one may go on with the rest
        after an ``OSError``.
        """
        while blocks:
            if self._segment is None:
                if self._survives_power_loss:
                    self.sync()  # or this one might be there, and not all that comes before it
                header = SegmentHeader(
                    self._identity, self._number, self.next, time.time_ns(), self._run
                )
                self._segment = SegmentFile(self._folder, header)
                self._unsynced[self._folder] = None
            self._unsynced[self._segment.index.path] = None
            try:
                self._segment.write(blocks, self._segment_bytes)
            finally:
                self.next = self._segment.index.next
            self._pages.written(self._segment.index.path, self._segment.index.end)
            if self._segment.index.end > self._segment_bytes:
                self.close()

    def sync(self) -> None:
        """Have everything that was written on the disk."""
        for path in list(self._unsynced):
            with contextlib.suppress(FileNotFoundError):  # a segment that has gone already
                sync(path)
            del self._unsynced[path]
        self._synced = self.next

    def close(self) -> None:
        """Close the segment and write its index; the next block begins another."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None


def write_all(file: int, buffers: Sequence[Buffer]) -> None:
    """Write all buffers, however many calls the kernel wants for it."""
    for first in range(0, len(buffers), _MOST_BUFFERS):
        some = buffers[first : first + _MOST_BUFFERS]
        written = os.writev(file, some)
        while some := _after(some, written):
            written = os.writev(file, some)


def _after(buffers: Sequence[Buffer], written: int) -> list[memoryview]:
    """Return what is left of buffers when so many bytes of them are written."""
    for number, buffer in enumerate(buffers):
        if written < len(buffer):
            rest = [memoryview(each) for each in buffers[number:]]
            return [rest[0][written:], *rest[1:]]
        written -= len(buffer)
    return []
