"""A journal with flipped bits, and one whose broker's clock jumped: named, or read exactly."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.net.journal.reader import JournalReader
from pyspark_motemq.blocks import JournalError, Slice
from pyspark_motemq.columns import batches
from pyspark_motemq.folder import Folder, read_slice
from tests.journal_segment import JOURNAL, START_NS, Segment, Sender, packet

_COUNTS = [1, 3, 2]  # messages of the blocks of each segment


def _segment(journal: Path, first: int, times_ns: list[int] | None = None) -> Path:
    segment = Segment(0, first)
    for at, count in enumerate(_COUNTS if times_ns is None else [1] * len(times_ns)):
        packets = [packet(f"t/{n}", b"%d" % n) for n in range(segment.next, segment.next + count)]
        segment.record(Sender(1, 2, "me"), packets, START_NS if times_ns is None else times_ns[at])
    return segment.write(journal)


def _rows(data: bytes, slice: Slice) -> Iterator[tuple[int, str, bytes]]:
    for batch in batches(data, slice):
        columns = batch.to_pydict()
        yield from zip(columns["seq"], columns["path"], columns["payload"], strict=True)


def _by_number(journal: Path) -> list[tuple[int, str, bytes]]:
    """Read as a stream does: what is there, by number."""
    folder = Folder(journal)
    state = folder.partitions()[0]
    parts = folder.split(0, state.first, state.next)
    return [row for part in parts for data, slice in part.slices() for row in _rows(data, slice)]


def _whole(journal: Path) -> list[tuple[int, str, bytes]]:
    """Read as a batch does: the files as they are."""
    slices = Folder(journal).everything()
    return [row for slice in slices for row in _rows(read_slice(slice), slice)]


@pytest.mark.parametrize("read", [_by_number, _whole])
def test_a_bit_that_flipped_is_named_or_is_in_a_torn_tail(tmp_path: Path, read: object) -> None:
    assert callable(read)
    older, last = _segment(tmp_path, 0), _segment(tmp_path, 6)
    true = read(tmp_path)
    assert [number for number, *_ in true] == list(range(12))
    for path in (older, last):
        whole = path.read_bytes()
        for bit in range(0, 8 * len(whole), 5):  # every bit of a byte has its turn
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            try:
                found = read(tmp_path)
            except JournalError as error:
                assert str(path) in str(error), bit
            else:
                # Never another message; fewer of them only where a record may be torn.
                assert path == last, bit
                assert found == true[: len(found)], bit
                assert len(found) >= 6, bit
        path.write_bytes(whole)


def test_a_stream_goes_on_to_a_torn_tail_and_not_behind_what_is_corrupt(tmp_path: Path) -> None:
    path = _segment(tmp_path, 0)
    folder = Folder(tmp_path)
    assert folder.partitions()[0].next == 6
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(4096))  # zeros, as a power cut leaves them
    assert folder.partitions()[0].next == 6
    last = whole.rindex(b"MBLK")
    path.write_bytes(whole[:last] + b"x" + whole[last + 1 :] + whole[last:])
    words = rf"{path.name}, offset {last}: no block begins here"
    with pytest.raises(JournalError, match=words):
        Folder(tmp_path).partitions()


@settings(deadline=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=40), st.integers(0, 21))
def test_what_was_read_since_a_time_is_not_passed_over_when_the_clock_jumped(
    tmp_path_factory: pytest.TempPathFactory, seconds: list[int], since: int
) -> None:
    journal = tmp_path_factory.mktemp("journal")
    times_ns = [START_NS + second * 10**9 for second in seconds]
    _segment(journal, 0, times_ns)
    time_ns = START_NS + since * 10**9
    expected = next((n for n, at in enumerate(times_ns) if at >= time_ns), len(times_ns))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyspark_motemq.folder._REMEMBERED_BYTES", 200)
        patch.setattr("host_broker.net.journal.index._APART_BYTES", 200)
        assert Folder(journal).since(time_ns) == {0: expected}
        assert JournalReader(journal, JOURNAL).since(0, time_ns) == expected
