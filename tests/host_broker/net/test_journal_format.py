"""The journal's bytes against the golden file, and finding where to go on."""

import json
import uuid
from pathlib import Path

import pytest

from host_broker.bus.publication import WITH_PROPERTIES, pack, pack_with_properties
from host_broker.net.journal.assembly import assemble
from host_broker.net.journal.format import (
    BLOCK_HEADER_LENGTH,
    LOST,
    Block,
    HeaderFault,
    SegmentHeader,
    block_header,
    segment_mark,
    unpack_header,
)
from host_broker.net.journal.index import index_path, load
from host_broker.net.journal.scan import JournalError, recover, scan
from host_broker.outputs import Record
from tests.host_broker.net.journal_decoder import Corrupt, read_blocks, read_segment
from tests.journal_segment import JOURNAL

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "journal.json").read_text())
SEGMENTS = VECTORS["segments"]
# The scan for the next number trusts a good CRC; what is in a block is the readers' business.
WITHIN = ("count", "packet", "encoding")


def _ids(segment: dict) -> str:
    return segment["case"]


def _record(stored: dict) -> Record:
    body = bytes.fromhex(stored["body_hex"])
    return Record(
        stored["connection"],
        stored["protocol"],
        stored["client"],
        stored["count"],
        body,
        stored["encoding"],
    )


@pytest.mark.parametrize("segment", SEGMENTS, ids=_ids)
def test_writer_reproduces_the_whole_blocks(segment: dict) -> None:
    journal = uuid.UUID(segment["journal"])
    header = SegmentHeader(
        journal, segment["partition"], segment["first"], segment["created_ns"], segment["run"]
    ).pack()
    written = header
    for stored in segment["blocks"]:
        assert len(written) == stored["offset"]
        if stored["lost"]:
            lost = Block(
                BLOCK_HEADER_LENGTH,
                0,
                LOST,
                stored["first"],
                0,
                0,
                stored["count"],
                0,
                segment_mark(header),
            )
            written += block_header(lost, [])
            continue
        group = [(each["time_ns"], [_record(each)]) for each in stored["records"]]
        (made,) = assemble(group, 1, 10**6)
        written += b"".join(made.block(stored["first"], segment_mark(header)))
    golden = bytes.fromhex(segment["hex"])
    if segment["blocks"] or not segment["torn_tail"]:
        assert golden.startswith(written)
        assert (len(golden) > len(written)) == bool(segment["torn_tail"] or segment["corrupt"])


def _expected(records: list[dict]) -> list[tuple[object, ...]]:
    return [
        (
            stored["time_ns"],
            stored["connection"],
            stored["protocol"],
            stored["client"],
            message["seq"],
            message["topic"],
            message["body_hex"],
            message["flags"],
            message.get("properties", {}),
        )
        for stored in records
        for message in stored["messages"]
    ]


def _found(messages: list) -> list[tuple[object, ...]]:
    return [
        (
            stored.time_ns,
            stored.connection,
            stored.protocol,
            stored.client,
            stored.seq,
            stored.topic,
            stored.body.hex(),
            stored.flags,
            {name: value.hex() for name, value in stored.properties.items()},
        )
        for stored in messages
    ]


@pytest.mark.parametrize("segment", SEGMENTS, ids=_ids)
def test_independent_decoder_agrees_with_the_golden_file(segment: dict) -> None:
    golden = bytes.fromhex(segment["hex"])
    if segment["corrupt"]:
        with pytest.raises(Corrupt, match=f"offset {segment['corrupt']['offset']}"):
            read_segment(segment["name"], golden, None, last=True)
        return
    messages, torn = read_segment(segment["name"], golden, None, last=True)
    assert torn == segment["torn_tail"]
    records = [stored for block in segment["blocks"] for stored in block["records"]]
    assert _found(messages) == _expected(records)


@pytest.mark.parametrize("answer", VECTORS["answers"], ids=_ids)
def test_independent_decoder_agrees_with_selected_blocks(answer: dict) -> None:
    assert _found(read_blocks(bytes.fromhex(answer["hex"]))) == _expected(answer["records"])


