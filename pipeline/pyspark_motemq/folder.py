"""The journal folder of a broker on this machine, or on a disk that all executors share.

Where blocks are is told by the indexes of closed segments (docs/journal.md, Index). Those without,
and the last one of a partition, are read by hopping from block to block, each of them once in the
life of a ``Folder``; of every so many bytes one is remembered. What blocks hold is left to those
who read them.
"""

import bisect
import json
import mmap
import re
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pyspark_motemq.blocks import (
    BLOCK_HEADER_LENGTH,
    HEADER_LENGTH,
    LONGEST_BLOCK,
    LOST,
    SELECTED,
    Blocks,
    JournalError,
    Slice,
    corrupt,
    is_torn,
    read_header,
    take_headers,
    whole,
)
from pyspark_motemq.journal import Part, PartitionState

Numbers = npt.NDArray[np.int64]

_HEADER = struct.Struct("<8sHHI16sQQQQQII")
_CRC_BYTES = 4


@dataclass(frozen=True, slots=True)
class Index:
    """Some blocks of a segment: first messages, offsets, latest times up to the next one."""

    next: int
    end: int
    numbers: Numbers
    offsets: Numbers
    times_ns: Numbers


def read_index(segment: Path, partition: int, first: int, size: int) -> Index | None:
    """Return the index beside a segment of ``size`` bytes; None if there is no right one."""
    try:
        data = segment.with_suffix(".mji").read_bytes()
    except FileNotFoundError:
        return None
    if len(data) < _HEADER.size + _CRC_BYTES:
        return None
    covered, crc = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
    if int.from_bytes(crc, "little") != crc32(covered):
        return None
    magic, version, mark, of_partition, _, number, following, of_size, end, _, count, _ = (
        _HEADER.unpack_from(data)
    )
    if (magic, version, of_partition, number, of_size) != (b"MOTEINDX", 2, partition, first, size):
        return None
    if len(covered) != _HEADER.size + mark + 24 * count:
        return None
    at = _HEADER.size + mark
    columns = np.frombuffer(covered, "<u8", 3 * count, at).astype(np.int64).reshape(3, count)
    return Index(following, end, *columns)


SLICE_BYTES = 16 * 1024 * 1024  # about what one task reads, and holds in memory
_REMEMBERED_BYTES = 64 * 1024
_PARTITION_FOLDER = re.compile(r"p(\d{4,})")
_SEGMENT_FILE = re.compile(r"(\d{20})\.mjl")


@dataclass(frozen=True, slots=True)
class FolderPart:
    """Messages of one slice of one segment file."""

    slice: Slice

    def slices(self) -> Iterator[tuple[bytes, Slice]]:
        """Yield the slice."""
        yield read_slice(self.slice), self.slice


@dataclass(slots=True)
class _Segment:
    path: Path
    first: int
    journal: str = ""
    run: int = 0
    mark: int = 0  # what its blocks say
    numbers: list[int] = field(default_factory=list)  # remembered blocks: first messages,
    offsets: list[int] = field(default_factory=list)  # places
    times_ns: list[int] = field(default_factory=list)  # and latest times up to the next one
    next: int = 0
    end: int = 0  # whole blocks up to here
    seen: int = 0  # size of the file when it was looked at


