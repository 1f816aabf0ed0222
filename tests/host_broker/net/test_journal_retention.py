"""How long the journal is kept: pure, and by a broker that runs."""

import asyncio
import itertools
import os
import re
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_broker.client import connect
from host_broker.net.journal import writer
from host_broker.net.journal.format import HEADER_LENGTH
from host_broker.net.journal.retention import AgeClock, Kept, expired, sweep
from host_broker.net.journal.writer import Journal
from host_broker.outputs import Record
from host_broker.settings import JournalSettings
from tests.host_broker.net.broker_process import broker, until
from tests.host_broker.net.test_journal_live import ONE_PARTITION

_NS = 1_000_000_000


def _partition(name: str, *segments: tuple[int, int]) -> list[Kept]:
    """Return segments of (bytes, second of the last write)."""
    return [
        Kept(Path(f"{name}/{number}"), size, written_s * _NS)
        for number, (size, written_s) in enumerate(segments)
    ]


def _names(gone: list[Kept]) -> list[str]:
    return [str(segment.path) for segment in gone]


def test_what_is_too_old_goes_but_the_newest_of_a_partition_stays() -> None:
    partitions = [_partition("a", (1, 0), (1, 50), (1, 60)), _partition("b", (1, 0))]
    assert _names(expired(partitions, 0, 45.0, 100 * _NS)) == ["a/0", "a/1"]
    assert _names(expired(partitions, 0, 55.0, 100 * _NS)) == ["a/0"]


def test_the_oldest_go_when_there_are_too_many_bytes() -> None:
    partitions = [_partition("a", (10, 1), (10, 4), (10, 9)), _partition("b", (10, 2), (10, 3))]
    assert _names(expired(partitions, 30, 0, 100 * _NS)) == ["a/0", "b/0"]
    assert _names(expired(partitions, 50, 0, 100 * _NS)) == []
    assert _names(expired(partitions, 1, 0, 100 * _NS)) == ["a/0", "b/0", "a/1"]


def test_no_limit_keeps_everything() -> None:
    partitions = [_partition("a", (10, 0), (10, 0), (10, 0))]
    assert expired(partitions, 0, 0, 10**18) == []


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 100)), max_size=8), max_size=4),
    st.integers(0, 200),
    st.integers(0, 100),
)
def test_whatever_the_clock_did_there_are_no_holes_and_limits_hold(
    sizes: list[list[tuple[int, int]]], max_bytes: int, max_age_s: int
) -> None:
    partitions = [_partition(str(name), *each) for name, each in enumerate(sizes)]
    gone = {segment.path for segment in expired(partitions, max_bytes, max_age_s, 100 * _NS)}
    left = [[each for each in segments if each.path not in gone] for segments in partitions]
    for before, after in zip(partitions, left, strict=True):
        assert after == before[len(before) - len(after) :]
        assert bool(after) == bool(before)
    if max_bytes:
        closed = [each for segments in left for each in segments[:-1]]
        total = sum(each.size for segments in left for each in segments)
        assert total <= max_bytes or not closed


def test_files_go_and_a_reader_that_has_one_open_reads_on(tmp_path: Path) -> None:
    folder = tmp_path / "p0000"
    folder.mkdir()
    for number in range(3):
        path = folder / f"{number:020d}.mjl"
        path.write_bytes(bytes(100))
        os.utime(path, (1000 + number, 1000 + number))
    (folder / "notes.txt").write_text("not ours")
    with (folder / f"{0:020d}.mjl").open("rb") as reader:
        gone = list(sweep(tmp_path, 0, 10.0, {}, 1_011_500_000_000))
        assert [str(segment) for segment in gone] == [
            f"partition 0, messages {number} to {number}, 100 bytes: {age_s} s old, "
            "journal.max_age_s is 10"
            for number, age_s in ((0, 11), (1, 10))
        ]
        assert len(reader.read()) == 100
    assert sorted(path.name for path in folder.iterdir()) == [f"{2:020d}.mjl", "notes.txt"]


def _look(clock: AgeClock, wall_s: float, steady_s: float, max_age_s: float) -> float | None:
    now_ns = clock.look(int(wall_s * _NS), int(steady_s * _NS), max_age_s)
    return None if now_ns is None else now_ns / _NS


def test_a_clock_that_jumps_ahead_for_a_while_makes_nothing_older() -> None:
    clock, week_s, month_s = AgeClock(), 7 * 86400.0, 30 * 86400.0
    wall_s = 1e9
    for at_s in range(0, 4000, 10):
        said = _look(clock, wall_s + at_s, at_s, week_s)
        assert said == (None if at_s < 3600 else wall_s + at_s)  # it is believed after an hour
    for at_s in range(4000, 4020, 10):
        assert _look(clock, wall_s + at_s + month_s, at_s, week_s) == wall_s + at_s
    assert _look(clock, wall_s + 4020, 4020, week_s) == wall_s + 4020


def test_a_clock_that_was_wrong_and_is_put_right_counts_in_the_end() -> None:
    clock, day_s = AgeClock(), 86400.0
    _look(clock, 0.0, 0.0, day_s)  # a machine without a battery, before it knows the time
    for at_s in range(10, 90_000, 10):
        said = _look(clock, 1e9 + at_s, at_s, day_s)
        if at_s > 3600:
            assert said == (at_s if at_s <= 10 + day_s else 1e9 + at_s)


