"""The journal's bytes against the golden file, and finding where to go on."""

import json
from pathlib import Path

import pytest

from host_broker.net.journal.format import record_head, segment_header
from host_broker.net.journal.scan import JournalError, next_sequence
from host_broker.outputs import Record
from tests.host_broker.net.journal_decoder import Corrupt, read_segment

VECTORS = Path(__file__).parents[2] / "vectors" / "journal.json"
SEGMENTS = json.loads(VECTORS.read_text())["segments"]
# The scan for the next number trusts a good CRC; counting packets is the readers' business.
SCANNED = [segment for segment in SEGMENTS if "packets in the body" not in segment["case"]]


def _ids(segment: dict) -> str:
    return segment["case"]


@pytest.mark.parametrize("segment", SEGMENTS, ids=_ids)
def test_writer_reproduces_the_whole_records(segment: dict) -> None:
    run = segment.get("run", 0)
    written = segment_header(
        segment["partition"], segment["first_sequence"], segment["created_ns"], run
    )
    for stored in segment["records"]:
        assert len(written) == stored["offset"]
        body = bytes.fromhex(stored["body_hex"])
        record = Record(
            stored["connection"], stored["protocol"], stored["client"], stored["count"], body
        )
        written += record_head(record, stored["time_ns"], stored["sequence"]) + body
    golden = bytes.fromhex(segment["hex"])
    assert golden.startswith(written)
    assert (len(golden) > len(written)) == bool(segment["torn_tail"] or segment["corrupt"])


@pytest.mark.parametrize("segment", SEGMENTS, ids=_ids)
def test_independent_decoder_agrees_with_the_golden_file(segment: dict) -> None:
    golden = bytes.fromhex(segment["hex"])
    if segment["corrupt"]:
        with pytest.raises(Corrupt, match=f"offset {segment['corrupt']['offset']}"):
            read_segment(segment["name"], golden, None, last=True)
        return
    messages, torn = read_segment(segment["name"], golden, None, last=True)
    assert torn == segment["torn_tail"]
    golden_messages = [
        (stored["client"], message["seq"], message["topic"], message["body_hex"], message["flags"])
        for stored in segment["records"]
        for message in stored["messages"]
    ]
    assert golden_messages == [
        (stored.client, stored.seq, stored.topic, stored.body.hex(), stored.flags)
        for stored in messages
    ]


@pytest.mark.parametrize("segment", SCANNED, ids=_ids)
def test_restart_goes_on_after_the_last_whole_record(segment: dict, tmp_path: Path) -> None:
    path = tmp_path / Path(segment["name"]).name
    path.write_bytes(bytes.fromhex(segment["hex"]))
    if segment["corrupt"]:
        with pytest.raises(JournalError) as caught:
            next_sequence(tmp_path, segment["partition"])
        assert f"{path}, offset {segment['corrupt']['offset']}" in str(caught.value)
        return
    messages = sum(stored["count"] for stored in segment["records"])
    expected = segment["first_sequence"] + messages
    assert next_sequence(tmp_path, segment["partition"]) == expected


@pytest.mark.parametrize("cut", [0, 7, 39])
def test_a_header_cut_short_is_corrupt(cut: int, tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}.mjl").write_bytes(segment_header(0, 0, 1)[:cut])
    with pytest.raises(JournalError, match="offset 0: its header is"):
        next_sequence(tmp_path, 0)


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        (b"MOTEJRNX" + segment_header(0, 0, 1)[8:], "MOTEJRNL"),
        (segment_header(0, 0, 1)[:-1] + b"?", "CRC"),
        (segment_header(1, 0, 1), "partition 1"),
        (segment_header(0, 5, 1), "message 5"),
    ],
)
def test_a_wrong_header_is_named(header: bytes, complaint: str, tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}.mjl").write_bytes(header)
    with pytest.raises(JournalError, match=complaint):
        next_sequence(tmp_path, 0)
