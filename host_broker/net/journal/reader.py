"""The journal for readers elsewhere: where a message is, as whole blocks of one segment.

What a segment has is told by its index: of those that are closed it is in a file beside them (made
anew where it is missing), of those being written the writer has it. Blocks are handed over as they
are, so CRCs are the reader's business (docs/journal.md, Reading). Nothing here makes the writer
wait.
"""

import bisect
import contextlib
import os
import re
import threading
import time
import uuid
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from host_broker.net.journal.format import (
    BLOCK_HEADER_LENGTH,
    LOST,
    SEGMENT_SUFFIX,
    Block,
    is_whole,
    segment_name,
    take_block,
    take_column,
)
from host_broker.net.journal.index import SegmentIndex
from host_broker.net.journal.scan import corrupt, indexed
from host_broker.net.journal.selection import Selection

_PARTITION = re.compile(r"p(\d{4,})")
_SEGMENT = re.compile(r"\d{20}" + re.escape(SEGMENT_SUFFIX))
_SETTLED_NS = 2_000_000_000  # a folder that changed later may change again at the same time
_SELECT_BYTES = 256 * 1024  # looked at at once: other threads have their turns in between
_HOP_BYTES = 16 * 1024  # read at once to find the next blocks
_T = TypeVar("_T")


class Trimmed(Exception):
    """The messages asked for are no longer kept; ``first`` is the oldest that is."""

    def __init__(self, first: int) -> None:
        super().__init__(f"the journal begins with message {first} now")
        self.first = first


class Beyond(Exception):
    """No message has the number asked for, nor is it the next one; ``next`` is that one's."""

    def __init__(self, following: int) -> None:
        super().__init__(f"the next message will be {following}")
        self.next = following


class Written(Protocol):
    """What the writer of a partition says of the segment it is writing (``Partition``)."""

    @property
    def index(self) -> SegmentIndex | None:
        """Of the segment that is being written, if there is one."""

    @property
    def readable(self) -> int | None:
        """The number after the last message that readers may have; None: all may be read."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition: the numbers of its oldest message and of the next one, and its bytes."""

    partition: int
    first: int
    next: int
    size: int


@dataclass(frozen=True, slots=True)
class Slice:
    """Whole blocks of one segment: bytes ``start`` to ``end`` of a file, messages ``first`` …"""

    path: Path
    run: int
    start: int
    end: int
    first: int
    next: int


@dataclass(frozen=True, slots=True)
class Selected:
    """What was wanted of the messages ``first`` to ``next`` - 1: selected blocks."""

    blocks: bytes
    run: int
    first: int
    next: int


@dataclass(slots=True)
class _Known:
    """A partition's segments in order, as its folder was when it was looked at."""

    changed_ns: int
    firsts: "array[int]"
    sizes: "array[int]"  # of closed ones