class Folder:
    """The journal in the folder ``journal``, as it is now and as it grows."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._segments: dict[int, list[_Segment]] = {}
        self._identity = ""

    def partitions(self, of: Collection[int] | None = None) -> dict[int, PartitionState]:
        """Return the partitions there are now; raises ``JournalError``."""
        self._look()
        return {
            number: PartitionState(
                segments[0].first, segments[-1].next, sum(s.end for s in segments)
            )
            for number, segments in self._segments.items()
        }

    def reachable(self) -> dict[int, PartitionState]:
        """Return the same: a folder is there."""
        return self.partitions()

    def unreachable(self) -> dict[int, str]:
        """Return nothing."""
        return {}

    def identities(self) -> dict[int, str]:
        """Return the journal's UUID for number 0, if it has one."""
        return {0: self._identity} if self._identity else {}

    def since(self, time_ns: int, of: Collection[int] | None = None) -> dict[int, int]:
        """Return, by partition, the first message read at ``time_ns`` or later."""
        self._look()
        return {
            number: next(_since(segments, time_ns), segments[-1].next)
            for number, segments in self._segments.items()
        }

    def split(self, partition: int, start: int, end: int) -> list[Part]:
        """Return what tasks read for messages ``start`` to ``end`` - 1, which are there."""
        found: list[Part] = []
        for segment in self._segments[partition]:
            if segment.next > start and segment.first < end:
                whole = _slice(segment, partition, start, end)
                found += [FolderPart(each) for each in _cut(segment, whole)]
        return found

    def everything(self) -> list[Slice]:
        """Return slices that cover all bytes there are now, so that whatever is wrong is found."""
        self._look()
        found: list[Slice] = []
        for partition, segments in self._segments.items():
            for segment, following in zip_longest(segments, segments[1:]):
                end = segment.end if following else max(segment.seen, segment.end)
                until = following.first if following else None
                whole = Slice(
                    str(segment.path),
                    partition,
                    segment.run,
                    segment.mark,
                    HEADER_LENGTH,
                    end,
                    segment.first,
                    until,
                    journal=segment.journal,
                )
                found += _cut(segment, whole)
        return found

    def acknowledge(self, group: str, positions: dict[int, int]) -> None:
        """Refuse: a folder keeps no groups. Raises ``JournalError``."""
        raise JournalError(
            "option group: only a broker keeps consumer groups, a folder does not; give "
            "brokers=http://HOST:PORT instead of path"
        )

    def _look(self) -> None:
        if not self._journal.is_dir():
            raise JournalError(
                f"there is no journal folder {self._journal}; give the broker's DATA/journal"
            )
        for folder in sorted(self._journal.iterdir()):
            match = _PARTITION_FOLDER.fullmatch(folder.name)
            if match and folder.is_dir():
                self._look_at(int(match[1]), folder)
        within = self._journal / "journal"
        if not self._segments and (within / "journal.json").is_file():
            raise JournalError(
                f"{self._journal} is the DATA of a broker, whose journal is in {within}; give that"
            )
        identities = {each.journal for all_ in self._segments.values() for each in all_}
        if len(identities) > 1:
            raise JournalError(
                f"{self._journal} has segments of several journals ({', '.join(sorted(identities))}"
                "); a folder is for one of them"
            )
        self._identity = next(iter(identities), "") or self._stored_identity()

    def _stored_identity(self) -> str:
        try:
            return str(json.loads((self._journal / "journal.json").read_text())["id"])
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def _look_at(self, partition: int, folder: Path) -> None:
        known = {segment.first: segment for segment in self._segments.get(partition, ())}
        names = sorted(name for name in folder.iterdir() if _SEGMENT_FILE.fullmatch(name.name))
        segments = [
            known.get(first) or _Segment(path, first)
            for path, first in ((name, int(name.stem)) for name in names)
        ]
        for segment, following in zip_longest(segments, segments[1:]):
            _extend(segment, partition, following.first if following else None)
        segments = [segment for segment in segments if segment.end]
        if segments:
            self._segments[partition] = segments
        else:
            self._segments.pop(partition, None)


def read_slice(slice: Slice) -> bytes:
    """Return the bytes of ``slice``; raises ``JournalError`` if they are no longer there."""
    try:
        with open(slice.file, "rb") as file:
            file.seek(slice.start)
            data = file.read(slice.end - slice.start)
    except FileNotFoundError:
        raise JournalError(
            f"{slice.file} was deleted while it was to be read: partition {slice.partition}, "
            f"messages from {slice.first}; journal.max_age_s and journal.max_bytes of "
            "the broker say how long it keeps messages; read again for what is left"
        ) from None
    if len(data) != slice.end - slice.start:
        raise JournalError(
            f"{slice.file} has become shorter while it was read; segments are append-only, "
            "so something other than the broker changed it"
        )
    return data


def _extend(segment: _Segment, partition: int, until: int | None) -> None:
    """Look at what was added. ``until``: the number that follows the segment, if it is closed."""
    try:
        size = segment.path.stat().st_size
        if segment.end in (0, HEADER_LENGTH):
            # One without a block may have been replaced by a newer file of the same name.
            segment.end = 0
            if size >= HEADER_LENGTH and not _begin(segment, partition, size, until):
                return
        if segment.end and size != segment.seen and segment.next != until:
            _grow(segment, partition, size, until)
    except FileNotFoundError:
        segment.end = 0  # too old, so it went just now
        return
    if until is not None and segment.end and segment.next != until:
        what = f"it ends before message {segment.next}, but what follows begins with {until}"
        raise corrupt(str(segment.path), segment.end, what)


def _begin(segment: _Segment, partition: int, size: int, until: int | None) -> bool:
    """Read the header; False if the segment is nothing but torn."""
    with segment.path.open("rb") as file:
        data = file.read(HEADER_LENGTH)
        try:
            header = read_header(data, str(segment.path), partition, segment.first)
        except JournalError:
            if until is None and is_torn(data + file.read(), HEADER_LENGTH, None):
                return False
            raise
    segment.journal, segment.run, segment.mark = header.journal, header.run, header.crc
    segment.end, segment.next, segment.seen = HEADER_LENGTH, segment.first, HEADER_LENGTH
    return True


