"""What is written to a file is every byte of every buffer, in order."""

import asyncio
import os
import random
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Literal

import pytest

from host_broker.bus.publication import pack
from host_broker.net.journal import assembly, segment
from host_broker.net.journal.scan import JournalError
from host_broker.net.journal.segment import Partition, write_all
from host_broker.net.journal.stage import MOST_AT_ONCE
from host_broker.net.journal.writer import Journal
from host_broker.outputs import Record
from host_broker.settings import JournalSettings
from tests.host_broker.net.journal_decoder import read_journal
from tests.journal_segment import JOURNAL


def test_more_buffers_and_bytes_than_one_call_takes() -> None:
    """A pipe takes 64 KiB at a time, and a call takes 1024 buffers."""
    buffers = [bytes([number % 251]) * (number % 700) for number in range(3000)]
    buffers.insert(1500, os.urandom(300_000))
    reading, writing = os.pipe()
    got = bytearray()

    def read() -> None:
        while data := os.read(reading, 9999):
            got.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    os.set_blocking(writing, True)
    write_all(writing, buffers)
    os.close(writing)
    reader.join(10)
    os.close(reading)
    assert got == b"".join(buffers)


def test_what_waits_to_be_written_is_in_memory_once(tmp_path: Path) -> None:
    """Short bodies are copied, and the records let go at once, whether they can be staged or, while
    the disk is slow and the group grows, are too many for that."""

    async def keep() -> None:
        journal = Journal(tmp_path, JournalSettings(flush_s=60.0))
        journal.start(asyncio.get_running_loop(), pytest.fail, lambda: None)
        body = pack(0, b"a", bytes(20_000))
        known_to_us = sys.getrefcount(body)
        while journal.appended * len(body) <= MOST_AT_ONCE:
            journal.append(1, [Record(2, 1, "", 1, body)])
            # The twin keeps records instead of copies of their bodies.
            kept = 0 if assembly.COMPILED else journal.appended
            assert sys.getrefcount(body) == known_to_us + kept
        appended = journal.appended
        assert not journal.keep_now()
        assert journal.kept == 0
        await journal.reach(appended, 10.0)
        assert journal.append(2, [Record(2, 1, "", 1, body)]) == appended + 1
        assert journal.keep_now()  # what comes then is staged as ever
        await journal.close(10.0)
        assert len(read_journal(tmp_path)[0]) == appended + 1

    asyncio.run(keep())


@pytest.mark.parametrize("ack", ["written", "synced"])
def test_a_loss_of_power_leaves_no_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ack: str
) -> None:
    """With ``synced`` a segment begins when all before it, of this run and others, are synced."""
    synced: list[str] = []
    begun: list[list[str]] = []  # the segments that were synced when one began
    sync, write = segment.sync, segment.write_all

    def noted(path: Path) -> None:
        sync(path)
        synced.append(path.name)

    def written(file: int, buffers: list[bytes]) -> None:
        if bytes(buffers[0][:8]) == b"MOTEJRNL":
            begun.append([name for name in synced if name.endswith(".mjl")])
        write(file, buffers)

    monkeypatch.setattr(segment, "sync", noted)
    monkeypatch.setattr(segment, "write_all", written)
    settings = JournalSettings(segment_bytes=100, ack="synced" if ack == "synced" else "written")
    for _ in range(2):
        partition = Partition(tmp_path, 0, JOURNAL, 7, settings)
        for _ in range(2):
            partition.append(0, Record(1, 1, "", 1, b"\0\1\0\0\0\x64a" + bytes(100)))
            partition.flush()
        partition.close()
    segments = [f"{number:020d}.mjl" for number in range(4)]
    assert sorted(path.name for path in (tmp_path / "p0000").glob("*.mjl")) == segments
    if ack == "written":
        assert synced == []
        partition.sync()
        assert synced[-1] == segments[-1]
    else:
        assert [sorted(set(names)) for names in begun] == [segments[:n] for n in range(4)]


def test_what_is_no_record_ends_the_journal_and_what_came_before_is_written(tmp_path: Path) -> None:
    lost: list[Exception] = []

    async def keep() -> None:
        journal = Journal(tmp_path, JournalSettings())
        journal.start(asyncio.get_running_loop(), lost.append, lambda: None)
        journal.append(1, [Record(2, 1, "", 1, b"\0\1\0\0\0\1ax")])
        journal.append(2, [Record(2, 1, "", 3, b"\0\1\0\0\0\1ax")])
        with pytest.raises(JournalError, match="what it cannot keep"):
            await journal.reach(journal.appended, 60.0)
        with pytest.raises(JournalError, match="what it cannot keep"):
            await journal.close(60.0)

    asyncio.run(keep())
    assert [type(error) for error in lost] == [JournalError]
    assert [stored.body for stored in read_journal(tmp_path)[0]] == [b"x"]