class JournalReader:
    """Finds messages in the journal folder ``folder``. Threads may share one.

    ``writers``: those who are writing its partitions, by number; without them segments are read.
    Retention may delete segments at any time: what is returned is of those that are left.
    """

    def __init__(self, folder: Path, identity: uuid.UUID, writers: Sequence[Written] = ()) -> None:
        self.identity = identity
        self._folder = folder
        self._writers = writers
        self._known: dict[int, _Known] = {}
        self._indexes: dict[Path, tuple[int, SegmentIndex]] = {}  # with the size of the file
        self._lock = threading.Lock()

    def partitions(self) -> list[PartitionState]:
        """Return the partitions. Raises ``JournalError``, ``OSError``."""
        found = []
        with self._lock:
            for number in self._numbers():
                segments = self._look(number)
                if segments is None:
                    continue
                last = self._last(number, segments)
                size = sum(segments.sizes[:-1]) + last.end
                following = min(last.next, self._readable(number, last.next))
                found.append(PartitionState(number, segments.firsts[0], following, size))
        return found

    def indexes(self, partition: int) -> list[SegmentIndex]:
        """Return what is known of a partition's segments. Raises as ``slice``."""
        return self._of_what_is_left(partition, lambda: self._indexes_of(partition))

    def earliest_ns(self, partition: int) -> int:
        """Return the time of the first message that is kept, 0 if there is none."""
        return self._of_what_is_left(partition, lambda: self._earliest_ns(partition))

    def _earliest_ns(self, partition: int) -> int:
        for index in self._indexes_of(partition):
            if index.next > index.first:
                with _Hops(index.path) as hops:
                    return hops.first_time_ns(index.near(index.first))
        return 0

    def slice(
        self, partition: int, number: int, max_bytes: int, until: int | None = None
    ) -> Slice | None:
        """Return blocks from the one with message ``number`` on; None if it is the next to come.

        As many as ``max_bytes`` allow and messages before ``until`` need, but at least one, and of
        one segment. Raises ``Trimmed``; ``Beyond``; ``LookupError`` for no such partition;
        ``JournalError``; ``OSError``.
        """
        return self._of_what_is_left(
            partition, lambda: self._slice(partition, number, max_bytes, until)
        )

    def _slice(
        self, partition: int, number: int, max_bytes: int, until: int | None
    ) -> Slice | None:
        with self._lock:
            segments = self._look(partition)
            if segments is None:
                if partition >= len(self._writers):
                    raise LookupError(partition)
                if number:
                    raise Beyond(0)
                return None
            if number < segments.firsts[0]:
                raise Trimmed(segments.firsts[0])
            at = bisect.bisect_right(segments.firsts, number) - 1
            index = self._index(partition, segments, at)
        following, end = index.tail  # more may be written meanwhile
        if number > following and at + 1 == len(segments.firsts):
            raise Beyond(following)
        if number >= self._readable(partition, number + 1):
            return None
        if number >= following:
            if at + 1 == len(segments.firsts):
                return None
            what = f"message {following} is missing, the next segment begins with "
            raise corrupt(index.path, end, f"{what}{segments.firsts[at + 1]}")
        if (readable := self._readable(partition, following)) < following:
            until = readable if until is None else min(until, readable)
        start = index.near(number)
        with _Hops(index.path) as hops:
            block = hops.block(start)
            while block.next <= number:
                start += block.length
                block = hops.block(start)
            first = block.first
            if until is not None and until < following:
                following, end = hops.end(index.near(max(until - 1, number)), until)
            if end - start > max_bytes:
                last, stop = end, start + max_bytes
                end, following = start + block.length, block.next
                far = index.boundary(stop)
                if far > start:  # what is before it is not looked at
                    end, following = far, hops.block(far).first
                while end < last:
                    block = hops.block(end)
                    if end + block.length > stop:
                        break
                    end, following = end + block.length, block.next
        return Slice(index.path, index.run, start, end, first, following)

    def open(self, found: Slice) -> int:
        """Return an open file of a slice, for the caller to close.

        Raises ``Trimmed`` if it was deleted since it was found, ``OSError``.
        """
        try:
            return os.open(found.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            with self._lock:
                segments = self._look(int(found.path.parent.name[1:]))
            if segments is None or segments.firsts[0] <= found.first:
                raise
            raise Trimmed(segments.firsts[0]) from None

    def select(self, found: Slice, selection: Selection, max_bytes: int) -> Selected:
        """Return what is wanted of a slice, about ``max_bytes`` of it at most.

        Raises ``JournalError`` for a block that is corrupt, and as ``open``.
        """
        parts: list[bytes] = []
        at, following, size = found.start, found.first, 0
        file = self.open(found)
        try:
            while at < found.end and size < max_bytes:
                data = os.pread(file, min(_SELECT_BYTES, found.end - at), at)
                block = take_block(data, 0) if len(data) >= BLOCK_HEADER_LENGTH else None
                if block is not None and block.length > len(data):
                    data = os.pread(file, block.length, at)
                view = memoryview(data)
                position = 0
                while block is not None and position + block.length <= len(data):
                    if not is_whole(view, position, block):
                        raise corrupt(found.path, at + position, "the CRC of a block is wrong")
                    parts.append(selection.apply(data[position : position + block.length]))
                    size += len(parts[-1])
                    following = block.next
                    position += block.length
                    if len(data) - position < BLOCK_HEADER_LENGTH:
                        break
                    block = take_block(data, position)
                if not position:
                    raise corrupt(found.path, at, "no block begins here")
                at += position
        finally:
            os.close(file)
        return Selected(b"".join(parts), found.run, found.first, following)

    def since(self, partition: int, time_ns: int) -> int:
        """Return the first message, in order, that was read at ``time_ns`` or later.

        The number of the next message if there is none. Raises as ``slice``.
        """
        return self._of_what_is_left(partition, lambda: self._since(partition, time_ns))

    def _since(self, partition: int, time_ns: int) -> int:
        indexes = self._indexes_of(partition)
        readable = self._readable(partition, indexes[-1].next)
        for index in indexes:
            end = index.end
            if index.latest_ns < time_ns:
                continue
            with _Hops(index.path) as hops:
                at = index.since(time_ns)
                while at < end:
                    block = hops.block(at)
                    if block.latest_ns >= time_ns and not block.flags & LOST:
                        return min(block.first + hops.before(at, block, time_ns), readable)
                    at += block.length
        return min(indexes[-1].next, readable)

    def _of_what_is_left(self, partition: int, look: Callable[[], _T]) -> _T:
        """Return what ``look`` finds. If a segment was deleted meanwhile it looks once more."""
        while True:
            try:
                return look()
            except FileNotFoundError as missing:
                name = os.path.basename(missing.filename or "")
                with self._lock:
                    segments = self._look(partition)
                if (
                    segments is None
                    or not _SEGMENT.fullmatch(name)
                    or int(name[:20]) in segments.firsts
                ):
                    raise

    def _indexes_of(self, partition: int) -> list[SegmentIndex]:
        with self._lock:
            segments = self._look(partition)
            if segments is None:
                raise LookupError(partition)
            return [self._index(partition, segments, at) for at in range(len(segments.firsts))]

    def _readable(self, partition: int, following: int) -> int:
        """Return the number after the last message that may be read; else ``following``."""
        readable = None
        if partition < len(self._writers):
            readable = self._writers[partition].readable
        return following if readable is None else readable

    # ---- with the lock held ----

    def _numbers(self) -> list[int]:
        matches = (_PARTITION.fullmatch(name) for name in sorted(os.listdir(self._folder)))
        return [int(match[1]) for match in matches if match]

    def _look(self, partition: int) -> _Known | None:
        """Return the segments there are now; None if there is no message and was none."""
        folder = self._folder / f"p{partition:04d}"
        try:
            changed_ns = folder.stat().st_mtime_ns
        except FileNotFoundError:
            return None
        known = self._known.get(partition)
        written = self._written(partition)
        if (
            known is None
            or known.changed_ns != changed_ns
            or time.time_ns() - changed_ns < _SETTLED_NS
            or (written is not None and (not known.firsts or known.firsts[-1] != written.first))
        ):
            known = self._known[partition] = self._list(folder, changed_ns)
        return known if known.firsts and self._last(partition, known).next else None

    def _list(self, folder: Path, changed_ns: int) -> _Known:
        firsts, sizes = array("Q"), array("Q")
        for name in sorted(name for name in os.listdir(folder) if _SEGMENT.fullmatch(name)):
            with contextlib.suppress(FileNotFoundError):  # it went just now
                size = (folder / name).stat().st_size
                firsts.append(int(name[:20]))
                sizes.append(size)
        paths = {folder / segment_name(first) for first in firsts}
        for path in [path for path in self._indexes if path.parent == folder]:
            if path not in paths:
                del self._indexes[path]
        return _Known(changed_ns, firsts, sizes)

    def _written(self, partition: int) -> SegmentIndex | None:
        return self._writers[partition].index if partition < len(self._writers) else None

    def _last(self, partition: int, segments: _Known) -> SegmentIndex:
        return self._index(partition, segments, len(segments.firsts) - 1)

    def _index(self, partition: int, segments: _Known, at: int) -> SegmentIndex:
        """Return the index of a segment. Of one being written it grows."""
        first = segments.firsts[at]
        written = self._written(partition)
        if written is not None and written.first == first:
            return written
        path = self._folder / f"p{partition:04d}" / segment_name(first)
        size = path.stat().st_size
        known = self._indexes.get(path)
        if known is not None and known[0] == size:
            return known[1]
        # The last one may be written by another process.
        save = bool(self._writers) or at + 1 < len(segments.firsts)
        index = indexed(path, partition, save=save)
        if index is None:  # nothing of it was ever whole
            index = SegmentIndex(path, self.identity, partition, first, 0)
        self._indexes[path] = size, index
        return index


class _Hops:
    """Reads block headers of a segment, those that are close to each other together."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data = b""
        self._begin = 0

    def __enter__(self) -> "_Hops":
        self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def block(self, offset: int) -> Block:
        """Return the header at an offset where a block begins. Raises ``JournalError``."""
        at = offset - self._begin
        if not 0 <= at <= len(self._data) - BLOCK_HEADER_LENGTH:
            self._data, self._begin, at = os.pread(self._file, _HOP_BYTES, offset), offset, 0
        block = take_block(self._data, at) if len(self._data) >= BLOCK_HEADER_LENGTH else None
        if block is None:
            raise corrupt(self._path, offset, "no block begins here")
        return block

    def end(self, offset: int, until: int) -> tuple[int, int]:
        """Return the number after the block with message ``until`` - 1, and where it ends.

        ``offset`` is that of a block which does not begin behind it.
        """
        while (block := self.block(offset)).next < until:
            offset += block.length
        return block.next, offset + block.length

    def first_time_ns(self, offset: int) -> int:
        """Return the time of the first record of the block at ``offset``."""
        data = os.pread(self._file, 8, offset + BLOCK_HEADER_LENGTH)
        return int.from_bytes(data, "little") if self.block(offset).records else 0

    def before(self, offset: int, block: Block, time_ns: int) -> int:
        """Return how many messages of a block precede its first record of ``time_ns`` or later."""
        records = block.records
        data = memoryview(os.pread(self._file, 16 * records, offset + BLOCK_HEADER_LENGTH))
        counts = take_column("I", data, 12 * records, records)
        count = 0
        for number, read_ns in enumerate(take_column("Q", data, 0, records)):
            if read_ns >= time_ns:
                return count
            count += counts[number]
        return 0  # its header says that there is one
