"""A journal of format version 1 is refused with a sentence, and converted as that says."""

import json
import os
import random
import struct
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from host_broker.net.journal.check import check
from host_broker.net.journal.groups import Groups
from host_broker.net.journal.identity import identity_of
from host_broker.net.journal.numbered import newest
from host_broker.net.journal.scan import JournalError, recover
from host_broker.net.journal.version_1 import read_records
from motemq.cli import main
from tests.host_broker.net.broker_process import broker
from tests.host_broker.net.journal_decoder import read_segment
from tests.host_broker.net.test_journal_http import _ask, _publish, _until_kept
from tests.host_broker.net.test_journal_live import ONE_PARTITION
from tests.journal_segment import packet

_VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "journal_1.json").read_text())
_WHOLE = [segment for segment in _VECTORS["segments"] if not segment["corrupt"]]
_CORRUPT = [segment for segment in _VECTORS["segments"] if segment["corrupt"]]
_CLIENT = "query:1 7.0"  # of publications with a number


def _write(journal: Path, segments: list[dict]) -> None:
    for segment in segments:
        path = journal / segment["name"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes.fromhex(segment["hex"]))


def _header(partition: int, first: int) -> bytes:
    head = struct.pack(">8sHHIQQI", b"MOTEJRNL", 1, 0, partition, first, 5, 9)
    return head + struct.pack(">I", zlib.crc32(head))


def _record(sequence: int, packets: list[bytes], client: bytes = b"") -> bytes:
    fixed = struct.pack(">QQIIBBH", 77, sequence, len(packets), 3, 1, 1, len(client))
    checked = fixed + client + b"".join(packets)
    return struct.pack(">II", len(checked), zlib.crc32(checked)) + checked


def _convert(old: Path, new: Path) -> tuple[int, str]:
    found = CliRunner().invoke(main, ["journal", "convert", str(old), str(new)])
    return found.exit_code, found.output


def test_all_that_a_record_says_is_kept(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    _write(old, _WHOLE)
    code, output = _convert(old, new)
    assert code == 0, output
    assert output.endswith(f"now put {new} in the place of {old}\n")
    assert check(new).findings == []
    for segment in _WHOLE:
        data = (new / segment["name"]).read_bytes()
        assert struct.unpack_from("<Q", data, 24)[0] == segment["created_ns"]
        assert struct.unpack_from("<I", data, 48)[0] == segment.get("run", 0)
        found, _ = read_segment(segment["name"], data, None, last=True)
        assert [
            (each.seq, each.topic, each.body.hex(), each.flags, each.time_ns, each.client)
            for each in found
        ] == [
            (
                message["seq"],
                message["topic"],
                message["body_hex"],
                message["flags"],
                stored["time_ns"],
                stored["client"],
            )
            for stored in segment["records"]
            for message in stored["messages"]
        ]
        properties = [
            {name: value.hex() for name, value in each.properties.items()} for each in found
        ]
        assert properties == [
            message.get("properties", {})
            for stored in segment["records"]
            for message in stored["messages"]
        ]


@pytest.mark.parametrize("segment", _CORRUPT, ids=lambda segment: str(segment["case"]))
def test_corruption_is_named(tmp_path: Path, segment: dict) -> None:
    old = tmp_path / "old"
    _write(old, [segment])
    code, output = _convert(old, tmp_path / "new")
    assert code == 1
    assert f"{old / segment['name']}, " in output
    if segment["corrupt"]["why"] != "count" or "offset" in output:
        assert f"offset {segment['corrupt']['offset']}: " in output
    assert "Traceback" not in output


def test_a_broker_refuses_it_and_goes_on_with_what_was_converted(tmp_path: Path) -> None:
    """Numbers, groups, publications with a number: as if nothing had been."""
    data = tmp_path / "data"
    old = data / "journal"
    (old / "p0000").mkdir(parents=True)
    first = _header(0, 0) + _record(0, [packet("a", b"%d" % n) for n in range(3)])
    first += _record(3, [packet("a", b"3"), packet("a", b"4")], _CLIENT.encode())
    (old / "p0000" / f"{0:020d}.mjl").write_bytes(first)
    (old / "p0000" / f"{5:020d}.mjl").write_bytes(_header(0, 5))  # nothing in it yet
    groups = '{"tables": {"positions": {"0": 4}, "said_ns": 1}}'
    (old / "groups.json").write_text(groups)
    options = ("--data", str(data), *ONE_PARTITION, "--listen", "auto://127.0.0.1:0")
    options = (*options, "--set", "journal.flush_s=0.001")
    with pytest.raises(AssertionError) as refused, broker(*options):
        pass
    assert f"motemq journal convert {old} {old}-2, then put {old}-2 in its place" in str(
        refused.value
    )
    assert "Traceback" not in str(refused.value)
    new = data / "journal-2"
    assert _convert(old, new)[0] == 0
    old.rename(tmp_path / "kept")
    new.rename(old)
    assert Groups(old).all()["tables"].positions == {0: 4}
    assert list(newest(old, 0.0)) == [("query:1", (7, 0))]
    assert recover(old / "p0000", 0, identity_of(old)) == (5, "")
    with broker(*options) as running:
        port = running.ports["auto"]
        _publish(port, [b"new"])
        _until_kept(port, 7)
        overview = json.loads(_ask(port, "GET", "/journal")[2])
        assert overview["groups"]["tables"]["positions"] == {"0": 4}
        assert overview["partitions"][0]["first"] == 0
        assert running.end() == (0, "")


def test_the_age_of_a_segment_stays(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    _write(old, _WHOLE)
    for path in old.glob("*/*.mjl"):
        os.utime(path, (1000, 2000))
    assert _convert(old, new)[0] == 0
    assert {path.stat().st_mtime for path in new.glob("*/*.mjl")} == {2000}


@pytest.mark.parametrize(
    ("prepared", "words"),
    [
        ("nothing", "has no journal"),
        ("version 2", "is a journal of format version 2 already"),
        ("not empty", "is there already, and not empty"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, prepared: str, words: str) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    if prepared != "nothing":
        _write(old, _WHOLE[:1])
    if prepared == "version 2":
        assert _convert(old, tmp_path / "two")[0] == 0
        old = tmp_path / "two"
    if prepared == "not empty":
        new.mkdir()
        (new / "mine").touch()
    code, output = _convert(old, new)
    assert (code, words in output) == (1, True), output


def test_garbage_is_corruption_and_nothing_else(tmp_path: Path) -> None:
    chance = random.Random(16)
    path = tmp_path / f"{0:020d}.mjl"
    whole = _header(0, 0) + b"".join(
        _record(n, [packet("a", b"%d" % n)], b"x" * (n % 3)) for n in range(6)
    )
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(40, len(data))] = chance.randrange(256)
        path.write_bytes(data[: chance.randrange(40, len(data) + 1)])
        try:
            found = [record.count for _, record in read_records(path, None)]
        except JournalError as error:
            assert f"{path}, offset" in str(error)
        else:
            assert len(found) <= 6
