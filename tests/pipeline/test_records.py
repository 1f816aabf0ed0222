"""The journal's bytes without Spark: golden vectors, cuts, every kind of damage."""

import json
from pathlib import Path
from typing import Any

import pytest

from pyspark_motemq.columns import batches
from pyspark_motemq.records import JournalError, take_records
from pyspark_motemq.snapshot import plan, read_stretch
from tests.pipeline.desk import START_NS, Sender, header, packet, record, segment_path

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
            "connection": segment.get("run", 0) << 32 | one["connection"],
            "client": one["client"],
            "path": message["topic"],
            "retained": bool(message["flags"] & 4),
            "will": bool(message["flags"] & 8),
            "payload": bytes.fromhex(message["body_hex"]),
        }
        for segment in segments
        for one in segment["records"]
        for message in one["messages"]
    ]


def read_rows(journal: Path, stretch_bytes: int = 2**24) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for stretch in plan(journal, stretch_bytes):
        data = read_stretch(stretch)
        for batch in batches(data, take_records(data, stretch), stretch):
            rows += batch.drop_columns(["time"]).to_pylist()
    return rows


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


def _segment(journal: Path, records: int = 40, partition: int = 0, first: int = 0) -> Path:
    """Write records of one and two messages in turn."""
    path = segment_path(journal, partition, first)
    data, sequence = header(partition, first), first
    for index in range(records):
        packets = [packet("a/b", bytes([index])) for _ in range(1 + index % 2)]
        data += record(_ONE, sequence, packets, START_NS + index)
        sequence += len(packets)
    path.write_bytes(data)
    return path


def test_a_large_segment_is_cut_at_records_and_reads_the_same(tmp_path: Path) -> None:
    _segment(tmp_path)
    assert len(plan(tmp_path, stretch_bytes=100)) > 5
    assert read_rows(tmp_path, stretch_bytes=100) == read_rows(tmp_path)
    assert [row["seq"] for row in read_rows(tmp_path, stretch_bytes=100)] == list(range(60))


def test_damage_in_a_segment_that_is_cut_is_still_named(tmp_path: Path) -> None:
    path = _segment(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(JournalError, match=rf"{path}, offset \d+: "):
        read_rows(tmp_path, stretch_bytes=100)


def test_a_last_segment_cut_anywhere_reads_as_its_whole_records(tmp_path: Path) -> None:
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


def test_a_flipped_bit_before_the_last_record_is_noticed(tmp_path: Path) -> None:
    path = _segment(tmp_path, records=3)
    data = path.read_bytes()
    one = len(record(_ONE, 0, [packet("a/b", b"0")], START_NS))
    last = len(data) - one
    # A length made larger than the file is what a torn tail looks like (docs/journal.md, Reading).
    ambiguous = {start + index for start in (40, 40 + one) for index in (1, 2)}
    for position in sorted(set(range(last)) - ambiguous):
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
    _segment(tmp_path).rename(segment_path(tmp_path, 0, 7))
    with pytest.raises(JournalError, match="header says partition 0, message 0, its name says"):
        read_rows(tmp_path)


def test_a_path_that_is_not_utf8_stays_visible(tmp_path: Path) -> None:
    path = segment_path(tmp_path, 0)
    raw = packet("xx", b"1").replace(b"xx", b"\xffx")
    path.write_bytes(header(0, 0) + record(_ONE, 0, [raw], START_NS))
    assert [row["path"] for row in read_rows(tmp_path)] == ["\\xffx"]


def test_batches_are_bounded(tmp_path: Path) -> None:
    path = segment_path(tmp_path, 0)
    big = [packet("a", bytes(3 * 1024 * 1024))]
    path.write_bytes(header(0, 0) + b"".join(record(_ONE, seq, big, START_NS) for seq in range(7)))
    (stretch,) = plan(tmp_path, stretch_bytes=2**26)
    data = read_stretch(stretch)
    sizes = [batch.num_rows for batch in batches(data, take_records(data, stretch), stretch)]
    assert sizes == [3, 3, 1]


def test_what_retention_deleted_meanwhile_is_named(tmp_path: Path) -> None:
    path = _segment(tmp_path)
    (stretch,) = plan(tmp_path)
    path.unlink()
    with pytest.raises(JournalError, match=r"partition 0, messages from 0; journal.max_age_s"):
        read_stretch(stretch)
