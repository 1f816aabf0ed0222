"""Journals that were cut, zeroed or changed: they start or are refused, and are repaired."""

import json
import random
import shutil
import uuid
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.client import connect
from host_broker.net.journal.check import check
from host_broker.net.journal.groups import Groups
from host_broker.net.journal.identity import identity_of
from host_broker.net.journal.index import index_path
from host_broker.net.journal.reader import JournalReader
from host_broker.net.journal.repair import DAMAGED, repair
from host_broker.net.journal.scan import JournalError, recover
from host_broker.net.journal.segment import Partition
from host_broker.outputs import Record
from host_broker.settings import JournalSettings
from motemq.cli import main
from tests.host_broker.net.broker_process import broker
from tests.host_broker.net.journal_decoder import Corrupt, Stored, read_segment
from tests.host_broker.net.test_journal_format import SEGMENTS, WITHIN
from tests.host_broker.net.test_journal_live import ONE_PARTITION, telemetry
from tests.journal_segment import JOURNAL, Segment, Sender, packet

_ONE = Sender(1, 1)


def _write(journal: Path, counts: list[int], first: int = 0) -> Path:
    """Write a segment with blocks of so many messages."""
    journal.mkdir(exist_ok=True)
    (journal / "journal.json").write_text(json.dumps({"format": 2, "id": str(JOURNAL)}))
    segment = Segment(0, first)
    for count in counts:
        numbers = range(segment.next, segment.next + count)
        segment.record(_ONE, [packet("a", b"%d" % number) for number in numbers])
    return segment.write(journal)


def _read(journal: Path) -> list[Stored]:
    """Return the messages of partition 0; raises ``Corrupt``."""
    paths = sorted((journal / "p0000").glob("*.mjl"))
    ends = [*[int(path.stem) for path in paths], None][1:]
    found: list[Stored] = []
    for path, end in zip(paths, ends, strict=True):
        name = f"p0000/{path.name}"
        found += read_segment(name, path.read_bytes(), end, last=end is None)[0]
    return found


def _go_on(journal: Path) -> int:
    """Start as a broker does and add a message; returns its number."""
    partition = Partition(journal, 0, identity_of(journal), 7, JournalSettings())
    number = partition.next
    partition.append(1, Record(1, 1, "", 1, packet("a", b"%d" % number)))
    partition.flush()
    partition.close()
    return number


@pytest.mark.parametrize("tail", ["cut", "zeros"])
def test_it_starts_whatever_length_its_last_segment_has(tmp_path: Path, tail: str) -> None:
    """Cut at every byte, and cut and zeroed from there on, as a power cut may leave it."""
    _write(tmp_path / "whole", [1, 2], 0)
    path = _write(tmp_path / "whole", [1, 3, 1], 3)
    data = path.read_bytes()
    ends = [position for position in range(len(data)) if data[position:].startswith(b"MBLK")]
    ends = [*ends[1:], len(data)]  # of whole blocks
    for length in range(len(data)):
        journal = tmp_path / "journal"
        shutil.rmtree(journal, ignore_errors=True)
        shutil.copytree(tmp_path / "whole", journal)
        last = journal / "p0000" / path.name
        last.write_bytes(data[:length] + bytes(len(data) - length if tail == "zeros" else 0))
        whole = [3, 4, 7, 8][sum(end <= length for end in ends)]
        is_torn = tail == "zeros" or length not in (64, *ends)
        report = check(journal)
        assert not report.corrupt
        assert report.messages == whole
        folder = journal / "p0000"
        following, said = recover(folder, 0, JOURNAL)
        assert following == whole
        assert bool(said) == is_torn == bool(report.findings), (length, said)
        index_path(last).unlink(missing_ok=True)
        assert _go_on(journal) == whole
        assert [stored.seq for stored in _read(journal)] == list(range(whole + 1))
        assert not check(journal).corrupt


