"""What was acknowledged and is in no segment yet survives a kill: docs/journal.md, Stage.

A copy of the journal's folder is what a kill leaves: all that the kernel had.
"""

import asyncio
import contextlib
import errno
import itertools
import logging
import os
import shutil
import sqlite3
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.bus.queue import spell_place, spell_remembered
from host_broker.cli.journal import command
from host_broker.net.journal import stage as stage_module
from host_broker.net.journal.assembly import Assembler
from host_broker.net.journal.identity import identity_of
from host_broker.net.journal.scan import JournalError
from host_broker.net.journal.stage import STAGE_FILE, Stage, read
from host_broker.net.journal.writer import Journal
from host_broker.net.storage.message_store import Entry, MessageStore
from host_broker.outputs import Record
from host_broker.settings import JournalSettings
from tests.host_broker.net.journal_decoder import Stored, read_journal

_AREA_BYTES = 1024 * 1024  # here, where the file is copied hundreds of times
_NEVER_BY_ITSELF = JournalSettings(flush_s=3600.0, partitions=2)
_LONG_S = 60.0
_Entries = dict[bytes, Entry]
_ENTRY: Entry = (b"\x04\x01\0\0\0\1ax", b"")


@pytest.fixture(autouse=True, scope="module")
def small_areas() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage_module, "AREA_BYTES", _AREA_BYTES)
        yield


def _record(payload: bytes, connection: int = 2, client: str = "", protocol: int = 1) -> Record:
    body = struct.pack(">BBI", 0, 1, len(payload)) + b"a" + payload
    return Record(connection, protocol, client, 1, body)


class _Kept:
    """A running journal, and what it leaves if it is killed now."""

    def __init__(self, folder: Path, how: JournalSettings = _NEVER_BY_ITSELF) -> None:
        self.folder = folder
        self._how = how
        self._copies = itertools.count()
        self.lost: list[Exception] = []
        folder.mkdir(exist_ok=True)
        self.store = MessageStore(folder / "retained.sqlite")
        self.journal = Journal(folder / "journal", how, self.store)

    def start(self) -> None:
        self.journal.start(asyncio.get_running_loop(), self.lost.append, lambda: None)

    def killed(self) -> Path:
        """Return a copy of all files as they are."""
        copy = self.folder.parent / f"killed-{next(self._copies)}"
        shutil.copytree(self.folder, copy)
        return copy


