"""The newest of what was written is in memory, what is older is not (``journal.cached_bytes``)."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_broker.net.journal.page_cache import WrittenPages
from host_broker.net.journal.segment import Partition
from host_broker.outputs import Record
from host_broker.settings import JournalSettings
from tests.journal_segment import JOURNAL

MIB = 1024 * 1024
PAGE = 4096
# A publication of FMQP: flags, lengths of topic and body, topic, body.
PACKET = bytes([0, 1]) + (MIB - 7).to_bytes(4, "big") + b"t" + bytes(MIB - 7)


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder on the disk of this clone: what is below /tmp may have no disk."""
    out = Path(__file__).parents[3] / "out"
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as folder:
        yield Path(folder)


def _in_memory(folder: Path) -> int:
    """Return how many bytes of the segments in a folder the kernel has in memory."""
    found = 0
    page = bytearray(PAGE)
    for path in folder.glob("*.mjl"):
        file = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)  # no page is read ahead of another
            for offset in range(0, path.stat().st_size, PAGE):
                with contextlib.suppress(BlockingIOError):  # it would have to be read
                    found += os.preadv(file, [page], offset, os.RWF_NOWAIT)
        finally:
            os.close(file)
    return found


def _write(folder: Path, settings: JournalSettings, mib: int) -> Path:
    """Write so much to a partition, all of it on the disk; returns where its segments are."""
    partition = Partition(folder, 0, JOURNAL, 1, settings)
    for number in range(mib):
        partition.append(number, Record(1, 1, "", 1, PACKET, 1))
        partition.flush()
        if number % 4 == 3:
            partition.sync()
    partition.close()
    return partition.folder


@pytest.mark.parametrize("segment_bytes", [200 * MIB, 64 * MIB, 6 * MIB])
def test_only_the_newest_stays_in_memory(on_disk: Path, segment_bytes: int) -> None:
    """Whatever the size of segments is. The file of a segment that is closed counts, too."""
    settings = JournalSettings(cached_bytes=16 * MIB, segment_bytes=segment_bytes)
    folder = _write(on_disk, settings, 96)
    assert 16 * MIB <= _in_memory(folder) <= (2 * 16 + 8) * MIB


def test_0_leaves_it_to_the_kernel(on_disk: Path) -> None:
    """Nothing is said to the kernel."""
    folder = _write(on_disk, JournalSettings(cached_bytes=0), 24)
    # It may need memory for something else; never for nearly all at once.
    assert _in_memory(folder) > 16 * MIB


def test_each_piece_is_put_on_the_disk_and_then_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In order, twice, once it is older than ``cached_bytes`` and once it is twice as old."""
    told: list[int] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _file, start, *_: told.append(start // MIB))
    path = tmp_path / "segment"
    path.touch()
    pages = WrittenPages(8 * MIB)
    for end in range(0, 28 * MIB + 1, MIB):
        pages.written(path, end)
    assert told == [0, 4, 8, 0, 12, 4, 16, 8]


def test_what_cannot_be_advised_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment that retention has deleted, and a file system that takes no advice."""
    pages = WrittenPages(4 * MIB)
    pages.written(tmp_path / "gone", 64 * MIB)

    def refuse(*_: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "posix_fadvise", refuse)
    there = tmp_path / "there"
    there.touch()
    pages.written(there, 64 * MIB)
