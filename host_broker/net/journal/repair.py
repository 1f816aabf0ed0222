"""Makes a journal whole again without what is corrupt or torn in it.

In the place of lost messages it puts a block that says so (docs/journal.md, Block), so that all
others keep their numbers. What it replaces it keeps in the folder ``damaged`` of the journal.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from host_broker.net.journal.check import Examined, Report, check, examine, other_findings
from host_broker.net.journal.format import SegmentHeader
from host_broker.net.journal.groups import GROUPS_FILE
from host_broker.net.journal.identity import IDENTITY_FILE, identity_of
from host_broker.net.journal.index import index_path
from host_broker.net.journal.scan import JournalError
from host_broker.net.journal.segment import SegmentFile
from host_broker.net.storage.data_dir import is_in_use

DAMAGED = "damaged"


@contextlib.contextmanager
def unused(journal: Path) -> Iterator[None]:
    """Keep brokers from a journal meanwhile. Raises ``JournalError`` if one is using it."""
    with is_in_use(journal.parent) as used:
        if used:
            raise JournalError(f"a broker is using {journal.parent}; stop it first")
        yield


def repair(journal: Path) -> Report:
    """Repair a journal that no broker is using; returns what was wrong with it.

    Raises ``JournalError``, ``OSError``.
    """
    with unused(journal):
        report = check(journal)
        identity = identity_of(journal)
        for segment in list(examine(journal)):
            if not segment.findings:
                continue
            if segment.header is not None and segment.header.journal != identity:
                raise JournalError(
                    f"{segment.path} is of journal {segment.header.journal}, this is journal "
                    f"{identity}; take it away"
                )
            if any(finding.path == segment.path for finding in segment.findings):
                _repair_segment(journal, segment)
            else:
                index_path(segment.path).unlink(missing_ok=True)
        for finding in list(other_findings(journal)):
            if finding.path.name == GROUPS_FILE:
                finding.path.rename(_aside(journal, finding.path))
            elif finding.path.name == IDENTITY_FILE:
                identity_of(journal)
    return report


def _repair_segment(journal: Path, segment: Examined) -> None:
    path = segment.path
    aside = _aside(journal, path)
    if segment.header is None and not segment.extents:
        path.rename(aside)
        return
    header = segment.header or SegmentHeader(
        identity_of(journal), segment.partition, segment.first, time.time_ns()
    )
    status = path.stat()
    workshop = journal / f"repair-{path.parent.name}"
    shutil.rmtree(workshop, ignore_errors=True)
    workshop.mkdir()
    made = SegmentFile(workshop, header, fsync=True)
    with path.open("rb") as file:
        for extent in segment.extents:
            if extent.lost:
                made.write_lost(extent.lost)
            else:
                file.seek(extent.start)
                made.copy(file, extent.end)
    made.close()
    os.utime(made.index.path, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.link(path, aside)
    os.replace(made.index.path, path)
    os.replace(index_path(made.index.path), index_path(path))
    workshop.rmdir()


def _aside(journal: Path, path: Path) -> Path:
    """Return where to keep a file that is damaged."""
    folder = journal / DAMAGED
    folder.mkdir(exist_ok=True)
    name = path.name if path.parent == journal else f"{path.parent.name}-{path.name}"
    number = 0
    while (aside := folder / (f"{name}.{number}" if number else name)).exists():
        number += 1
    return aside
