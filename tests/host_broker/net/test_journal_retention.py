"""How long the journal is kept: pure, and by a broker that runs."""

import itertools
import os
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from host_broker.client import connect
from host_broker.net.journal.retention import Kept, expired, sweep
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
        assert len(sweep(tmp_path, 0, time.time() - 1001.5, {})) == 2
        assert len(reader.read()) == 100
    assert sorted(path.name for path in folder.iterdir()) == [f"{2:020d}.mjl", "notes.txt"]


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
        assert running.end() == (0, "")
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
