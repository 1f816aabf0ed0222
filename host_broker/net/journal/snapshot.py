"""The journal as it is at one moment, for a backup: which bytes of which files, and what is
retained.

Segments only grow, so a length is enough to say what they have; retained messages are read in a
transaction that was begun at that moment.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from host_broker.net.journal.format import SEGMENT_SUFFIX
from host_broker.net.journal.groups import GROUPS_FILE
from host_broker.net.journal.identity import IDENTITY_FILE
from host_broker.net.journal.index import index_path
from host_broker.net.journal.segment import Partition
from host_broker.net.storage.message_store import MessageStore


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """The first ``size`` bytes of a file, or all of ``content``; ``name`` is below the data folder.

    ``written_ns``: when it was last written, since 1970 UTC. Retention goes by it.
    """

    name: str
    size: int
    written_ns: int
    path: Path
    content: bytes | None = None


class Snapshot:
    """What ``take_snapshot`` took. Threads may have it one after the other."""

    def __init__(
        self,
        files: Sequence[SnapshotFile],
        nexts: Sequence[int],
        retained: "sqlite3.Connection | None",
    ) -> None:
        """``nexts``: of each partition the number after its last message. ``retained``: in a
        transaction."""
        self.files = files
        self.nexts = nexts
        self._retained = retained

    def copy_retained(self, path: Path) -> bool:
        """Write the retained messages into a new file; False if none are kept.

        Raises ``sqlite3.Error``, ``OSError``.
        """
        if self._retained is None:
            return False
        copy = sqlite3.connect(path)
        try:
            self._retained.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, whole
        finally:
            copy.close()
        return True

    def close(self) -> None:
        """Let go of it; harmless when that was done."""
        retained, self._retained = self._retained, None
        if retained is not None:
            retained.close()


def take_snapshot(
    folder: Path, partitions: Sequence[Partition], store: MessageStore | None
) -> Snapshot:
    """Take it; call it while nobody writes. Raises ``OSError``, ``MessageStoreError``."""
    files = [*_small(folder, IDENTITY_FILE), *_small(folder, GROUPS_FILE)]
    files += _small(folder.parent, "published.json", "")
    for partition in partitions:
        files += partition_files(folder, partition)
    nexts = [partition.next for partition in partitions]
    return Snapshot(files, nexts, store.begin_reading() if store is not None else None)


def partition_files(folder: Path, partition: Partition) -> Iterator[SnapshotFile]:
    """Give the segments of a partition, with the indexes of those that are closed."""
    open_one = partition.index
    for path in sorted(partition.folder.glob("[0-9]*" + SEGMENT_SUFFIX)):
        status = path.stat()
        is_open = open_one is not None and open_one.path == path
        size = open_one.end if is_open and open_one is not None else status.st_size
        name = f"{folder.name}/{path.parent.name}/{path.name}"
        yield SnapshotFile(name, size, status.st_mtime_ns, path)
        index = index_path(path)
        if not is_open and index.exists():
            status = index.stat()
            name = f"{folder.name}/{path.parent.name}/{index.name}"
            yield SnapshotFile(name, status.st_size, status.st_mtime_ns, index)


def _small(folder: Path, name: str, below: str | None = None) -> Iterator[SnapshotFile]:
    """Give a file that is replaced, never written to; nothing if there is none."""
    path = folder / name
    below = f"{folder.name}/" if below is None else below
    try:
        with path.open("rb") as file:
            content = file.read()
            written_ns = path.stat().st_mtime_ns
    except FileNotFoundError:
        return
    yield SnapshotFile(below + name, len(content), written_ns, path, content)
