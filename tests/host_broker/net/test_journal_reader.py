"""The journal for readers elsewhere: every message is found, whatever the broker does meanwhile."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal
from unittest.mock import patch

import pytest

from host_broker.net.journal.index import index_path
from host_broker.net.journal.reader import Beyond, JournalReader, Trimmed
from host_broker.net.journal.scan import JournalError
from host_broker.net.journal.segment import Partition
from host_broker.net.journal.selection import Selection
from host_broker.outputs import Record
from host_broker.settings import JournalSettings
from tests.host_broker.net.journal_decoder import read_blocks
from tests.host_broker.net.test_journal_format import SEGMENTS
from tests.journal_segment import JOURNAL

_PACKET = b"\0\1\0\0\0\4a%04d"


def _write(journal: Path, runs: list[int], segment_bytes: int = 2000, first: int = 0) -> int:
    """Write runs of so many messages, the time of each its first number; returns the next one."""
    partition = Partition(journal, 0, JOURNAL, 7, JournalSettings(segment_bytes=segment_bytes))
    for count in runs:
        body = b"".join(_PACKET % (number % 10_000) for number in range(first, first + count))
        partition.append(first, Record(3, 1, "", count, body))
        partition.flush()
        first += count
    partition.close()
    return first


def _bodies(reader: JournalReader, sequence: int, max_bytes: int) -> list[tuple[int, bytes]]:
    found = []
    while (slice := reader.slice(0, sequence, max_bytes)) is not None:
        assert slice.first <= sequence < slice.next
        assert slice.run == 7
        data = slice.path.read_bytes()
        messages = read_blocks(data[slice.start : slice.end])
        assert messages[0].seq == slice.first
        assert messages[-1].seq == slice.next - 1
        found += [(each.seq, each.body) for each in messages if each.seq >= sequence]
        sequence = slice.next
    return found


@pytest.mark.parametrize("max_bytes", [1, 500, 10**6])
@pytest.mark.parametrize("sequence", [0, 1, 49, 50, 51, 299])
def test_all_messages_from_a_number_on(tmp_path: Path, sequence: int, max_bytes: int) -> None:
    total = _write(tmp_path, [50, 1, 1, 1, 97, 150], segment_bytes=600)
    assert len(list((tmp_path / "p0000").glob("*.mjl"))) > 1
    expected = [(number, b"%04d" % number) for number in range(sequence, total)]
    assert _bodies(JournalReader(tmp_path, JOURNAL), sequence, max_bytes) == expected


def test_what_is_added_is_found(tmp_path: Path) -> None:
    reader = JournalReader(tmp_path, JOURNAL)
    assert reader.partitions() == []
    (tmp_path / "p0000").mkdir()
    assert reader.partitions() == []
    following = 0
    for runs in ([3], [1, 1], [200], [2] * 90):
        before = following
        following = _write(tmp_path, runs, first=before)
        (partition,) = reader.partitions()
        assert (partition.partition, partition.first, partition.next) == (0, 0, following)
        assert [number for number, _ in _bodies(reader, before, 10**6)] == list(
            range(before, following)
        )
    assert reader.slice(0, following, 1) is None


def test_a_torn_block_is_not_there_until_it_is_whole(tmp_path: Path) -> None:
    total = _write(tmp_path, [2, 3], segment_bytes=10**6)
    path = tmp_path / "p0000" / f"{0:020d}.mjl"
    data = path.read_bytes()
    index_path(path).unlink()
    reader = JournalReader(tmp_path, JOURNAL)
    for size in range(len(data)):
        path.write_bytes(data[:size])
        fresh = JournalReader(tmp_path, JOURNAL)
        (partition,) = fresh.partitions() or [None]
        assert (partition.next if partition else 0) in (0, 2)
        assert (
            len(_bodies(fresh, 0, 10**6)) == (partition.next if partition else 0)
            if partition
            else True
        )
    path.write_bytes(data)
    assert reader.partitions()[0].next == total


def test_what_is_no_longer_kept_is_said(tmp_path: Path) -> None:
    _write(tmp_path, [100] * 5)
    first, *_, last = sorted((tmp_path / "p0000").glob("*.mjl"))
    reader = JournalReader(tmp_path, JOURNAL)
    assert reader.slice(0, 0, 1) is not None
    first.unlink()
    with pytest.raises(Trimmed) as trimmed:
        reader.slice(0, 0, 1)
    assert trimmed.value.first == reader.partitions()[0].first > 0
    assert reader.partitions()[0].first <= int(last.stem)
    with pytest.raises(LookupError):
        reader.slice(1, 0, 1)


def test_what_is_deleted_while_it_is_looked_for_is_no_longer_kept(tmp_path: Path) -> None:
    _write(tmp_path, [100] * 9)
    segments = sorted((tmp_path / "p0000").glob("*.mjl"))
    firsts = [int(path.stem) for path in segments]
    reader = JournalReader(tmp_path, JOURNAL)
    found = reader.slice(0, 0, 1)
    assert found is not None
    opened = os.open

    def while_the_oldest_goes(look: Callable[[], int]) -> int:
        oldest = segments.pop(0)

        def retention_comes_first(path: Path, flags: int) -> int:
            oldest.unlink(missing_ok=True)
            return opened(path, flags)

        with patch.object(os, "open", retention_comes_first):
            answer = look()
        assert not oldest.exists()
        return answer

    def trimmed(look: Callable[[], object]) -> int:
        with pytest.raises(Trimmed) as error:
            look()
        return error.value.first

    def select() -> object:
        return reader.select(found, Selection(["*"]), 1)

    def read() -> object:
        return reader.slice(0, firsts[1], 1)

    assert while_the_oldest_goes(lambda: trimmed(select)) == firsts[1]
    assert while_the_oldest_goes(lambda: trimmed(read)) == firsts[2]
    assert while_the_oldest_goes(lambda: reader.since(0, 0)) == firsts[3]
    assert while_the_oldest_goes(lambda: reader.earliest_ns(0)) == firsts[4]
    assert trimmed(lambda: reader.open(found)) == firsts[4]


def test_what_nobody_has_been_told_of_is_no_position(tmp_path: Path) -> None:
    total = _write(tmp_path, [100] * 5)
    reader = JournalReader(tmp_path, JOURNAL)
    assert reader.slice(0, total, 1) is None
    for number in (total + 1, 1 << 62):
        with pytest.raises(Beyond) as beyond:
            reader.slice(0, number, 1)
        assert beyond.value.next == total


def test_messages_are_found_by_time(tmp_path: Path) -> None:
    total = _write(tmp_path, [1] * 3000, segment_bytes=70_000)  # the time is the number here
    reader = JournalReader(tmp_path, JOURNAL)
    for time_ns in (0, 1, 2, 998, 1499, 2047, 2999):
        assert reader.since(0, time_ns) == time_ns
    assert reader.since(0, total) == total


@pytest.mark.parametrize("segment", SEGMENTS, ids=lambda segment: str(segment["case"]))
def test_golden_segments(segment: dict, tmp_path: Path) -> None:
    path = tmp_path / segment["name"]
    path.parent.mkdir()
    path.write_bytes(bytes.fromhex(segment["hex"]))
    reader = JournalReader(tmp_path, JOURNAL)
    whole = sum(block["count"] for block in segment["blocks"])
    try:
        found = reader.partitions()
    except JournalError:
        assert segment["corrupt"]
        return
    if not segment["first"] + whole:
        return
    (partition,) = found
    assert partition.partition == segment["partition"]
    # A block with the right CRC is handed over; whether it is right within is for readers to see.
    assert partition.next >= segment["first"] + whole


def test_a_block_torn_within_gives_its_number_to_the_next_start(tmp_path: Path) -> None:
    _write(tmp_path, [2, 3], segment_bytes=10**6)
    path = tmp_path / "p0000" / f"{0:020d}.mjl"
    index_path(path).unlink()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    reader = JournalReader(tmp_path, JOURNAL)
    assert reader.partitions()[0].next == 2
    assert _write(tmp_path, [4], first=2) == 6
    assert reader.partitions()[0].next == 6
    assert _bodies(reader, 0, 10**6) == [(number, b"%04d" % number) for number in range(6)]


def test_an_index_that_is_missing_or_wrong_is_made_anew(tmp_path: Path) -> None:
    total = _write(tmp_path, [1] * 3000, segment_bytes=30_000)
    paths = sorted((tmp_path / "p0000").glob("*.mji"))
    right = [path.read_bytes() for path in paths]
    assert len(right) > 4
    for path, change in zip(paths, (None, b"", right[0][:50], right[0]), strict=False):
        if change is None:
            path.unlink()
        else:
            path.write_bytes(change)
    paths[4].write_bytes(right[4][:-20] + b"x" + right[4][-19:])
    reader = JournalReader(tmp_path, JOURNAL)
    assert reader.since(0, 2999) == 2999
    assert len(_bodies(reader, 0, 10**6)) == total
    assert [path.read_bytes() for path in paths] == right


def test_what_is_being_written_is_found_at_once(tmp_path: Path) -> None:
    """While another thread writes, rolling segments on the way."""
    partition = Partition(tmp_path, 0, JOURNAL, 7, JournalSettings(segment_bytes=5000))
    reader = JournalReader(tmp_path, JOURNAL, [partition])
    messages = 3000
    step = threading.Semaphore(0)

    def write() -> None:
        for number in range(messages):
            if number % 100 == 0:
                step.acquire(timeout=30)
            partition.append(number, Record(3, 1, "", 1, _PACKET % number))
            partition.flush()

    writer = threading.Thread(target=write)
    writer.start()
    found: list[tuple[int, bytes]] = []
    while len(found) < messages:
        if len(found) % 100 == 0:
            step.release()
        found += _bodies(reader, len(found), 700)
    writer.join(30)
    partition.close()
    assert found == [(number, b"%04d" % number) for number in range(messages)]
    assert reader.since(0, 1234) == 1234


def test_what_is_not_synced_yet_is_not_there_for_readers(tmp_path: Path) -> None:
    """With ``journal.ack=synced`` a loss of power takes back nothing that somebody has read."""
    record = Record(1, 1, "", 1, b"\0\1\0\0\0\x64a" + bytes(100))
    for begun, ack in ((0, "synced"), (4, "synced"), (8, "written")):
        level: Literal["written", "synced"] = "synced" if ack == "synced" else "written"
        settings = JournalSettings(ack=level)
        partition = Partition(tmp_path, 0, JOURNAL, 7, settings)
        reader = JournalReader(tmp_path, JOURNAL, [partition])

        def ends(reader: JournalReader = reader) -> tuple[int, int, int]:
            """Return what the overview says, what one gets to, and the number of a later time."""
            number = 0
            while (found := reader.slice(0, number, 1)) is not None:
                number = found.next
            states = reader.partitions()
            return states[0].next if states else 0, number, reader.since(0, 10**9)

        if begun:
            assert ends() == (begun, begun, begun)
        for number in range(4):
            partition.append(begun + number, record)
            partition.flush()
            there = begun if ack == "synced" else begun + number + 1
            if there:
                assert ends() == (there, there, there)
            else:
                assert reader.slice(0, 0, 1 << 20) is None
        partition.sync()
        assert ends() == (begun + 4, begun + 4, begun + 4)
        assert reader.slice(0, begun, 1 << 20, begun + 1) is not None
        partition.close()
