"""The journal for readers elsewhere: where a message is, as whole records of one segment.

Files only, none of the writer's memory: what can be read is what the kernel has. Places are found
by hopping from record to record, once; every so many bytes one is remembered. Records are handed
over unread, so CRCs and torn records are the reader's business (docs/journal.md, Reading).
"""

import bisect
import mmap
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from host_broker.net.journal.format import (
    HEADER_LENGTH,
    LONGEST_RECORD,
    PREFIX_LENGTH,
    RECORD_FIXED_LENGTH,
    SEGMENT_SUFFIX,
    header_complaint,
    run_of,
    take_prefix,
    take_sequence_and_count,
    take_time_ns,
)
from host_broker.net.journal.scan import JournalError

_REMEMBERED_BYTES = 64 * 1024  # about so far apart
_PARTITION = re.compile(r"p(\d{4,})")
_SEGMENT = re.compile(r"\d{20}" + re.escape(SEGMENT_SUFFIX))


class Trimmed(Exception):
    """The messages asked for are no longer kept; ``first`` is the oldest that is."""

    def __init__(self, first: int) -> None:
        super().__init__(f"the journal begins with message {first} now")
        self.first = first


@dataclass(frozen=True, slots=True)
class Shelf:
    """One partition: the numbers of its oldest message and of the next one, and its bytes."""

    partition: int
    first: int
    next: int
    size: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole records of one segment: bytes ``start`` to ``end`` of a file, messages ``first`` …"""

    path: Path
    run: int
    start: int
    end: int
    first: int
    next: int


@dataclass(slots=True)
class _Segment:
    """What is known of a file so far: its places, and up to where it was looked at."""

    path: Path
    first: int
    run: int = 0
    sequences: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    times_ns: list[int] = field(default_factory=list)  # the latest up to the next one: clocks jump
    next: int = 0
    end: int = 0


class Library:
    """Finds messages in the journal folder ``folder``. Threads may share one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._segments: dict[int, list[_Segment]] = {}
        self._lock = threading.Lock()

    def shelves(self) -> list[Shelf]:
        """Return the partitions. Raises ``JournalError``, ``OSError``."""
        with self._lock:
            self._look()
            return [
                Shelf(number, segments[0].first, segments[-1].next, sum(s.end for s in segments))
                for number, segments in self._segments.items()
            ]

    def piece(self, partition: int, sequence: int, max_bytes: int) -> Piece | None:
        """Return records from the one with message ``sequence`` on; None if it is yet to come.

        As many as ``max_bytes`` allow, but at least one, and of one segment. Raises ``Trimmed``;
        ``LookupError`` for no such partition; ``JournalError``; ``OSError``.
        """
        with self._lock:
            self._look()
            segments = self._segments[partition]
            if sequence < segments[0].first:
                raise Trimmed(segments[0].first)
            if sequence >= segments[-1].next:
                return None
            segment = segments[bisect.bisect_right(segments, sequence, key=lambda s: s.first) - 1]
            near = bisect.bisect_right(segment.sequences, sequence) - 1
            at, end, first, following = segment.offsets[near], 0, 0, 0
            for record in _records(segment, at):
                if not end:
                    if record.next <= sequence:
                        continue
                    start, first = record.start, record.first
                elif record.end - start > max_bytes:
                    break
                end, following = record.end, record.next
            return Piece(segment.path, segment.run, start, end, first, following)

    def since(self, partition: int, time_ns: int) -> int:
        """Return the first message, in order, that was read at ``time_ns`` or later.

        The number of the next message if there is none. Raises as ``piece``.
        """
        with self._lock:
            self._look()
            segments = self._segments[partition]
            for segment in segments:
                for at, latest_ns in zip(segment.offsets, segment.times_ns, strict=True):
                    if latest_ns < time_ns:
                        continue
                    for record in _records(segment, at):
                        if record.time_ns >= time_ns:
                            return record.first
            return segments[-1].next

    def _look(self) -> None:
        """See which files there are now, and what was added to them."""
        found: dict[int, list[_Segment]] = {}
        for folder in sorted(self._folder.iterdir()):
            match = _PARTITION.fullmatch(folder.name)
            if not match:
                continue
            number = int(match[1])
            known = {segment.first: segment for segment in self._segments.get(number, ())}
            names = sorted(name for name in folder.iterdir() if _SEGMENT.fullmatch(name.name))
            segments = [
                known.get(int(path.stem)) or _Segment(path, int(path.stem)) for path in names
            ]
            # The same name may be a newer file: a segment without a record is taken over.
            for segment, following in zip_longest(segments, segments[1:]):
                _extend(segment, number, following.first if following else None)
            segments = [segment for segment in segments if segment.end]
            if segments:
                found[number] = segments
        self._segments = found


@dataclass(frozen=True, slots=True)
class _Record:
    start: int
    end: int
    first: int
    next: int
    time_ns: int


def _extend(segment: _Segment, partition: int, until: int | None) -> None:
    """Look at what was added. ``until``: the number that follows the segment, if it is closed."""
    try:
        size = segment.path.stat().st_size
        if until is not None and segment.next > until:
            # A record that was torn within; the segment of the next start takes its number.
            segment.sequences, segment.offsets, segment.times_ns = [], [], []
            segment.end = 0
        # One without a record may have been replaced by a newer file of the same name.
        if segment.end in (0, HEADER_LENGTH) and size >= HEADER_LENGTH:
            with segment.path.open("rb") as file:
                header = file.read(HEADER_LENGTH)
            complaint = header_complaint(header, partition, segment.first)
            if complaint:
                raise JournalError(f"the journal is corrupt: {segment.path}: {complaint}")
            segment.run, segment.end, segment.next = run_of(header), HEADER_LENGTH, segment.first
        if segment.end and size > segment.end and segment.next != until:
            _walk(segment, size, until)
    except FileNotFoundError:
        segment.end = 0  # it went just now
        return
    if until is not None and segment.end and segment.next != until:
        raise JournalError(
            f"the journal is corrupt: {segment.path}, offset {segment.end}: message {segment.next} "
            f"is missing, the next segment begins with {until}"
        )


def _walk(segment: _Segment, size: int, until: int | None) -> None:
    for record in _records(segment, segment.end, size):
        if record.first != segment.next or record.next == record.first:
            raise JournalError(
                f"the journal is corrupt: {segment.path}, offset {record.start}: message "
                f"{record.first} where {segment.next} was expected"
            )
        if not segment.offsets or record.start - segment.offsets[-1] >= _REMEMBERED_BYTES:
            segment.sequences.append(record.first)
            segment.offsets.append(record.start)
            segment.times_ns.append(record.time_ns)
        elif record.time_ns > segment.times_ns[-1]:
            segment.times_ns[-1] = record.time_ns
        segment.next, segment.end = record.next, record.end
        if record.next == until:
            return  # a torn tail may follow


def _records(segment: _Segment, at: int, size: int = 0) -> Iterator[_Record]:
    """Yield the whole records from offset ``at`` on, to ``size`` (0: what was looked at)."""
    size = size or segment.end
    with (
        segment.path.open("rb") as file,
        mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as data,
    ):
        while size - at >= PREFIX_LENGTH + RECORD_FIXED_LENGTH:
            length, _ = take_prefix(data, at)
            end = at + PREFIX_LENGTH + length
            if not RECORD_FIXED_LENGTH <= length <= LONGEST_RECORD or end > size:
                return
            first, count = take_sequence_and_count(data, at)
            yield _Record(at, end, first, first + count, take_time_ns(data, at))
            at = end