@pytest.mark.parametrize("left", ["half a block", "whole blocks", "header", "nothing", "zeros"])
def test_what_was_whole_and_is_gone_is_lost_and_not_torn(tmp_path: Path, left: str) -> None:
    """The index of a segment that was closed says what was in it: no kill takes that away."""
    journal = tmp_path / "journal"
    path = _write(journal, [2, 5, 3])
    assert recover(path.parent, 0, JOURNAL) == (10, "")  # and saves its index
    assert index_path(path).exists()
    data = path.read_bytes()
    second = data.index(b"MBLK", data.index(b"MBLK") + 1)
    kept = {
        "half a block": (data[: second + 50], 2),
        "whole blocks": (data[:second], 2),
        "header": (data[: data.index(b"MBLK")], 0),
        "nothing": (b"", 0),
        "zeros": (data[: second + 50] + bytes(len(data) - second - 50), 2),
    }
    there, first = kept[left]
    path.write_bytes(there)
    (finding,) = check(journal).findings
    assert (finding.torn, finding.first, finding.end) == (False, first, 10)
    # A broker starts, and says so.
    started = tmp_path / "started"
    shutil.copytree(journal, started)
    following, said = recover(started / "p0000", 0, JOURNAL)
    if left == "zeros":  # it has the size that its index knows, so it is not looked at
        assert (following, said) == (10, "")
    else:
        assert following == first
        assert f"messages {first} to 9, which were in it, are lost" in said
    repair(journal)
    assert check(journal).findings == []
    assert _go_on(journal) == 10  # their numbers are nobody else's


def test_a_torn_block_is_named_with_its_messages(tmp_path: Path) -> None:
    path = _write(tmp_path, [2, 5])
    path.write_bytes(path.read_bytes()[:-1])
    _, said = recover(path.parent, 0, JOURNAL)
    assert "were never whole (messages 2 to 6); message 2 is the next one" in said
    (finding,) = check(tmp_path).findings
    assert "(messages 2 to 6, which were never whole)" in str(finding)


@pytest.mark.parametrize("segment", SEGMENTS, ids=lambda segment: str(segment["case"]))
def test_golden_segments_are_checked_and_repaired(segment: dict, tmp_path: Path) -> None:
    path = tmp_path / segment["name"]
    path.parent.mkdir()
    path.write_bytes(bytes.fromhex(segment["hex"]))
    (tmp_path / "journal.json").write_text(json.dumps({"format": 2, "id": str(JOURNAL)}))
    report = check(tmp_path)
    assert report.corrupt == bool(segment["corrupt"])
    assert bool(report.findings) == bool(segment["corrupt"] or segment["torn_tail"])
    if segment["corrupt"]:
        assert f"{path}, offset {segment['corrupt']['offset']}: " in str(report.findings[0])
    repair(tmp_path)
    assert check(tmp_path).findings == []
    following, torn = recover(path.parent, segment["partition"], JOURNAL)
    assert torn == ""
    assert following >= sum(block["count"] for block in segment["blocks"])
    if report.findings:
        (aside,) = (tmp_path / DAMAGED).iterdir()
        assert aside.read_bytes() == bytes.fromhex(segment["hex"])


