"""The journal for readers elsewhere: every message is found, whatever the broker does meanwhile."""

import zlib
from pathlib import Path

import pytest

from host_broker.net.journal.library import Library, Trimmed
from host_broker.net.journal.scan import JournalError
from host_broker.net.journal.segment import Partition
from host_broker.outputs import Record
from host_broker.settings import JournalSettings
from tests.host_broker.net.journal_decoder import read_segment
from tests.host_broker.net.test_journal_format import SEGMENTS

_PACKET = b"\0\1\0\0\0\4a%04d"


def _write(journal: Path, runs: list[int], segment_bytes: int = 2000, first: int = 0) -> int:
    """Write runs of so many messages, the time of each its first number; returns the next one."""
    partition = Partition(journal, 0, 7, JournalSettings(segment_bytes=segment_bytes))
    for count in runs:
        body = b"".join(_PACKET % (number % 10_000) for number in range(first, first + count))
        partition.append(first, Record(3, 1, "", count, body))
        first += count
    partition.flush()
    partition.close()
    return first


def _bodies(library: Library, sequence: int, max_bytes: int) -> list[tuple[int, bytes]]:
    found = []
    while (piece := library.piece(0, sequence, max_bytes)) is not None:
        assert piece.first <= sequence < piece.next
        assert piece.run == 7
        data = piece.path.read_bytes()
        header = data[:16] + piece.first.to_bytes(8, "big") + data[24:36]
        header += zlib.crc32(header).to_bytes(4, "big")
        name = f"p0000/{piece.first:020d}.mjl"
        records = header + data[piece.start : piece.end]
        messages, torn = read_segment(name, records, None, last=True)
        assert not torn
        assert messages[-1].seq == piece.next - 1
        found += [(each.seq, each.body) for each in messages if each.seq >= sequence]
        sequence = piece.next
    return found


@pytest.mark.parametrize("max_bytes", [1, 500, 10**6])
@pytest.mark.parametrize("sequence", [0, 1, 49, 50, 51, 299])
def test_all_messages_from_a_number_on(tmp_path: Path, sequence: int, max_bytes: int) -> None:
    total = _write(tmp_path, [50, 1, 1, 1, 97, 150], segment_bytes=600)
    assert len(list((tmp_path / "p0000").iterdir())) > 1
    expected = [(number, b"%04d" % number) for number in range(sequence, total)]
    assert _bodies(Library(tmp_path), sequence, max_bytes) == expected


def test_what_is_added_is_found(tmp_path: Path) -> None:
    library = Library(tmp_path)
    assert library.shelves() == []
    (tmp_path / "p0000").mkdir()
    assert library.shelves() == []
    following = 0
    for runs in ([3], [1, 1], [200], [2] * 90):
        before = following
        following = _write(tmp_path, runs, first=before)
        (shelf,) = library.shelves()
        assert (shelf.partition, shelf.first, shelf.next) == (0, 0, following)
        assert [number for number, _ in _bodies(library, before, 10**6)] == list(
            range(before, following)
        )
    assert library.piece(0, following, 1) is None


def test_a_torn_record_is_not_there_until_it_is_whole(tmp_path: Path) -> None:
    total = _write(tmp_path, [2, 3], segment_bytes=10**6)
    path = tmp_path / "p0000" / f"{0:020d}.mjl"
    data = path.read_bytes()
    library = Library(tmp_path)
    for size in range(len(data)):
        path.write_bytes(data[:size])
        fresh = Library(tmp_path)
        (shelf,) = fresh.shelves() or [None]
        assert (shelf.next if shelf else 0) in (0, 2)
        assert len(_bodies(fresh, 0, 10**6)) == (shelf.next if shelf else 0) if shelf else True
    path.write_bytes(data)
    assert library.shelves()[0].next == total


def test_what_is_no_longer_kept_is_said(tmp_path: Path) -> None:
    _write(tmp_path, [100] * 5)
    first, *_, last = sorted((tmp_path / "p0000").iterdir())
    library = Library(tmp_path)
    assert library.piece(0, 0, 1) is not None
    first.unlink()
    with pytest.raises(Trimmed) as trimmed:
        library.piece(0, 0, 1)
    assert trimmed.value.first == library.shelves()[0].first > 0
    assert library.shelves()[0].first <= int(last.stem)
    with pytest.raises(LookupError):
        library.piece(1, 0, 1)


def test_messages_are_found_by_time(tmp_path: Path) -> None:
    total = _write(tmp_path, [1] * 3000, segment_bytes=70_000)  # the time is the number here
    library = Library(tmp_path)
    for time_ns in (0, 1, 2, 998, 1499, 2047, 2999):
        assert library.since(0, time_ns) == time_ns
    assert library.since(0, total) == total


@pytest.mark.parametrize("segment", SEGMENTS, ids=lambda segment: str(segment["case"]))
def test_golden_segments(segment: dict, tmp_path: Path) -> None:
    path = tmp_path / segment["name"]
    path.parent.mkdir()
    path.write_bytes(bytes.fromhex(segment["hex"]))
    number, library = segment["partition"], Library(tmp_path)
    try:
        found = library.shelves()
    except JournalError:
        assert segment["corrupt"]
        return
    if not segment["records"] and not segment["corrupt"]:
        return
    (shelf,) = found
    assert shelf.partition == number
    last = segment["records"][-1] if segment["records"] else None
    whole = last["sequence"] + last["count"] if last else segment["first_sequence"]
    # A record whose bytes are there is handed over; whether it is right is for readers to see.
    assert shelf.next >= whole


def test_a_record_torn_within_gives_its_number_to_the_next_start(tmp_path: Path) -> None:
    total = _write(tmp_path, [2, 3], segment_bytes=10**6)
    path = tmp_path / "p0000" / f"{0:020d}.mjl"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    library = Library(tmp_path)
    assert library.shelves()[0].next == total  # who reads it sees its CRC
    assert _write(tmp_path, [4], first=2) == 6
    assert library.shelves()[0].next == 6
    assert _bodies(library, 0, 10**6) == [(number, b"%04d" % number) for number in range(6)]
