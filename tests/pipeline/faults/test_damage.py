"""A journal with flipped bits, and one whose broker's clock jumped: named, or read exactly."""

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.net.journal.library import Library
from pyspark_motemq.columns import batches
from pyspark_motemq.folder import Folder
from pyspark_motemq.records import JournalError, take_records
from pyspark_motemq.snapshot import plan, read_stretch
from tests.pipeline.desk import START_NS, Sender, header, packet, record, segment_path

_COUNTS = [1, 3, 2]  # messages of the records of each segment


def _segment(journal: Path, first: int, times_ns: list[int] | None = None) -> Path:
    path = segment_path(journal, 0, first)
    data = header(0, first)
    for at, count in enumerate(_COUNTS if times_ns is None else [1] * len(times_ns)):
        packets = [packet(f"t/{n}", b"%d" % n) for n in range(first, first + count)]
        time_ns = START_NS if times_ns is None else times_ns[at]
        data += record(Sender(1, 2, "me"), first, packets, time_ns)
        first += count
    path.write_bytes(data)
    return path


def _by_number(journal: Path) -> list[tuple[int, str, bytes]]:
    """Read as a stream does: what is there, by number."""
    folder = Folder(journal)
    shelf = folder.shelves()[0]
    found: list[tuple[int, str, bytes]] = []
    for share in folder.shares(0, shelf.first, shelf.next):
        for data, stretch in share.pieces():
            for batch in batches(data, take_records(data, stretch), stretch):
                columns = batch.to_pydict()
                found += zip(columns["seq"], columns["path"], columns["payload"], strict=True)
    return found


def _whole(journal: Path) -> list[tuple[int, str, bytes]]:
    """Read as a batch does: the files as they are."""
    found: list[tuple[int, str, bytes]] = []
    for stretch in plan(journal):
        data = read_stretch(stretch)
        for batch in batches(data, take_records(data, stretch), stretch):
            columns = batch.to_pydict()
            found += zip(columns["seq"], columns["path"], columns["payload"], strict=True)
    return found


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


def test_a_stream_does_not_wait_behind_a_record_that_can_be_none(tmp_path: Path) -> None:
    path = _segment(tmp_path, 0)
    folder = Folder(tmp_path)
    assert folder.shelves()[0].next == 6
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(struct.pack(">II", 2**31, 0) + bytes(100))
    with pytest.raises(JournalError, match=rf"{path.name}, offset {size}: the length"):
        folder.shelves()


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
        for module in ("pyspark_motemq.folder", "host_broker.net.journal.library"):
            patch.setattr(f"{module}._REMEMBERED_BYTES", 200)
        assert Folder(journal).since(time_ns) == {0: expected}
        assert Library(journal).since(0, time_ns) == expected