def test_lost_messages_keep_their_numbers_and_all_others_theirs(tmp_path: Path) -> None:
    """In the middle, at the end of a closed segment, a whole segment, a header."""
    paths = [_write(tmp_path, [2] * 6, first) for first in range(0, 60, 12)]
    data = bytearray(paths[0].read_bytes())
    second = data.index(b"MBLK", 65)
    data[second + 60] ^= 1  # messages 2 and 3
    paths[0].write_bytes(data)
    paths[1].write_bytes(paths[1].read_bytes()[:-1])  # messages 22 and 23
    paths[2].unlink()  # messages 24 to 35
    data = bytearray(paths[3].read_bytes())
    data[20] ^= 1  # the header only
    paths[3].write_bytes(data)
    (tmp_path / "groups.json").write_text('{"tables": {"pos')
    lost = {2, 3, 22, 23, *range(24, 36)}
    report = check(tmp_path)
    assert (report.corrupt, report.lost) == (True, len(lost))
    assert report.messages == 60 - len(lost)
    spoken = "\n".join(map(str, report.findings))
    assert f"{paths[0]}, offset {second}: the CRC of a block is wrong" in spoken
    assert "messages 2 to 3 are lost" in spoken
    assert "messages 22 to 35 are lost" in spoken
    assert f"{paths[3]}, offset 0: the CRC of its header is wrong" in spoken
    assert "groups.json, offset 0" in spoken
    with pytest.raises(Corrupt):
        _read(tmp_path)
    ages = {path: path.stat().st_mtime_ns for path in paths if path.exists()}
    assert repair(tmp_path).lost == len(lost)
    assert {path: path.stat().st_mtime_ns for path in ages} == ages
    assert check(tmp_path).findings == []
    there = [number for number in range(60) if number not in lost]
    assert [stored.seq for stored in _read(tmp_path)] == there
    assert [int(stored.body) for stored in _read(tmp_path)] == there
    assert _go_on(tmp_path) == 60
    reader = JournalReader(tmp_path, JOURNAL)
    for number in range(60):
        found = reader.slice(0, number, 1)
        assert found is not None
        assert found.first <= number < found.next


_DAMAGE = st.tuples(st.integers(0, 10**6), st.sampled_from(["flip", "zeros", "cut", "insert"]))


