"""Which segments have to go: those that are too old, and the oldest when there are too many bytes.

The newest segment of a partition stays, for it says where the numbers go on.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from host_broker.net.journal.format import SEGMENT_SUFFIX
from host_broker.net.journal.index import index_path

READ_BY_ALL = "all consumer groups have read it"
_BELIEVED_S = 3600.0  # after a start: for so long the clock has to say that something is old
_NS = 1_000_000_000
_LEAD_NS = 100_000_000  # two clocks are never read at the very same time


@dataclass(frozen=True, slots=True)
class Kept:
    """One segment file: its size, and when it was last written (ns since 1970 UTC).

    ``next``: the number after its last message, if that is known. ``why`` it has to go.
    """

    path: Path
    size: int
    written_ns: int
    next: int = 0
    why: str = ""

    def __str__(self) -> str:
        """Say which messages it has, as far as is known, and why it goes."""
        number = int(self.path.parent.name[1:])
        first = int(self.path.stem)
        messages = f"messages {first} to {self.next - 1}"
        return f"partition {number}, {messages}, {self.size} bytes: {self.why}"


class AgeClock:
    """The time by which segments are old: a wall clock that jumps ahead deletes nothing early.

    The wall clock's lead over a steady clock changes when it is set. What counts is the least lead
    of the last ``max_age_s``. So a segment that was written meanwhile goes no sooner than
    ``max_age_s`` after it was, whatever happens to the clock; and one that an earlier run has left,
    when the clock has said for an hour that it is too old, or for ``max_age_s`` if that is less.
    """

    def __init__(self) -> None:
        self._began_ns: int | None = None
        self._leads: deque[tuple[int, int]] = deque()  # since when, how much; both ascend

    def look(self, wall_ns: int, steady_ns: int, max_age_s: float) -> int | None:
        """Return the time that counts now (ns since 1970 UTC), None as long as none does.

        ``wall_ns`` and ``steady_ns`` are both clocks, as they are now; call it every few seconds.
        """
        if self._began_ns is None:
            self._began_ns = steady_ns
        lead = (wall_ns - steady_ns) // _LEAD_NS * _LEAD_NS
        leads = self._leads
        while leads and leads[-1][1] > lead:
            leads.pop()
        if not leads or leads[-1][1] < lead:
            leads.append((steady_ns, lead))
        # Up to the beginning of the second one the first one may have lasted.
        while len(leads) > 1 and steady_ns - leads[1][0] > max_age_s * _NS:
            leads.popleft()
        if steady_ns - self._began_ns < min(max_age_s, _BELIEVED_S) * _NS:
            return None
        return steady_ns + leads[0][1]


def expired(
    partitions: Iterable[Sequence[Kept]], max_bytes: int, max_age_s: float, now_ns: int | None
) -> list[Kept]:
    """Return what has to go, the oldest first; 0 bytes or 0 s is no limit.

    ``now_ns`` None: nothing is too old.

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
            too_old = now_ns is not None and now_ns - written_ns > max_age_s * _NS
            old = old and max_age_s > 0 and too_old
            if old and now_ns is not None:
                age_s = (now_ns - written_ns) // _NS
                why = f"{age_s} s old, journal.max_age_s is {max_age_s:g}"
                found.append(replace(segment, written_ns=written_ns, why=why))
            else:
                left.append(replace(segment, written_ns=written_ns))
    if max_bytes > 0:
        total -= sum(segment.size for segment in found)
        for segment in sorted(left, key=lambda each: each.written_ns):
            if total <= max_bytes:
                break
            why = f"there are {total} bytes, journal.max_bytes is {max_bytes}"
            found.append(replace(segment, why=why))
            total -= segment.size
    return sorted(found, key=lambda each: each.written_ns)


def read(segments: Sequence[Kept], position: int) -> Sequence[Kept]:
    """Return the closed segments of a partition, in order, of messages below ``position`` only."""
    following = segments[1:]
    return segments[: sum(int(segment.path.stem) <= position for segment in following)]


def sweep(
    journal: Path,
    max_bytes: int,
    max_age_s: float,
    read_by_all: Mapping[int, int],
    now_ns: int | None,
) -> Iterator[Kept]:
    """Delete what has to go from the folder ``journal``, and say of each that it is gone.

    ``read_by_all``: by partition, the first message that is still needed, where that is known.
    ``now_ns``: as ``AgeClock`` says.

    Whoever has one of them open reads on. Raises ``OSError``.
    """
    partitions = {int(folder.name[1:]): _kept(folder) for folder in journal.glob("p[0-9]*")}
    gone: list[Kept] = []
    for number, segments in partitions.items():
        done = read(segments, read_by_all.get(number, 0))
        gone += [replace(segment, why=READ_BY_ALL) for segment in done]
        partitions[number] = segments[len(done) :]
    gone += expired(partitions.values(), max_bytes, max_age_s, now_ns)
    for segment in gone:
        os.unlink(segment.path)
        index_path(segment.path).unlink(missing_ok=True)
        yield segment


def _kept(folder: Path) -> list[Kept]:
    """Return the segments of a partition, in order."""
    paths = sorted(folder.glob("[0-9]*" + SEGMENT_SUFFIX))
    kept = []
    for number, path in enumerate(paths, 1):
        following = int(paths[number].stem) if number < len(paths) else 0
        status = path.stat()
        kept.append(Kept(path, status.st_size, status.st_mtime_ns, following))
    return kept
