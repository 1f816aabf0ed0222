"""The journal's bytes without Spark: golden vectors, cuts, every kind of damage."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_motemq import folder
from pyspark_motemq.blocks import JournalError, Slice
from pyspark_motemq.columns import batches
from pyspark_motemq.folder import Folder, read_slice
from tests.journal_segment import START_NS, Record, Segment, Sender, packet

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "journal.json").read_text())
_PROTOCOLS = ["broker", "fmqp", "lightmq"]
_WHOLE = [segment for segment in VECTORS["segments"] if not segment["corrupt"]]
_CORRUPT = [segment for segment in VECTORS["segments"] if segment["corrupt"]]
_ONE = Sender(1, 1)


def write_vectors(journal: Path, segments: list[dict[str, Any]]) -> None:
    for segment in segments:
        path = journal / segment["name"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes.fromhex(segment["hex"]))


def expected_rows(segments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "partition": segment["partition"],
            "seq": message["seq"],
            "time_ns": one["time_ns"],
            "protocol": _PROTOCOLS[one["protocol"]],
            "connection": segment["run"] << 32 | one["connection"],
            "client": one["client"],
            "path": message["topic"],
            "retained": bool(message["flags"] & 4),
            "will": bool(message["flags"] & 8),
            "payload": bytes.fromhex(message["body_hex"]),
            "broker": segment["journal"],
        }
        for segment in segments
        for block in segment["blocks"]
        for one in block["records"]
        for message in one["messages"]
    ]


def read_rows(journal: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for slice in Folder(journal).everything():
        for batch in batches(read_slice(slice), slice):
            rows += batch.drop_columns(["time"]).to_pylist()
    return rows


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "SLICE_BYTES", 100)
    monkeypatch.setattr(folder, "_REMEMBERED_BYTES", 1)


def test_every_whole_vector_gives_its_messages(tmp_path: Path) -> None:
    write_vectors(tmp_path, _WHOLE)
    rows = read_rows(tmp_path)
    assert len(rows) > 10
    assert rows == expected_rows(_WHOLE)


@pytest.mark.parametrize("segment", _CORRUPT, ids=[segment["case"] for segment in _CORRUPT])
def test_corruption_names_file_and_offset(tmp_path: Path, segment: dict[str, Any]) -> None:
    write_vectors(tmp_path, [segment])
    offset = segment["corrupt"]["offset"]
    with pytest.raises(JournalError, match=rf"{segment['name']}, offset {offset}: .*; restore"):
        read_rows(tmp_path)


@pytest.mark.parametrize("answer", VECTORS["answers"], ids=lambda answer: answer["case"])
def test_selected_blocks_of_an_answer(answer: dict[str, Any]) -> None:
    data = bytes.fromhex(answer["hex"])
    slice = Slice("answer", 3, 9, None, 0, len(data), answer["first"], 200, 0, 200, "x")
    (batch,) = batches(data, slice)
    block = {"records": answer["records"]}
    expected = expected_rows([{"partition": 3, "run": 9, "journal": "x", "blocks": [block]}])
    assert batch.drop_columns(["time"]).to_pylist() == expected


def _segment(journal: Path, records: int = 40, partition: int = 0, first: int = 0) -> Path:
    """Write blocks of one and two messages in turn."""
    segment = Segment(partition, first)
    for index in range(records):
        packets = [packet("a/b", bytes([index])) for _ in range(1 + index % 2)]
        segment.record(_ONE, packets, START_NS + index)
    return segment.write(journal)


def test_a_large_segment_is_cut_at_blocks_and_reads_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _segment(tmp_path)
    whole = read_rows(tmp_path)
    monkeypatch.setattr(folder, "SLICE_BYTES", 100)
    monkeypatch.setattr(folder, "_REMEMBERED_BYTES", 1)
    assert len(Folder(tmp_path).everything()) > 5
    assert read_rows(tmp_path) == whole
    assert [row["seq"] for row in whole] == list(range(60))


@pytest.mark.usefixtures("small_slices")
def test_damage_in_a_segment_that_is_cut_is_still_named(tmp_path: Path) -> None:
    path = _segment(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 - 30] ^= 1
    path.write_bytes(data)
    with pytest.raises(JournalError, match=rf"{path}, offset \d+: "):
        read_rows(tmp_path)


def test_a_last_segment_cut_anywhere_reads_as_its_whole_blocks(tmp_path: Path) -> None:
    path = _segment(tmp_path, records=4)
    data = path.read_bytes()
    whole = [row["seq"] for row in read_rows(tmp_path)]
    assert whole == [0, 1, 2, 3, 4, 5]
    seen = set()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        found = [row["seq"] for row in read_rows(tmp_path)]
        assert found == whole[: len(found)]
        seen.add(len(found))
    assert seen == {0, 1, 3, 4}


def test_a_flipped_bit_before_the_last_block_is_noticed(tmp_path: Path) -> None:
    path = _segment(tmp_path, records=3)
    data = path.read_bytes()
    last = data.rindex(b"MBLK")
    for position in range(last):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(JournalError, match=r"\.mjl"):
            read_rows(tmp_path)


def test_a_missing_segment_is_corruption_not_a_silent_gap(tmp_path: Path) -> None:
    _segment(tmp_path, records=2)
    _segment(tmp_path, records=1, first=9)
    with pytest.raises(JournalError, match="ends before message 3, but what follows begins with 9"):
        read_rows(tmp_path)


def test_a_tail_torn_before_the_next_segment_is_ignored(tmp_path: Path) -> None:
    path = _segment(tmp_path, records=2)
    path.write_bytes(path.read_bytes() + b"\0\0\1")
    _segment(tmp_path, records=1, first=3)
    assert [row["seq"] for row in read_rows(tmp_path)] == [0, 1, 2, 3]


def test_a_file_under_a_wrong_name_is_refused(tmp_path: Path) -> None:
    _segment(tmp_path).rename(Segment(0, 7).path(tmp_path))
    with pytest.raises(JournalError, match="header says partition 0, message 0, its name says"):
        read_rows(tmp_path)


def test_names_that_are_not_utf8_stay_visible(tmp_path: Path) -> None:
    segment = Segment()
    block = bytearray(segment.record(Sender(1, 2, "xx"), [packet("xx", b"1")]))
    segment.data = Segment().data
    segment.add(bytes(block[12:]).replace(b"xx", b"\xffx"))
    segment.write(tmp_path)
    assert [(row["client"], row["path"]) for row in read_rows(tmp_path)] == [("\\xffx", "\\xffx")]


def test_batches_are_bounded(tmp_path: Path) -> None:
    segment = Segment()
    for _ in range(9):
        segment.record(_ONE, [packet("a", bytes(3 * 1024 * 1024))])
    segment.write(tmp_path)
    sizes = [
        [batch.num_rows for batch in batches(read_slice(slice), slice)]
        for slice in Folder(tmp_path).everything()
    ]
    assert sizes == [[3, 2], [3, 1]]  # slices are even, and have about 16 MiB


def test_what_retention_deleted_meanwhile_is_named(tmp_path: Path) -> None:
    path = _segment(tmp_path)
    (slice,) = Folder(tmp_path).everything()
    path.unlink()
    with pytest.raises(JournalError, match=r"partition 0, messages from 0; journal.max_age_s"):
        read_slice(slice)


def _with_properties(spelled: bytes, body: bytes) -> bytes:
    return len(spelled).to_bytes(4, "big") + spelled + packet("a/b", body)


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize("together", [True, False])
def test_messages_with_properties_are_rows_as_all_others(
    tmp_path: Path, count: int, together: bool
) -> None:
    """Also properties that look like packets, and among messages without any."""
    spelled = b"\1\0\0\0\x20n" + packet("a/b", b"no packet").ljust(32, b"\0")
    records = [
        Record(_ONE, [packet("a/b", b"%d" % index) for index in range(count)]),
        Record(
            _ONE,
            [_with_properties(spelled, b"%d" % (count + index)) for index in range(count)],
            encoding=2,
        ),
        Record(_ONE, [_with_properties(b"", b"%d" % (2 * count))], encoding=2),
        Record(_ONE, [packet("a/b", b"%d" % (2 * count + 1))]),
    ]
    segment = Segment()
    for some in [records] if together else [[record] for record in records]:
        segment.block(*some)
    segment.write(tmp_path)
    rows = read_rows(tmp_path)
    assert [int(row["payload"]) for row in rows] == list(range(2 * count + 2))
    assert {row["path"] for row in rows} == {"a/b"}


def test_a_length_of_properties_does_not_wrap(tmp_path: Path) -> None:
    """A number of 32 bits would, and so find a packet three bytes further on."""
    segment = Segment()
    message = b"\xff\xff\xff" + packet("a/b", b"x", flags=0xFF)
    segment.block(Record(_ONE, [message], encoding=2))
    segment.write(tmp_path)
    with pytest.raises(JournalError, match="properties reach beyond their message"):
        read_rows(tmp_path)


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from(["", "kitchen", "καρδιά"]),
                st.integers(1, 2),
                st.lists(st.tuples(st.text(max_size=9), st.binary(max_size=9)), min_size=1),
            ),
            min_size=1,
            max_size=5,
        ),
        max_size=5,
    ),
    st.integers(1, 9),
    st.data(),
)
def test_any_messages_in_any_blocks_are_read_as_they_are(
    blocks: list[Any], batch_messages: int, draw: st.DataObject
) -> None:
    segment, expected = Segment(run=5), []
    for block in blocks:
        records = []
        for number, (client, protocol, messages) in enumerate(block):
            spelled = [packet(*message) for message in messages]
            records.append(Record(Sender(number, protocol, client), spelled, START_NS + number))
            for path, payload in messages:
                row = (len(expected), START_NS + number, _PROTOCOLS[protocol], 5 << 32 | number)
                expected.append((*row, client, path, payload))
        segment.block(*records)
    low = draw.draw(st.integers(0, len(expected)))
    high = draw.draw(st.integers(low, len(expected)))
    data = segment.data[64:]
    slice = Slice("x", 0, 5, segment.crc, 64, len(segment.data), 0, None, low, high)
    names = ["seq", "time_ns", "protocol", "connection", "client", "path", "payload"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyspark_motemq.columns._BATCH_MESSAGES", batch_messages)
        found: list[Any] = []
        for batch in batches(data, slice):
            columns = batch.to_pydict()
            found += zip(*(columns[name] for name in names), strict=True)
    assert found == expected[low:high]


@given(st.binary(max_size=300), st.booleans(), st.integers(0, 400), st.integers(0, 7))
def test_garbage_is_corruption_or_torn_and_nothing_else(
    garbage: bytes, sealed: bool, at: int, bit: int
) -> None:
    segment = Segment()
    for count in (1, 3):
        segment.block(
            Record(Sender(1, 2, "me"), [packet("a", b"x")] * count),
            Record(_ONE, [_with_properties(b"", b"y")], encoding=2),
        )
    whole = bytearray(segment.data[64:])
    if at < len(whole):  # with a right CRC, so that columns are looked at
        (length,) = struct.unpack_from("<I", whole, 4)
        block = bytearray(whole[12:length])
        block[at % len(block)] ^= 1 << bit
        segment.data = Segment().data
        segment.add(bytes(block))
        whole = bytearray(segment.data[64:]) + whole[length:]
    data = bytes(whole) + garbage
    slice = Slice("x", 0, 0, segment.crc, 64, 64 + len(data), 0, 6 if sealed else None)
    try:
        rows = sum(batch.num_rows for batch in batches(data, slice))
    except JournalError as error:
        assert "x, offset" in str(error)
    else:
        assert rows <= 6