@settings(max_examples=150, deadline=None)
@given(st.lists(_DAMAGE, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_any_damage_is_repaired_and_nothing_is_made_up(
    tmp_path_factory: pytest.TempPathFactory,
    damage: list[tuple[int, str]],
    chance: random.Random,
) -> None:
    journal = tmp_path_factory.mktemp("journal")
    paths = [_write(journal, [1, 2, 1], first) for first in range(0, 12, 4)]
    for where, kind in damage:
        path = paths[where % len(paths)]
        data = bytearray(path.read_bytes())
        at = chance.randrange(len(data) + 1)
        if kind == "cut":
            del data[at:]
        elif kind == "insert":
            data[at:at] = chance.randbytes(9)
        elif kind == "zeros":
            data[at : at + 20] = bytes(len(data[at : at + 20]))
        elif at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
    report = check(journal)
    repair(journal)
    after = check(journal)
    assert after.findings == []
    assert after.messages == report.messages
    found = _read(journal)
    assert [int(stored.body) for stored in found] == [stored.seq for stored in found]
    assert len(found) == report.messages
    following = _go_on(journal)
    # Only what was at the end may have its number used again: it was torn.
    assert following >= max((stored.seq + 1 for stored in found), default=0)


@pytest.mark.parametrize("left", [None, b"", b"{", b"\xb6\xff", b"[]", b'{"id": 5}', bytes(60)])
def test_a_journals_id_is_in_its_segments_too(tmp_path: Path, left: bytes | None) -> None:
    journal = tmp_path / "journal"
    _write(journal, [2])
    path = journal / "journal.json"
    if left is None:
        path.unlink()
    else:
        path.write_bytes(left)
    (finding,) = check(journal).findings
    assert (finding.path, finding.torn) == (path, True)
    repair(journal)
    assert check(journal).findings == []
    assert identity_of(journal) == JOURNAL


def test_a_torn_groups_file_starts_and_trims_nothing(tmp_path: Path) -> None:
    for torn in (b"", b"{", b'{"a": 1}', b"\0" * 100, b"\xff\xfe", b"[]"):
        (tmp_path / "groups.json").write_bytes(torn)
        groups = Groups(tmp_path)
        assert groups.all() == {}
        assert (tmp_path / "groups.torn").read_bytes() == torn
        groups.put("tables", {0: 10})
        assert groups.read_by_all() == {}  # until all others have said again what they have read
        assert Groups(tmp_path).read_by_all() == {0: 10}


def test_a_broker_starts_with_everything_torn_at_once(tmp_path: Path) -> None:
    with broker("--data", str(tmp_path), *ONE_PARTITION) as running:
        with connect(running.urls["fmqp"]) as client:
            client.publish("t/a", b"1")
            client.sync()
        assert running.end() == (0, "")
    journal = tmp_path / "journal"
    (segment,) = (journal / "p0000").glob("*.mjl")
    identity = identity_of(journal)
    segment.write_bytes(segment.read_bytes() + bytes(5000))
    (journal / "groups.json").write_bytes(b"")
    (journal / "journal.json").write_bytes(b"")
    with broker("--data", str(tmp_path), *ONE_PARTITION) as running:
        with connect(running.urls["fmqp"]) as client:
            client.publish("t/a", b"2")
            client.sync()
        code, stderr = running.end()
    assert code == 0
    assert "the last 5000 bytes were never whole" in stderr
    assert "groups.json" in stderr
    assert "Traceback" not in stderr
    assert [stored.body for stored in telemetry(journal)] == [b"1", b"2"]
    assert identity_of(journal) == identity


def test_a_broker_refuses_what_is_corrupt_until_it_is_repaired(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    path = _write(journal, [1, 2, 3])
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    words = "motemq journal repair"
    with (
        pytest.raises(AssertionError, match=words),
        broker("--data", str(tmp_path), *ONE_PARTITION),
    ):
        pass
    assert repair(journal).lost == 1
    with broker("--data", str(tmp_path), *ONE_PARTITION) as running:
        with pytest.raises(JournalError, match="a broker is using"):
            repair(journal)
        assert running.end() == (0, "")


def test_the_commands(tmp_path: Path) -> None:
    run = CliRunner()
    path = _write(tmp_path, [1, 2])
    _write(tmp_path, [3], 3)
    (tmp_path / "groups.json").write_text('{"tables": {"positions": {"0": 2}, "said_ns": 5}}')
    found = run.invoke(main, ["journal", "info", str(tmp_path)])
    assert found.exit_code == 0
    assert f"journal {JOURNAL}, format 2" in found.output
    assert "partition 0: 6 messages, 0 to 5, " in found.output
    assert "bytes in 2 segments, 2026-01-01T00:00:00Z to 2026-01-01T00:00:00Z" in found.output
    assert "group tables: has read partition 0 up to 2" in found.output
    document = json.loads(run.invoke(main, ["journal", "info", str(tmp_path), "--json"]).output)
    assert uuid.UUID(document["id"]) == JOURNAL
    assert document["partitions"][0]["messages"] == 6
    whole = run.invoke(main, ["journal", "check", str(tmp_path)])
    assert (whole.exit_code, whole.output) == (0, "1 partitions, 2 segments, 6 messages\n")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    corrupt = run.invoke(main, ["journal", "check", str(tmp_path)])
    assert corrupt.exit_code == 1
    assert f"corrupt: {path}, offset " in corrupt.output
    assert "messages 1 to 2 are lost\n" in corrupt.output
    assert "4 messages; 2 messages are lost" in corrupt.output
    repaired = run.invoke(main, ["journal", "repair", str(tmp_path)])
    assert repaired.exit_code == 0
    assert f"repaired; what was replaced is in {tmp_path / DAMAGED}" in repaired.output
    assert run.invoke(main, ["journal", "check", str(tmp_path)]).exit_code == 0
    nothing = run.invoke(main, ["journal", "info", str(tmp_path / "p0000")])
    assert (nothing.exit_code, "has no journal" in nothing.output) == (1, True)


@pytest.mark.parametrize("command", ["check", "repair"])
def test_a_folder_without_a_journal_is_not_said_to_be_whole(command: str, tmp_path: Path) -> None:
    """As DATA instead of DATA/journal."""
    folder = tmp_path / "data"
    folder.mkdir()
    _write(folder / "journal", [1, 2])
    done = CliRunner().invoke(main, ["journal", command, str(folder)])
    assert done.exit_code == 1
    assert f"{folder} has no journal; give the broker's DATA/journal" in done.output
    assert [path.name for path in folder.iterdir()] == ["journal"]


def test_what_a_start_does_not_see_a_check_does() -> None:
    """So that the vectors keep a case of each."""
    corrupt = [segment["corrupt"]["why"] for segment in SEGMENTS if segment["corrupt"]]
    assert set(WITHIN) <= set(corrupt)