def _run(folder: Path, steps: Callable[[_Kept], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        kept = _Kept(folder)
        kept.start()
        await steps(kept)
        await kept.journal.close(_LONG_S)
        kept.store.close()

    asyncio.run(all_of_it())


def _started(folder: Path, how: JournalSettings = _NEVER_BY_ITSELF) -> dict[int, list[Stored]]:
    """Start after a kill; returns what every partition has then."""
    kept = _Kept(folder, how)
    closing = kept.journal.close(_LONG_S)
    with pytest.raises(StopIteration):  # without its thread there is nothing to wait for
        closing.send(None)
    kept.store.close()
    return read_journal(folder / "journal")


def _bodies(found: dict[int, list[Stored]]) -> dict[int, list[bytes]]:
    for stored in found.values():
        assert [each.seq for each in stored] == list(range(len(stored)))
    return {number: [each.body for each in stored] for number, stored in found.items() if stored}


def _retained(folder: Path) -> dict[bytes, Entry]:
    store = MessageStore(folder / "retained.sqlite")
    found = {topic: (packet, properties) for topic, packet, properties in store.entries()}
    store.close()
    return found


def _queued(folder: Path) -> dict[bytes, Entry]:
    store = MessageStore(folder / "retained.sqlite")
    found = {key: (packet, properties) for key, packet, properties in store.queued()}
    store.close()
    return found


def _present(entries: Mapping[bytes, Entry | None]) -> _Entries:
    return {key: entry for key, entry in entries.items() if entry is not None}


def test_what_is_staged_is_kept_at_once_and_in_segments_after_a_kill(tmp_path: Path) -> None:
    async def steps(kept: _Kept) -> None:
        journal = kept.journal
        journal.append(17, [_record(b"one", 3, "kitchen", 2), _record(b"two")], {b"t": _ENTRY})
        journal.append(18, [_record(b"three", 3)])
        assert journal.kept == 0
        assert journal.keep_now()
        assert (journal.kept, journal.written) == (2, 0)
        assert read_journal(kept.folder / "journal") == {0: [], 1: []}
        journal.append(19, [_record(b"nobody waits for this")])
        copy = kept.killed()
        assert _retained(copy) == {}
        found = _started(copy)
        assert _bodies(found) == {0: [b"two"], 1: [b"one", b"three"]}
        one, three = found[1]
        assert (one.time_ns, one.connection, one.client, one.protocol) == (17, 3, "kitchen", 2)
        assert (three.time_ns, three.client) == (18, "")
        assert _retained(copy) == {b"t": _ENTRY}

    _run(tmp_path / "data", steps)
    assert _bodies(read_journal(tmp_path / "data" / "journal")) == {
        0: [b"two", b"nobody waits for this"],
        1: [b"one", b"three"],
    }
    assert not (tmp_path / "data" / "journal" / STAGE_FILE).exists()


_TURN = st.tuples(
    st.lists(st.integers(0, 3), max_size=4),  # connections that publish
    st.dictionaries(st.sampled_from([b"s", b"t", b"u"]), st.booleans(), max_size=2),
)
_STEP = st.tuples(_TURN, st.sampled_from(["", "keep", "keep", "write"]))


@given(st.lists(_STEP, min_size=1, max_size=12), st.data())
@settings(max_examples=25, deadline=None)
def test_any_kill_leaves_what_was_kept_in_order_and_once(
    tmp_path_factory: pytest.TempPathFactory,
    steps_taken: list[tuple[tuple[list[int], dict[bytes, bool]], str]],
    data: st.DataObject,
) -> None:
    """Also if the stage is cut, or the start after it is killed and begun again."""
    folder = tmp_path_factory.mktemp("journal") / "data"
    appended: dict[int, list[bytes]] = {}
    kept_of: dict[int, int] = {}
    history: list[tuple[_Entries, _Entries]] = [({}, {})]  # retained and queued after each turn
    numbers = itertools.count()

    def check(copy: Path, kept_turn: int, *, whole: bool) -> None:
        for _ in range(2):  # the second start finds nothing to do
            found = _bodies(_started(copy))
            for partition, bodies in found.items():
                assert bodies == appended[partition][: len(bodies)]
            if whole:
                for partition, count in kept_of.items():
                    assert len(found.get(partition, [])) >= count
                assert (_retained(copy), _queued(copy)) in history[kept_turn:]

    async def steps(kept: _Kept) -> None:
        journal = kept.journal
        kept_turn = 0
        for (connections, retained), then in steps_taken:
            records = []
            for connection in connections:
                payload = b"%d" % next(numbers)
                records.append(_record(payload, connection))
                appended.setdefault(connection % 2, []).append(payload)
            changes = {
                topic: (b"%d" % next(numbers), b"p") if stays else None
                for topic, stays in retained.items()
            }
            retained_before, queued_before = history[-1]
            # Each publication is put into a queue; what has waited there longest is taken.
            queued: dict[bytes, Entry | None] = {
                spell_place(b"q", int(payload) + 1): (b"put " + payload, b"")
                for payload in (bytes(record.body)[7:] for record in records)
            }
            queued |= dict.fromkeys(sorted(queued_before)[: len(connections) - 1])
            history.append(
                (_present({**retained_before, **changes}), _present({**queued_before, **queued}))
            )
            position = journal.append(1, records, changes, queued)
            if then == "keep":
                assert journal.keep_now()
            elif then == "write":
                await journal.reach(position, _LONG_S, "written")
            if then:
                kept_turn = len(history) - 1
                kept_of.update({number: len(bodies) for number, bodies in appended.items()})
            assert journal.kept >= kept_turn
            copy = kept.killed()
            cut = kept.killed()
            path = cut / "journal" / STAGE_FILE
            staged = bytearray(path.read_bytes())
            at = data.draw(st.integers(0, 400)) + _AREA_BYTES * data.draw(st.integers(0, 1))
            staged[at : at + data.draw(st.integers(1, 40))] = data.draw(st.binary(max_size=40))
            path.write_bytes(staged)
            check(copy, kept_turn, whole=True)
            check(cut, kept_turn, whole=False)
            shutil.rmtree(copy)
            shutil.rmtree(cut)

    _run(folder, steps)
    assert _bodies(read_journal(folder / "journal")) == appended


@given(st.binary(max_size=300), st.integers(0, 120))
@settings(max_examples=200, deadline=None)
def test_no_bytes_upset_a_start(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int
) -> None:
    folder = tmp_path_factory.mktemp("noise")
    identity = identity_of(folder)
    stage = Stage(folder, identity, 5)
    area = stage.begin([0])
    assert area is not None
    assembler = Assembler(1, 100)
    assembler.add(1, [_record(b"x", client="kitchen")])
    assert area.add(assembler, {b"t": _ENTRY, b"u": None})
    stage.close()
    path = folder / STAGE_FILE
    staged = path.read_bytes()
    path.write_bytes(staged[:at] + noise + staged[at + len(noise) :])
    for found in read(folder, identity):
        assert [each.record.body for each in found.records] in ([], [_record(b"x").body])
        assert found.retained in ({}, {b"t": _ENTRY, b"u": None})
    path.write_bytes(noise)
    assert read(folder, identity) == []


def test_a_group_is_staged_while_the_one_before_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(kept: _Kept) -> None:
        journal = kept.journal
        may_write = asyncio.Event()
        loop = asyncio.get_running_loop()
        write_blocks = journal._write_blocks

        def gated(group: object) -> None:
            asyncio.run_coroutine_threadsafe(may_write.wait(), loop).result(_LONG_S)
            write_blocks(group)  # type: ignore[arg-type]

        monkeypatch.setattr(journal, "_write_blocks", gated)
        journal.append(1, [_record(b"first")])
        assert journal.keep_now()
        journal.hurry()
        journal.append(2, [_record(b"second")], {b"t": _ENTRY})
        assert journal.keep_now()
        assert (journal.kept, journal.written) == (2, 0)
        assert _bodies(_started(kept.killed())) == {0: [b"first", b"second"]}
        may_write.set()
        await journal.settle(_LONG_S)
        assert journal.written == 2
        assert _bodies(_started(kept.killed())) == {0: [b"first", b"second"]}

    _run(tmp_path / "data", steps)


def test_behind_a_group_that_is_not_staged_answers_wait_for_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(kept: _Kept) -> None:
        journal = kept.journal
        may_write = asyncio.Event()
        loop = asyncio.get_running_loop()
        write_blocks = journal._write_blocks

        def gated(group: object) -> None:
            asyncio.run_coroutine_threadsafe(may_write.wait(), loop).result(_LONG_S)
            write_blocks(group)  # type: ignore[arg-type]

        monkeypatch.setattr(journal, "_write_blocks", gated)
        journal.append(1, [_record(b"nobody waits for this")])
        journal.hurry()
        position = journal.append(2, [_record(b"second")])
        assert not journal.keep_now()
        waits = asyncio.ensure_future(journal.reach(position, _LONG_S))
        await asyncio.sleep(0)
        assert not waits.done()
        may_write.set()
        await waits  # and then no second group has to be written first
        assert (journal.kept, journal.written) == (position, position - 1)

    _run(tmp_path / "data", steps)


def test_more_than_a_stage_takes_is_written_by_the_thread(tmp_path: Path) -> None:
    async def steps(kept: _Kept) -> None:
        journal = kept.journal
        large = _record(bytes(_AREA_BYTES))
        position = journal.append(1, [large])
        assert not journal.keep_now()
        await journal.reach(position, _LONG_S)
        assert journal.written == position
        for _ in range(40):  # many turns of 100 kB: areas are used over and over
            position = journal.append(2, [_record(bytes(100_000))])
            await journal.reach(position, _LONG_S)
            assert journal.kept == position
        found = _bodies(_started(kept.killed()))
        assert [len(body) for body in found[0]] == [_AREA_BYTES, *[100_000] * 40]

    _run(tmp_path / "data", steps)


def test_the_number_of_partitions_may_change_between_a_kill_and_the_start(tmp_path: Path) -> None:
    async def steps(kept: _Kept) -> None:
        kept.journal.append(1, [_record(b"even", 2), _record(b"odd", 3)])
        assert kept.journal.keep_now()
        one = JournalSettings(partitions=1)
        assert _bodies(_started(kept.killed(), one)) == {0: [b"even"], 1: [b"odd"]}
        five = JournalSettings(partitions=5)
        assert _bodies(_started(kept.killed(), five)) == {0: [b"even"], 1: [b"odd"]}

    _run(tmp_path / "data", steps)


def test_records_keep_the_run_in_which_they_were_read(tmp_path: Path) -> None:
    """Connections are told apart by run and id."""

    async def steps(kept: _Kept) -> None:
        journal = kept.journal
        position = journal.append(1, [_record(b"in a segment")])
        await journal.reach(position, _LONG_S, "written")
        journal.append(1, [_record(b"staged")])
        assert journal.keep_now()
        copy = kept.killed()
        assert _bodies(_started(copy)) == {0: [b"in a segment", b"staged"]}
        first, second = sorted((copy / "journal" / "p0000").glob("*.mjl"))
        assert first.read_bytes()[48:52] == second.read_bytes()[48:52]

    _run(tmp_path / "data", steps)


def test_what_is_remembered_and_forgotten_is_forgotten(tmp_path: Path) -> None:
    """Its key is used again, unlike that of a message: what the file has of it is older."""
    name, place = spell_remembered(b"of a protocol"), spell_place(b"a queue", 7)

    async def steps(kept: _Kept) -> None:
        journal = kept.journal
        position = journal.append(1, [], {}, {name: (b"older", b""), place: _ENTRY})
        await journal.reach(position, _LONG_S, "written")
        assert _queued(kept.killed()) == {name: (b"older", b""), place: _ENTRY}
        journal.append(1, [], {}, {name: (b"newer", b"")})
        position = journal.append(1, [], {}, {name: None})
        await journal.reach(position, _LONG_S, "written")
        assert _queued(kept.killed()) == {place: _ENTRY}

    _run(tmp_path / "data", steps)


def test_after_another_start_of_the_machine_older_retained_messages_stay_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the disk has of the stage may then be older than what it has of the store."""

    async def steps(kept: _Kept) -> None:
        journal = kept.journal
        journal.append(1, [_record(b"x")], {b"t": (b"older", b"")})
        assert journal.keep_now()
        old = (kept.folder / "journal" / STAGE_FILE).read_bytes()
        position = journal.append(1, [_record(b"y")], {b"t": (b"newer", b"")})
        await journal.reach(position, _LONG_S, "written")
        copy = kept.killed()
        (copy / "journal" / STAGE_FILE).write_bytes(old)
        other = tmp_path / "boot_id"
        other.write_text("00000000-0000-4000-8000-000000000001\n")
        monkeypatch.setattr(stage_module, "_BOOT_ID", other)
        assert _bodies(_started(copy)) == {0: [b"x", b"y"]}
        assert _retained(copy) == {b"t": (b"newer", b"")}
        monkeypatch.undo()
        journal.append(1, [_record(b"z")], {b"t": (b"newest", b"")})
        assert journal.keep_now()
        copy = kept.killed()
        monkeypatch.setattr(stage_module, "_BOOT_ID", other)
        assert _bodies(_started(copy)) == {0: [b"x", b"y", b"z"]}  # restarted in an orderly way
        assert _retained(copy) == {b"t": (b"newest", b"")}
        monkeypatch.undo()

    _run(tmp_path / "data", steps)


def test_without_room_for_a_stage_answers_wait_for_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(file: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(stage_module.os, "posix_fallocate", refused)

    async def steps(kept: _Kept) -> None:
        position = kept.journal.append(1, [_record(b"x")])
        assert not kept.journal.keep_now()
        await kept.journal.reach(position, _LONG_S)
        assert kept.journal.written == position

    with caplog.at_level(logging.WARNING):
        _run(tmp_path / "data", steps)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "journal: there is no stage (No space left on device): answers wait for the thread that "
        "writes"
    ]
    assert [path.name for path in (tmp_path / "data" / "journal").glob("staged*")] == []


def test_a_queue_that_changes_and_goes_in_one_group_leaves_nothing(tmp_path: Path) -> None:
    """Unlike a message of that group it may be in the file already."""
    itself, place = spell_place(b"jobs", 0), spell_place(b"jobs", 1)

    async def steps(kept: _Kept) -> None:
        kept.journal.append(1, [], {}, {itself: _ENTRY, place: _ENTRY})
        await kept.journal.reach(1, _LONG_S, "written")
        kept.journal.append(2, [], {}, {itself: (b"block 0 0", b"10001")})
        kept.journal.append(3, [], {}, {itself: None, place: None})
        await kept.journal.reach(3, _LONG_S, "written")

    _run(tmp_path / "data", steps)
    with contextlib.closing(sqlite3.connect(tmp_path / "data" / "retained.sqlite")) as database:
        assert database.execute("SELECT * FROM queued").fetchall() == []


def test_a_start_without_room_for_a_stage_leaves_no_old_one_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says has gone on since: a message that is done with must not come back."""
    place = spell_place(b"jobs", 1)
    itself = spell_place(b"jobs", 0)

    async def stages(kept: _Kept) -> None:
        kept.journal.append(1, [_record(b"x")], {b"a": _ENTRY}, {itself: _ENTRY, place: _ENTRY})
        assert kept.journal.keep_now()
        kept.killed()

    _run(tmp_path / "data", stages)
    after = tmp_path / "killed-0"

    def refused(file: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def forgets(kept: _Kept) -> None:
        position = kept.journal.append(2, [_record(b"y")], {b"a": None}, {place: None})
        await kept.journal.reach(position, _LONG_S)
        shutil.copytree(kept.folder, tmp_path / "killed again")

    with monkeypatch.context() as patch:
        patch.setattr(stage_module.os, "posix_fallocate", refused)
        _run(after, forgets)
    _started(tmp_path / "killed again")
    assert _retained(tmp_path / "killed again") == {}
    assert _queued(tmp_path / "killed again") == {}


def test_a_slow_disk_is_not_written_to_by_the_loop_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    pwritev = os.pwritev

    def slow(file: int, parts: list[bytes], offset: int) -> int:
        clock[0] += 0.02
        return pwritev(file, parts, offset)

    async def steps(kept: _Kept) -> None:
        journal = kept.journal
        monkeypatch.setattr(stage_module.time, "monotonic", lambda: clock[0])
        monkeypatch.setattr(stage_module.os, "pwritev", slow)
        journal.append(1, [_record(b"x")])
        assert journal.keep_now()
        journal.append(1, [_record(b"y")])
        assert not journal.keep_now()
        clock[0] += 1.1
        assert journal.keep_now()
        monkeypatch.undo()

    _run(tmp_path / "data", steps)


def test_a_disk_that_stays_full_until_the_end_costs_nothing_that_is_staged(tmp_path: Path) -> None:
    """They say so, and the next start writes it."""
    folder = tmp_path / "data"

    async def full() -> None:
        kept = _Kept(folder)
        kept.start()
        journal = kept.journal

        def refused(group: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        journal._write_blocks = refused  # type: ignore[method-assign,assignment]
        journal.append(1, [_record(b"first")])
        assert journal.keep_now()
        journal.hurry()
        journal.append(1, [_record(b"second")])
        assert journal.keep_now()
        journal.append(1, [_record(b"third")])
        with pytest.raises(
            JournalError,
            match=r"1 messages that were accepted are lost, 2 are staged: the next start writes",
        ):
            await journal.close(_LONG_S)
        kept.store.close()

    asyncio.run(full())
    journal = folder / "journal"
    said = CliRunner().invoke(command, ["check", str(journal)])
    assert (said.exit_code, "2 more are staged for the next start" in said.output) == (0, True)
    assert _bodies(_started(folder)) == {0: [b"first", b"second"]}
    said = CliRunner().invoke(command, ["check", str(journal)])
    assert said.output == "1 partitions, 1 segments, 2 messages\n"


@pytest.mark.parametrize("ack", ["memory", "synced"])
def test_other_promises_need_no_stage(tmp_path: Path, ack: str) -> None:
    async def steps() -> None:
        how = JournalSettings(ack="memory" if ack == "memory" else "synced")
        kept = _Kept(tmp_path / "data", how)
        kept.start()
        position = kept.journal.append(1, [_record(b"x")])
        assert kept.journal.keep_now() == (ack == "memory")
        await kept.journal.reach(position, _LONG_S)
        assert not (tmp_path / "data" / "journal" / STAGE_FILE).exists()
        await kept.journal.close(_LONG_S)
        kept.store.close()

    asyncio.run(steps())


def test_of_another_journal_nothing_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(kept: _Kept) -> None:
        kept.journal.append(1, [_record(b"x")])
        assert kept.journal.keep_now()
        staged = (kept.folder / "journal" / STAGE_FILE).read_bytes()
        other = tmp_path / "other"
        (other / "journal").mkdir(parents=True)
        (other / "journal" / STAGE_FILE).write_bytes(staged)
        with caplog.at_level(logging.WARNING), contextlib.suppress(KeyError):
            assert _bodies(_started(other)) == {}
        assert "of another journal" in caplog.text

    _run(tmp_path / "data", steps)