def _grow(segment: _Segment, partition: int, size: int, until: int | None) -> None:
    if segment.end == HEADER_LENGTH:
        index = read_index(segment.path, partition, segment.first, size)
        if index is not None:
            segment.numbers = index.numbers.tolist()
            segment.offsets = index.offsets.tolist()
            segment.times_ns = index.times_ns.tolist()
            segment.next, segment.end, segment.seen = index.next, index.end, size
            return
    with (
        segment.path.open("rb") as file,
        mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as view,
    ):
        blocks = _added(segment, view, until)
        # A crash may have left the last ones with wrong bytes within; they were never whole.
        while (
            until is None
            and len(blocks)
            and not whole(view, blocks.part(len(blocks) - 1, len(blocks))).all()
        ):
            blocks = blocks.part(0, len(blocks) - 1)
        _remember(segment, blocks)
        segment.seen = size
        if (
            until is None
            and size - segment.end >= BLOCK_HEADER_LENGTH
            and not len(take_headers(view, segment.end))
            and not is_torn(view, segment.end, segment.mark)
        ):
            raise corrupt(str(segment.path), segment.end, "no block begins here")


def _added(segment: _Segment, view: memoryview, until: int | None) -> Blocks:
    """Return the blocks that were added, as far as their headers are right."""
    blocks = take_headers(view, segment.end)
    strange = (blocks.segment != segment.mark) | (blocks.flags & SELECTED != 0)
    if until is not None:
        strange |= blocks.first >= until
    if strange.any():
        blocks = blocks.part(0, int(np.argmax(strange)))
    expected = np.concatenate(([segment.next], blocks.next[:-1]))[: len(blocks)]
    wrong = np.flatnonzero(blocks.first != expected)
    if len(wrong):
        what = f"message {blocks.first[wrong[0]]} where message {expected[wrong[0]]} was expected"
        raise corrupt(str(segment.path), int(blocks.at[wrong[0]]), what)
    return blocks


def _remember(segment: _Segment, blocks: Blocks) -> None:
    columns = (blocks.at, blocks.first, blocks.latest_ns)
    for at, first, latest_ns in zip(*(column.tolist() for column in columns), strict=True):
        if not segment.offsets or at - segment.offsets[-1] >= _REMEMBERED_BYTES:
            segment.numbers.append(first)
            segment.offsets.append(at)
            segment.times_ns.append(latest_ns)
        elif latest_ns > segment.times_ns[-1]:
            segment.times_ns[-1] = latest_ns
    if len(blocks):
        segment.next, segment.end = int(blocks.next[-1]), int(blocks.end[-1])


def _since(segments: list[_Segment], time_ns: int) -> Iterator[int]:
    for segment in segments:
        for offset, latest_ns in zip(segment.offsets, segment.times_ns, strict=True):
            if latest_ns >= time_ns:
                yield _first_since(segment, offset, time_ns)
                return


def _first_since(segment: _Segment, at: int, time_ns: int) -> int:
    with (
        segment.path.open("rb") as file,
        mmap.mmap(file.fileno(), segment.end, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as view,
    ):
        blocks = take_headers(view[: at + 2 * _REMEMBERED_BYTES + LONGEST_BLOCK], at)
        late = np.flatnonzero((blocks.latest_ns >= time_ns) & (blocks.flags & LOST == 0))
        if not len(late):
            raise corrupt(str(segment.path), at, "no block begins here")
        block = int(late[0])
        records, columns = int(blocks.records[block]), int(blocks.at[block]) + BLOCK_HEADER_LENGTH
        data = bytes(view[columns : columns + 16 * records])
        times, counts = np.frombuffer(data, "<u8", records), data[12 * records :]
        before = int(np.argmax(times >= np.uint64(time_ns)))
        return int(blocks.first[block]) + int(np.frombuffer(counts, "<u4", before).sum())


def _slice(segment: _Segment, partition: int, start: int, end: int) -> Slice:
    """Return the blocks that have the messages ``start`` to ``end`` - 1 of the segment."""
    near = max(0, bisect.bisect_right(segment.numbers, start) - 1)
    after = bisect.bisect_left(segment.numbers, end)
    inside = after < len(segment.numbers)
    return Slice(
        str(segment.path),
        partition,
        segment.run,
        segment.mark,
        segment.offsets[near],
        segment.offsets[after] if inside else segment.end,
        segment.numbers[near],
        segment.numbers[after] if inside else segment.next,
        max(start, segment.first),
        min(end, segment.next),
        segment.journal,
    )


def _cut(segment: _Segment, whole: Slice) -> Iterator[Slice]:
    """Yield the slice in even parts of about what one task is to read."""
    size = whole.end - whole.start
    parts = max(1, round(size / SLICE_BYTES))
    begin, first, number = whole.start, whole.first, 1
    for offset, message in zip(segment.offsets, segment.numbers, strict=True):
        if offset >= whole.end or number == parts:
            break
        if offset > begin and offset >= whole.start + size * number // parts:
            yield replace(whole, start=begin, first=first, end=offset, until=message)
            begin, first = offset, message
            number += 1
    yield replace(whole, start=begin, first=first)
