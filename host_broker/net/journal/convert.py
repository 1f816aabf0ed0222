"""A journal of format version 1 becomes one of version 2: the same messages, numbers and times.

Records stay records, so publications that have a number (docs/http.md, Once) keep it; the ages of
segments, by which they are deleted, and what consumer groups have read stay, too.
"""

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from host_broker.net.journal.assembly import assemble
from host_broker.net.journal.format import SEGMENT_SUFFIX, SegmentHeader
from host_broker.net.journal.groups import GROUPS_FILE
from host_broker.net.journal.identity import IDENTITY_FILE, identity_of
from host_broker.net.journal.repair import unused
from host_broker.net.journal.scan import JournalError
from host_broker.net.journal.segment import BLOCK_BYTES, SegmentFile
from host_broker.net.journal.version_1 import read_header, read_records
from host_broker.outputs import Record

_GROUP_BYTES = 4 * 1024 * 1024  # in memory


def convert(old: Path, new: Path, told: Callable[[str], None]) -> int:
    """Write the journal in the folder ``old`` as version 2 to ``new``; returns the messages.

    ``told`` is called with a line for every segment. Raises ``JournalError``, ``OSError``.
    """
    paths = sorted(old.glob("p[0-9]*/[0-9]*" + SEGMENT_SUFFIX))
    if not paths:
        raise JournalError(f"{old} has no journal; give the old DATA/journal")
    if (old / IDENTITY_FILE).exists():
        raise JournalError(f"{old} is a journal of format version 2 already")
    if new.exists() and any(new.iterdir()):
        raise JournalError(f"{new} is there already, and not empty; give a folder that is not")
    messages = 0
    with unused(old):
        identity = identity_of(new)
        for folder in sorted({path.parent for path in paths}):
            partition = int(folder.name[1:])
            (new / folder.name).mkdir()
            segments = [path for path in paths if path.parent == folder]
            firsts = [int(path.stem) for path in segments]
            for path, (first, until) in zip(segments, pairwise([*firsts, None]), strict=True):
                header = read_header(path, partition)
                if header is None and until is not None:
                    raise JournalError(f"the journal is corrupt: {path} has no whole header")
                created_ns, run = (header.created_ns, header.run) if header else (0, 0)
                made = SegmentFile(
                    new / folder.name,
                    SegmentHeader(identity, partition, first or 0, created_ns, run),
                )
                if header is not None:
                    _copy(path, until, made)
                made.close()
                status = path.stat()
                os.utime(made.index.path, ns=(status.st_atime_ns, status.st_mtime_ns))
                messages += made.index.next - made.index.first
                told(f"{folder.name}/{path.name}: {made.index.next - made.index.first} messages")
        groups = old / GROUPS_FILE
        if groups.exists():
            (new / GROUPS_FILE).write_bytes(groups.read_bytes())
    return messages


def _copy(path: Path, until: int | None, made: SegmentFile) -> None:
    group: list[tuple[int, list[Record]]] = []
    size = 0
    for time_ns, record in read_records(path, until):
        group.append((time_ns, [record]))
        size += len(record.body)
        if size >= _GROUP_BYTES:
            made.write(assemble(group, 1, BLOCK_BYTES))
            group, size = [], 0
    made.write(assemble(group, 1, BLOCK_BYTES))