_ONE = Record(2, 1, "", 1, b"\0\1\0\0\0\1ax")
_LARGE = Record(2, 1, "", 1, b"\0\1" + (2**20).to_bytes(4, "big") + b"a" + bytes(2**20))
_WITHIN_S = 60.0


def test_the_thread_wakes_the_loop_only_for_those_who_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has written for nobody is found when the next comes; then nothing waits any more."""

    async def keep() -> None:
        loop = asyncio.get_running_loop()
        woken: list[object] = []
        wake = loop.call_soon_threadsafe

        def noted(function: object, *arguments: object) -> object:
            woken.append(function)
            return wake(function, *arguments)  # type: ignore[arg-type]

        progress: list[int] = []
        written = threading.Event()

        class Done(deque[Any]):
            def append(self, group: object) -> None:
                super().append(group)
                written.set()

        journal = Journal(tmp_path, JournalSettings(partitions=1, ack="memory"))
        monkeypatch.setattr(journal, "_done", Done())
        journal.start(loop, lambda error: None, lambda: progress.append(journal.written))
        monkeypatch.setattr(loop, "call_soon_threadsafe", noted)
        journal.append(1, [_LARGE])  # so much that it is written at once
        assert written.wait(_WITHIN_S)
        assert journal.waiting_bytes == 0
        assert (journal.nexts, journal.written, progress, woken) == ([1], 0, [], [])
        journal.append(2, [_ONE])
        assert (journal.written, progress) == (1, [1])
        await journal.reach(2, _WITHIN_S, "written")
        assert (journal.written, journal.waiting_bytes, len(woken)) == (2, 0, 1)
        grown = journal.grown()
        journal.append(3, [_ONE])
        await asyncio.wait_for(grown, _WITHIN_S)
        assert len(woken) == 2
        await journal.close(_WITHIN_S)

    asyncio.run(keep())


def test_who_begins_to_wait_for_more_learns_of_what_was_written_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of the journal may come when the loop does not know yet that the thread is done."""
    written = threading.Event()

    class Done(deque[Any]):
        def append(self, group: object) -> None:
            super().append(group)
            written.set()

    async def keep() -> None:
        journal = Journal(tmp_path, JournalSettings(partitions=1, ack="memory"))
        monkeypatch.setattr(journal, "_done", Done())
        journal.start(asyncio.get_running_loop(), lambda error: None, lambda: None)
        journal.append(1, [_LARGE])
        assert written.wait(_WITHIN_S)
        await asyncio.wait_for(journal.grown(), _WITHIN_S)  # by what the loop has now heard of
        grown = journal.grown()
        assert not grown.done()
        journal.append(2, [_ONE])
        await asyncio.wait_for(grown, _WITHIN_S)
        await journal.close(_WITHIN_S)

    asyncio.run(keep())


@pytest.mark.parametrize("ack", ["memory", "written", "synced"])
def test_whoever_waits_is_told_however_the_thread_and_the_loop_meet(
    tmp_path: Path, ack: Literal["memory", "written", "synced"]
) -> None:
    async def keep() -> None:
        chance = random.Random(4711)
        told = asyncio.Event()
        journal = Journal(tmp_path, JournalSettings(flush_s=0.0005, partitions=1, ack=ack))
        journal.start(asyncio.get_running_loop(), lambda error: None, told.set)
        for turn in range(150):
            for _ in range(chance.randrange(1, 4)):
                position = journal.append(turn, [_ONE])
            until = time.perf_counter() + chance.choice([0.0, 0.00005, 0.0002, 0.001])
            while time.perf_counter() < until:  # the thread works meanwhile
                pass
            if chance.random() < 0.3:
                await asyncio.sleep(0)
            if chance.random() < 0.5:
                await journal.reach(position, _WITHIN_S, chance.choice(["kept", "written"]))
            else:
                async with asyncio.timeout(_WITHIN_S):
                    while journal.kept < position:
                        told.clear()
                        journal.hurry()
                        if journal.kept < position:
                            await told.wait()
        await journal.reach(journal.appended, _WITHIN_S, "written")
        assert journal.waiting_bytes == 0
        await journal.close(_WITHIN_S)

    asyncio.run(keep())
