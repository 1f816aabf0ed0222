"""Which segments have to go: those that are too old, and the oldest when there are too many bytes.

The newest segment of a partition stays, for it says where the numbers go on.
"""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from host_broker.net.journal.format import SEGMENT_SUFFIX
from host_broker.net.journal.index import index_path


@dataclass(frozen=True, slots=True)
class Kept:
    """One segment file: its size, and when it was last written (ns since 1970 UTC)."""

    path: Path
    size: int
    written_ns: int


def expired(
    partitions: Iterable[Sequence[Kept]], max_bytes: int, max_age_s: float, now_ns: int
) -> list[Kept]:
    """Return what has to go, the oldest first; 0 bytes or 0 s is no limit.

    ``partitions`` have their segments in order. A segment never goes before an earlier one of its
    partition: whatever a clock did, what is left has no holes.
    """
    found: list[Kept] = []
    left: list[Kept] = []
    total = 0
    for segments in partitions:
        total += sum(segment.size for segment in segments)
        old = True
        # As if an earlier one were never younger than a later one.
        written_ns = 0
        for segment in segments[:-1]:
            written_ns = max(written_ns, segment.written_ns)
            old = old and max_age_s > 0 and now_ns - written_ns > max_age_s * 1e9
            aged = Kept(segment.path, segment.size, written_ns)
            (found if old else left).append(aged)
    if max_bytes > 0:
        total -= sum(segment.size for segment in found)
        for segment in sorted(left, key=lambda each: each.written_ns):
            if total <= max_bytes:
                break
            found.append(segment)
            total -= segment.size
    return sorted(found, key=lambda each: each.written_ns)


def read(segments: Sequence[Kept], position: int) -> Sequence[Kept]:
    """Return the closed segments of a partition, in order, of messages below ``position`` only."""
    following = segments[1:]
    return segments[: sum(int(segment.path.stem) <= position for segment in following)]


def sweep(
    journal: Path, max_bytes: int, max_age_s: float, read_by_all: Mapping[int, int]
) -> list[Kept]:
    """Delete what has to go from the folder ``journal``; returns what went.

    ``read_by_all``: by partition, the first message that is still needed, where that is known.

    Whoever has one of them open reads on. Raises ``OSError``.
    """
    partitions = {
        int(folder.name[1:]): [
            Kept(path, (status := path.stat()).st_size, status.st_mtime_ns)
            for path in sorted(folder.glob("[0-9]*" + SEGMENT_SUFFIX))
        ]
        for folder in journal.glob("p[0-9]*")
    }
    gone: list[Kept] = []
    for number, segments in partitions.items():
        done = read(segments, read_by_all.get(number, 0))
        gone += done
        partitions[number] = segments[len(done) :]
    gone += expired(partitions.values(), max_bytes, max_age_s, time.time_ns())
    for segment in gone:
        os.unlink(segment.path)
        index_path(segment.path).unlink(missing_ok=True)
    return gone