def test_a_start_while_the_clock_is_ahead_deletes_nothing() -> None:
    clock, week_s = AgeClock(), 7 * 86400.0
    assert _look(clock, 1e9 + 30 * 86400, 0.0, week_s) is None
    for at_s in range(11, 4000, 10):
        assert _look(clock, 1e9 + at_s, at_s, week_s) in (None, 1e9 + at_s)


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(-200, 200)), min_size=1, max_size=60),
    st.integers(1, 100),
)
def test_whatever_is_written_goes_no_sooner_than_it_is_old(
    steps: list[tuple[int, int]], max_age_s: int
) -> None:
    """The clock is set again and again; at each step a segment is written and it is looked."""
    clock = AgeClock()
    steady_s, lead_s = 0, 1000
    written: list[tuple[int, int]] = []  # steady, wall
    for passed_s, set_by_s in steps:
        steady_s += passed_s
        lead_s += set_by_s
        now_s = _look(clock, steady_s + lead_s, steady_s, max_age_s)
        for at_s, wall_s in written:
            if now_s is not None and now_s - wall_s > max_age_s:
                assert steady_s - at_s > max_age_s
        written.append((steady_s, steady_s + lead_s))


def test_the_journals_thread_does_not_believe_a_jump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Segments are written, the clock is 30 days ahead for eleven seconds, then right again."""
    settings = JournalSettings(partitions=1, segment_bytes=100, max_age_s=5.0)
    record = Record(2, 1, "", 1, bytes([0, 1, 0, 0, 0, 100]) + b"t" + bytes(100))
    steady, lead = _Set(10**12), _Set(10**18)
    monkeypatch.setattr(writer, "_SWEEP_S", 0.01)
    monkeypatch.setattr(writer.time, "clock_gettime_ns", lambda clock: steady.value)
    monkeypatch.setattr(writer.time, "time_ns", lambda: steady.value + lead.value)
    folder = tmp_path / "p0000"

    def age(seconds: float) -> None:
        for path in folder.glob("*.mjl"):
            os.utime(path, ns=(0, 10**18 + steady.value - int(seconds * _NS)))

    async def work() -> None:
        journal = Journal(tmp_path, settings)
        lost: list[Exception] = []
        journal.start(asyncio.get_running_loop(), lost.append, lambda: None)
        for _ in range(4):
            journal.append(1, [record])
            await journal.reach(journal.appended, 20.0, "written")

        async def swept_twice() -> None:
            for _ in range(2):
                before = steady.read
                await asyncio.to_thread(until, partial(_more, steady, before + 2))

        age(-6.0)  # before the thread can see how late it is
        steady.value += 7 * _NS
        await swept_twice()  # from now on the clock is believed
        lead.value = 10**18 + 30 * 86400 * _NS
        await swept_twice()
        assert len(list(folder.glob("*.mjl"))) == 4
        lead.value = 10**18
        await swept_twice()
        assert len(list(folder.glob("*.mjl"))) == 4
        assert caplog.messages == []
        steady.value += 5 * _NS
        await asyncio.to_thread(until, lambda: len(list(folder.glob("*.mjl"))) == 1)
        await journal.close(20.0)
        assert lost == []

    asyncio.run(work())
    assert caplog.messages == [
        f"journal: deleted: partition 0, messages {number} to {number}, "
        f"{HEADER_LENGTH + 179} bytes: 6 s old, journal.max_age_s is 5"
        for number in range(3)
    ]


def _more(clock: "_Set", than: int) -> bool:
    return clock.read > than


class _Set:
    """A number that is set; ``read`` counts how often it was asked for."""

    def __init__(self, value: int) -> None:
        self._value = value
        self.read = 0

    @property
    def value(self) -> int:
        self.read += 1
        return self._value

    @value.setter
    def value(self, value: int) -> None:
        self._value = value


def test_a_broker_keeps_its_journal_within_bounds(tmp_path: Path) -> None:
    settings = ("--set", "journal.segment_bytes=50000", "--set", "journal.max_bytes=200000")
    journal = tmp_path / "journal" / "p0000"

    def publish(times: int) -> None:
        client = connect(running.urls["fmqp"])
        with client:
            for _ in range(times):
                client.publish("t/a", bytes(1000))
            client.sync()

    with broker("--data", str(tmp_path), *ONE_PARTITION, *settings) as running:
        publish(1000)
        assert running.end() == (0, "")
    assert sum(path.stat().st_size for path in journal.glob("*.mjl")) > 900_000
    last = max(path.name for path in journal.glob("*.mjl"))
    with broker("--data", str(tmp_path), *ONE_PARTITION, *settings) as running:
        until(lambda: sum(path.stat().st_size for path in journal.glob("*.mjl")) <= 200_000)
        publish(1)
        code, said = running.end()
    assert code == 0
    first = said.splitlines()[0]
    assert first.startswith("broker: journal: deleted: partition 0, messages 0 to ")
    assert first.endswith(" bytes, journal.max_bytes is 200000")
    deleted = re.findall(r"messages (\d+) to (\d+)", said)
    assert all(int(one[1]) + 1 == int(other[0]) for one, other in itertools.pairwise(deleted))
    names = sorted(path.name for path in journal.glob("*.mjl"))
    assert last in names
    starts = [int(name.partition(".")[0]) for name in names]
    assert all(one < other for one, other in itertools.pairwise(starts))


def test_two_starts_are_told_apart(tmp_path: Path) -> None:
    runs = set()
    for _ in range(2):
        with broker("--data", str(tmp_path), *ONE_PARTITION) as running:
            client = connect(running.urls["fmqp"])
            with client:
                client.publish("t/a", b"1")
                client.sync()
            assert running.end() == (0, "")
    for path in (tmp_path / "journal" / "p0000").glob("*.mjl"):
        runs.add(int.from_bytes(path.read_bytes()[48:52], "little"))
    assert len(runs) == 2
    assert all(0 < run < 2**31 for run in runs)
