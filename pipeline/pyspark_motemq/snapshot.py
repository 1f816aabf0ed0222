"""Which bytes of which files one read covers.

The broker goes on appending while we read; a read covers what was in the files when it was
planned, so that every retry of a Spark task sees the same bytes.
"""

import contextlib
import mmap
import re
from dataclasses import dataclass
from pathlib import Path

from pyspark_motemq.records import (
    HEADER_LENGTH,
    JournalError,
    Stretch,
    check_header,
    record_end,
    sequence_at,
)

STRETCH_BYTES = 16 * 1024 * 1024  # about what one task reads, and holds in memory
_PARTITION_FOLDER = re.compile(r"p(\d{4,})")
_SEGMENT_FILE = re.compile(r"(\d{20})\.mjl")


@dataclass(frozen=True, slots=True)
class _Segment:
    path: Path
    partition: int
    first_sequence: int
    size: int


def plan(journal: Path, stretch_bytes: int = STRETCH_BYTES) -> list[Stretch]:
    """Return the stretches that cover the journal in ``journal`` as it is now, in order.

    ``stretch_bytes`` is the size above which a segment is cut, at record boundaries. Raises
    ``JournalError`` if the folder does not exist or a segment's header is bad.
    """
    if not journal.is_dir():
        raise JournalError(f"there is no journal folder {journal}; give the broker's DATA/journal")
    found: list[Stretch] = []
    for folder in sorted(journal.iterdir()):
        match = _PARTITION_FOLDER.fullmatch(folder.name)
        if match and folder.is_dir():
            found += _plan_partition(folder, int(match[1]), stretch_bytes)
    return found


def read_stretch(stretch: Stretch) -> bytes:
    """Return the bytes of ``stretch``."""
    try:
        with open(stretch.file, "rb") as file:
            file.seek(stretch.start)
            data = file.read(stretch.end - stretch.start)
    except FileNotFoundError:
        raise JournalError(
            f"{stretch.file} was deleted while it was to be read: partition {stretch.partition}, "
            f"messages from {stretch.first_sequence}; journal.max_age_s and journal.max_bytes of "
            "the broker say how long it keeps messages; read again for what is left"
        ) from None
    if len(data) != stretch.end - stretch.start:
        raise JournalError(
            f"{stretch.file} has become shorter while it was read; segments are append-only, "
            "so something other than the broker changed it"
        )
    return data


def _plan_partition(folder: Path, partition: int, stretch_bytes: int) -> list[Stretch]:
    names = sorted(name for name in folder.iterdir() if _SEGMENT_FILE.fullmatch(name.name))
    segments: list[_Segment] = []
    for path in names:
        with contextlib.suppress(FileNotFoundError):  # too old, so it went just now
            segments.append(_Segment(path, partition, int(path.stem), path.stat().st_size))
    found: list[Stretch] = []
    for index, segment in enumerate(segments):
        last = index + 1 == len(segments)
        until = None if last else segments[index + 1].first_sequence
        if segment.size < HEADER_LENGTH and (last or segment.first_sequence == until):
            continue  # torn in its header: the broker ended, or is just beginning it
        found += _cut(segment, until, stretch_bytes)
    return found


def _cut(segment: _Segment, until: int | None, stretch_bytes: int) -> list[Stretch]:
    with segment.path.open("rb") as file:
        header = file.read(HEADER_LENGTH).ljust(HEADER_LENGTH, b"\0")
        run = check_header(header, str(segment.path), segment.partition, segment.first_sequence)
        cuts = [(HEADER_LENGTH, segment.first_sequence)]
        if segment.size > stretch_bytes + HEADER_LENGTH:
            with mmap.mmap(file.fileno(), segment.size, access=mmap.ACCESS_READ) as data:
                cuts += _boundaries(data, stretch_bytes)
    ends: list[tuple[int, int | None]] = [*cuts[1:], (segment.size, until)]
    return [
        Stretch(str(segment.path), segment.partition, run, start, end, sequence, until_here)
        for (start, sequence), (end, until_here) in zip(cuts, ends, strict=True)
    ]


def _boundaries(data: mmap.mmap, stretch_bytes: int) -> list[tuple[int, int]]:
    """Return (offset, sequence number) of a record about every ``stretch_bytes``.

    Follows lengths only. At one that cannot be right it stops: whoever reads the rest reports it.
    """
    found: list[tuple[int, int]] = []
    offset, cut = HEADER_LENGTH, HEADER_LENGTH
    while offset + HEADER_LENGTH <= len(data):
        if offset - cut >= stretch_bytes:
            cut = offset
            found.append((cut, sequence_at(data[offset : offset + 24])))
        end = record_end(data[offset : offset + 8], offset)
        if end is None or end > len(data):
            break
        offset = end
    return found