@pytest.mark.parametrize("segment", SEGMENTS, ids=_ids)
def test_restart_goes_on_after_the_last_whole_block(segment: dict, tmp_path: Path) -> None:
    folder = tmp_path / Path(segment["name"]).parent
    folder.mkdir()
    path = folder / Path(segment["name"]).name
    path.write_bytes(bytes.fromhex(segment["hex"]))
    if segment["corrupt"] and segment["corrupt"]["why"] not in WITHIN:
        with pytest.raises(JournalError) as caught:
            recover(folder, segment["partition"], JOURNAL)
        assert f"{path}, offset {segment['corrupt']['offset']}" in str(caught.value)
        return
    messages = sum(block["count"] for block in segment["blocks"]) + bool(segment["corrupt"])
    following, torn = recover(folder, segment["partition"], JOURNAL)
    assert following == segment["first"] + messages
    assert bool(torn) == segment["torn_tail"]
    if "index_hex" in segment:
        assert index_path(path).read_bytes().hex() == segment["index_hex"]
        index = load(path, path.stat().st_size)
        assert index is not None
        assert (index.next, index.journal, index.run) == (following, JOURNAL, segment["run"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((10, b"x"), "CRC"),
        ((0, b"N"), "MOTEJRNL"),
        ((63, b"x"), "CRC"),
        ((12, b"\1"), "CRC"),
    ],
)
def test_a_wrong_header_before_whole_blocks_is_named(
    change: tuple[int, bytes], words: str, tmp_path: Path
) -> None:
    golden = bytearray.fromhex(SEGMENTS[0]["hex"])
    golden[change[0] : change[0] + 1] = change[1]
    path = tmp_path / f"{0:020d}.mjl"
    path.write_bytes(golden)
    with pytest.raises(JournalError, match=rf"offset 0: .*{words}.* 'motemq journal check"):
        recover(tmp_path, 0, JOURNAL)


def test_a_segment_under_a_wrong_name_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "p0000"
    folder.mkdir()
    (folder / f"{5:020d}.mjl").write_bytes(bytes.fromhex(SEGMENTS[0]["hex"]))
    with pytest.raises(JournalError, match="its header is of partition 0, message 0"):
        recover(folder, 0, JOURNAL)


def test_a_segment_of_another_journal_is_named(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.mjl"
    path.write_bytes(bytes.fromhex(SEGMENTS[0]["hex"]))
    with pytest.raises(JournalError, match=f"is of another journal: its id is {JOURNAL}"):
        recover(tmp_path, 0, uuid.uuid4())


def test_a_version_that_is_not_known_is_named(tmp_path: Path) -> None:
    header = bytearray(SegmentHeader(JOURNAL, 0, 0, 1).pack())
    header[8:10] = b"\0\1"
    fault = unpack_header(bytes(header), 0, 0)
    assert isinstance(fault, HeaderFault)
    assert fault.version == 1
    path = tmp_path / "p0000" / f"{0:020d}.mjl"
    path.parent.mkdir()
    path.write_bytes(header)
    with pytest.raises(JournalError, match="motemq journal convert"):
        scan(path, 0)


def test_the_broker_spells_properties_as_the_golden_file_does() -> None:
    """Encoding 2, of every record that has it."""
    bodies = [
        (stored["body_hex"], stored["messages"])
        for segment in SEGMENTS
        for block in segment["blocks"]
        for stored in block["records"]
        if stored["encoding"] == WITH_PROPERTIES
    ]
    assert len(bodies) > 1
    for golden, messages in bodies:
        written = b""
        for message in messages:
            packet = pack(
                message["flags"], message["topic"].encode(), bytes.fromhex(message["body_hex"])
            )
            properties = {
                name: bytes.fromhex(value) for name, value in message["properties"].items()
            }
            written += pack_with_properties(packet, properties)
        assert written.hex() == golden
