"""The journal folder of a broker on this machine, or on a disk that all executors share.

Records are found by hopping from one to the next, each of them once in the life of a ``Folder``; of
every so many bytes one is remembered. What they hold is left to those who read them.
"""

import bisect
import mmap
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

from pyspark_motemq.records import (
    HEADER_LENGTH,
    SHORTEST_RECORD,
    JournalError,
    Stretch,
    check_header,
    corrupt,
    record_end,
    record_facts,
)
from pyspark_motemq.shelf import Share, Shelf
from pyspark_motemq.snapshot import STRETCH_BYTES, read_stretch

_REMEMBERED_BYTES = 64 * 1024
_PARTITION_FOLDER = re.compile(r"p(\d{4,})")
_SEGMENT_FILE = re.compile(r"(\d{20})\.mjl")


@dataclass(frozen=True, slots=True)
class FolderShare:
    """Messages of one stretch of one segment file."""

    stretch: Stretch

    def pieces(self) -> Iterator[tuple[bytes, Stretch]]:
        """Yield the stretch."""
        yield read_stretch(self.stretch), self.stretch


@dataclass(slots=True)
class _Segment:
    path: Path
    first: int
    run: int = 0
    sequences: list[int] = field(default_factory=list)  # remembered records: their numbers,
    offsets: list[int] = field(default_factory=list)  # places
    times_ns: list[int] = field(default_factory=list)  # and latest times up to the next one
    next: int = 0
    end: int = 0  # looked at up to here


class Folder:
    """The journal in the folder ``journal``, as it is now and as it grows."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._segments: dict[int, list[_Segment]] = {}

    def shelves(self) -> dict[int, Shelf]:
        """Return the partitions there are now; raises ``JournalError``."""
        self._look()
        return {
            number: Shelf(segments[0].first, segments[-1].next, sum(s.end for s in segments))
            for number, segments in self._segments.items()
        }

    def since(self, time_ns: int) -> dict[int, int]:
        """Return, by partition, the first message read at ``time_ns`` or later."""
        self._look()
        return {
            number: next(_since(segments, time_ns), segments[-1].next)
            for number, segments in self._segments.items()
        }

    def shares(self, partition: int, start: int, end: int) -> list[Share]:
        """Return what tasks read for messages ``start`` to ``end`` - 1, which are there."""
        found: list[Share] = []
        for segment in self._segments[partition]:
            if segment.next > start and segment.first < end:
                whole = _whole(segment, partition, start, end)
                found += [FolderShare(stretch) for stretch in _cut(segment, whole)]
        return found

    def has_read(self, group: str, positions: dict[int, int]) -> None:
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


def _extend(segment: _Segment, partition: int, until: int | None) -> None:
    """Look at what was added. ``until``: the number that follows the segment, if it is closed."""
    try:
        size = segment.path.stat().st_size
        if until is not None and segment.next > until:
            # A record that was torn within; the segment of the next start takes its number.
            segment.sequences, segment.offsets, segment.times_ns = [], [], []
            segment.end = 0
        if segment.end in (0, HEADER_LENGTH) and size >= HEADER_LENGTH:
            with segment.path.open("rb") as file:
                header = file.read(HEADER_LENGTH)
            segment.run = check_header(header, str(segment.path), partition, segment.first)
            segment.end, segment.next = HEADER_LENGTH, segment.first
        if segment.end and size > segment.end and segment.next != until:
            _walk(segment, size, until)
    except FileNotFoundError:
        segment.end = 0  # too old, so it went just now
        return
    if until is not None and segment.end and segment.next != until:
        what = f"it ends before message {segment.next}, but what follows begins with {until}"
        raise corrupt(str(segment.path), segment.end, what)


def _walk(segment: _Segment, size: int, until: int | None) -> None:
    for at, end, time_ns, first, count in _hops(segment.path, segment.end, size):
        if first != segment.next or count < 1:
            what = f"message {first}, count {count}, where message {segment.next} was expected"
            raise corrupt(str(segment.path), at, what)
        if not segment.offsets or at - segment.offsets[-1] >= _REMEMBERED_BYTES:
            segment.sequences.append(first)
            segment.offsets.append(at)
            segment.times_ns.append(time_ns)
        elif time_ns > segment.times_ns[-1]:
            segment.times_ns[-1] = time_ns
        segment.next, segment.end = first + count, end
        if segment.next == until:
            return  # a torn tail may follow


def _hops(path: Path, at: int, size: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield (place, end, time in ns, first message, count) of the whole records from ``at`` on."""
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data,
    ):
        while at + SHORTEST_RECORD <= size:
            end = record_end(data[at : at + 8], at)
            if end is None:  # no record that is being written begins like this
                raise corrupt(str(path), at, "the length of a record is not one that can be")
            if end > size:
                return
            yield at, end, *record_facts(data, at)
            at = end


def _since(segments: list[_Segment], time_ns: int) -> Iterator[int]:
    for segment in segments:
        for offset, latest_ns in zip(segment.offsets, segment.times_ns, strict=True):
            if latest_ns < time_ns:
                continue
            for _, _, read_ns, first, _ in _hops(segment.path, offset, segment.end):
                if read_ns >= time_ns:
                    yield first
                    return


def _whole(segment: _Segment, partition: int, start: int, end: int) -> Stretch:
    """Return the records that have the messages ``start`` to ``end`` - 1 of the segment."""
    near = max(0, bisect.bisect_right(segment.sequences, start) - 1)
    after = bisect.bisect_left(segment.sequences, end)
    inside = after < len(segment.sequences)
    return Stretch(
        str(segment.path),
        partition,
        segment.run,
        segment.offsets[near],
        segment.offsets[after] if inside else segment.end,
        segment.sequences[near],
        segment.sequences[after] if inside else segment.next,
        max(start, segment.first),
        min(end, segment.next),
    )


def _cut(segment: _Segment, whole: Stretch) -> Iterator[Stretch]:
    """Yield the stretch in parts of about what one task is to read."""
    begin, first = whole.start, whole.first_sequence
    for offset, sequence in zip(segment.offsets, segment.sequences, strict=True):
        if begin + STRETCH_BYTES <= offset < whole.end:
            yield replace(whole, start=begin, first_sequence=first, end=offset, until=sequence)
            begin, first = offset, sequence
    yield replace(whole, start=begin, first_sequence=first)
