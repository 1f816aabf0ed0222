"""A position is of one journal: others are refused by name, whatever numbers they have."""

import re
import shutil
import uuid
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from benchmarks.ports import port_for_later
from host_broker.client import connect
from pyspark_motemq.blocks import JournalError
from pyspark_motemq.folder import Folder
from pyspark_motemq.offsets import Offset, Position
from pyspark_motemq.options import Options
from pyspark_motemq.source import JournalReader
from pyspark_motemq.stream import StreamReader
from tests.host_broker.net.broker_process import BrokerProcess, broker, until
from tests.journal_segment import JOURNAL, Segment, Sender, packet


def _write(journal: Path, count: int, identity: uuid.UUID = JOURNAL) -> None:
    segment = Segment(journal=identity)
    for number in range(count):
        segment.record(Sender(1, 1), [packet("a", b"%d" % number)])
    segment.write(journal)


def _reader(**options: str) -> StreamReader:
    return StreamReader(Options.read(options))


def _latest(reader: StreamReader, start: Offset) -> Offset:
    return reader.latestOffset(start, ReadAllAvailable())


def test_a_position_says_of_which_journal_it_is(tmp_path: Path) -> None:
    _write(tmp_path, 3)
    reader = _reader(path=str(tmp_path), startingOffsets="earliest")
    start = reader.initialOffset()
    assert start == {"0": 0, "journals": {"0": str(JOURNAL)}}
    assert _latest(reader, start) == {"0": 3, "journals": {"0": str(JOURNAL)}}
    assert reader.reportLatestOffset() == _latest(reader, start)
    assert Position.read(start).written() == start


@pytest.mark.parametrize("starting", ["latest", "-1h", '{"0": "latest"}'])
def test_a_start_that_moves_is_noted_by_the_first_batch(tmp_path: Path, starting: str) -> None:
    _write(tmp_path, 3)
    reader = _reader(path=str(tmp_path), startingOffsets=starting)
    first = reader.initialOffset()
    _write(tmp_path, 4)
    begun = _latest(reader, first)
    assert begun == {"0": 4, "journals": {"0": str(JOURNAL)}}
    planned = reader.partitions(first, begun)
    # That batch is repeated when there is more: what came since is not passed over.
    _write(tmp_path, 6)
    reader = _reader(path=str(tmp_path), startingOffsets=starting)
    assert reader.partitions(reader.initialOffset(), begun) == planned == []
    end = _latest(reader, begun)
    assert end["0"] == 6
    (task,) = reader.partitions(begun, end)
    assert [row for batch in reader.read(task) for row in batch.to_pydict()["seq"]] == [4, 5]


def test_another_journal_in_the_same_place_is_refused(tmp_path: Path) -> None:
    _write(tmp_path, 3)
    at = _latest(reader := _reader(path=str(tmp_path)), reader.initialOffset())
    other = uuid.uuid4()
    _write(tmp_path, 5, other)
    reader = _reader(path=str(tmp_path))
    words = rf"the journal folder {tmp_path} is journal {other}, but .* read journal {JOURNAL}"
    with pytest.raises(JournalError, match=words):
        _latest(reader, at)
    with pytest.raises(JournalError, match=words):
        _reader(path=str(tmp_path)).partitions(at, at)


def test_a_journal_that_was_rewound_is_refused(tmp_path: Path) -> None:
    _write(tmp_path, 5)
    at = _latest(reader := _reader(path=str(tmp_path)), reader.initialOffset())
    _write(tmp_path, 3)  # put back from an older copy
    words = (
        rf"has read partition 0 of the journal folder {re.escape(str(tmp_path))} up to message 4, "
        r"but its next message is 3: .* was rewound"
    )
    with pytest.raises(JournalError, match=words):
        _latest(_reader(path=str(tmp_path)), at)
    careless = _reader(path=str(tmp_path), failOnDataLoss="false")
    assert _latest(careless, at)["0"] == 3


@pytest.mark.parametrize("starting", ["earliest", "latest"])
@pytest.mark.parametrize("was_empty", [False, True])
def test_what_a_partition_lost_before_it_was_first_seen_is_refused(
    tmp_path: Path, starting: str, was_empty: bool
) -> None:
    """A partition begins with the first connection that has its number, be it after the query."""
    (tmp_path / "journal.json").write_text(f'{{"format": 2, "id": "{JOURNAL}"}}')
    if not was_empty:
        _write(tmp_path, 5)
    options = {"path": str(tmp_path), "startingOffsets": starting}
    reader = _reader(**options)
    at = _latest(reader, reader.initialOffset())
    assert "1" not in at
    trimmed = Segment(1, 40)
    for number in (40, 41):
        trimmed.record(Sender(1, 1), [packet("a", b"%d" % number)])
    trimmed.write(tmp_path)
    words = rf"messages 0 to 39 of partition 1 of .*{re.escape(str(tmp_path))} are not in"
    with pytest.raises(JournalError, match=words):
        _latest(_reader(**options), at)
    careless = _reader(**options, failOnDataLoss="false")
    end = _latest(careless, at)
    (task,) = careless.partitions(at, end)
    assert [row for batch in careless.read(task) for row in batch.to_pydict()["seq"]] == [40, 41]


def test_a_beginning_that_has_yet_to_come_is_refused(tmp_path: Path) -> None:
    """A number that was kept is of another journal, or this one was begun anew."""
    _write(tmp_path, 5)
    options = {"path": str(tmp_path), "startingOffsets": '{"0": 6}'}
    words = r"option startingOffsets: partition 0 of .* has no message 6 yet, its next is 5"
    with pytest.raises(JournalError, match=words):
        _reader(**options).initialOffset()
    with pytest.raises(JournalError, match=words):
        JournalReader(Options.read(options)).partitions()
    careless = {**options, "failOnDataLoss": "false"}
    assert _reader(**careless).initialOffset()["0"] == 5
    assert JournalReader(Options.read(careless)).partitions() == []
    at_the_end = {**options, "startingOffsets": '{"0": 5}'}
    assert _reader(**at_the_end).initialOffset()["0"] == 5
    assert JournalReader(Options.read(at_the_end)).partitions() == []


def test_a_position_of_before_there_were_ids_is_taken(tmp_path: Path) -> None:
    _write(tmp_path, 5)
    reader = _reader(path=str(tmp_path))
    assert _latest(reader, {"0": 2}) == {"0": 5, "journals": {"0": str(JOURNAL)}}


def test_a_folder_with_segments_of_two_journals_is_refused(tmp_path: Path) -> None:
    _write(tmp_path, 5)
    segment = Segment(1, journal=uuid.uuid4())
    segment.record(Sender(1, 1), [packet("a", b"1")])
    segment.write(tmp_path)
    with pytest.raises(JournalError, match="has segments of several journals"):
        Folder(tmp_path).partitions()


def _publish(running: BrokerProcess, count: int) -> None:
    client = connect(f"fmqp://127.0.0.1:{running.ports['auto']}")
    with client:
        for number in range(count):
            client.publish("a", b"%d" % number)
        client.sync()


def _when_kept(reader: StreamReader, start: Offset, messages: dict[str, int]) -> Offset:
    """Return the latest offset when the journals have so many messages (with sync's echoes)."""
    found: list[Offset] = []

    def there() -> bool:
        found.append(_latest(reader, start))
        return all(found[-1].get(number, 0) >= count for number, count in messages.items())

    until(there)
    return found[-1]


def _urls(*brokers: BrokerProcess) -> str:
    return ",".join(f"127.0.0.1:{each.ports['auto']}" for each in brokers)


def test_brokers_that_change_places_or_journals_are_refused(tmp_path: Path) -> None:
    options = ("--set", "journal.flush_s=0.001", "--set", "journal.partitions=1")
    one_listens, other_listens = (
        ("--listen", f"auto://127.0.0.1:{port_for_later()}", *options) for _ in range(2)
    )
    with (
        broker("--data", str(tmp_path / "a"), *one_listens) as one,
        broker("--data", str(tmp_path / "b"), *other_listens) as other,
    ):
        _publish(one, 5)
        _publish(other, 50)
        reader = _reader(brokers=_urls(one, other), startingOffsets="earliest")
        start = reader.initialOffset()
        at = _when_kept(reader, start, {"0": 6, "10000": 51})
        tasks = reader.partitions(start, at)
        swapped = _reader(brokers=_urls(other, one))
        words = (
            rf"broker 1 \(http://{_urls(other)}\) is journal .*, which is now broker 2 .*: give "
            "them in the order they had"
        )
        with pytest.raises(JournalError, match=words):
            _latest(swapped, at)
        # A task that was planned, and the broker begins anew before it runs.
        assert other.end() == (0, "")
        shutil.rmtree(tmp_path / "b")
        with broker("--data", str(tmp_path / "b"), *other_listens) as new:
            _publish(new, 80)
            with pytest.raises(JournalError, match=r"answered 409: this is journal"):
                for task in tasks:
                    list(reader.read(task))
            with pytest.raises(JournalError, match=r"has journal .* now; it had journal"):
                _latest(reader, at)
            words = r"broker 2 .* has read journal .* there: it was begun anew"
            with pytest.raises(JournalError, match=words):
                _latest(_reader(brokers=_urls(one, new)), at)


def test_few_topics_are_sorted_out_by_the_broker(tmp_path: Path) -> None:
    options = ("--listen", "auto://127.0.0.1:0", "--set", "journal.partitions=1")
    with broker("--data", str(tmp_path / "data"), *options) as running:
        client = connect(f"fmqp://127.0.0.1:{running.ports['auto']}")
        with client:
            for number in range(300):
                client.publish(f"home/{number % 3}/lamp", b"%d" % number)
                if number % 50 == 0:
                    client.sync()
            client.sync()
        url = _urls(running)
        every = _reader(brokers=url, startingOffsets="earliest")
        start = every.initialOffset()
        at = _when_kept(every, start, {"0": 307})

        def rows(reader: StreamReader) -> list[tuple[int, str, bytes]]:
            found: list[tuple[int, str, bytes]] = []
            for task in reader.partitions(start, at):
                for batch in reader.read(task):
                    columns = batch.to_pydict()
                    found += zip(columns["seq"], columns["path"], columns["payload"], strict=True)
            return found

        few = _reader(brokers=url, topics="home/1/lamp, x/*")
        assert rows(few) == [row for row in rows(every) if row[1] == "home/1/lamp"]
        assert len(rows(few)) == 100
        sent = sum(
            len(data)
            for task in few.partitions(start, at)
            for data, _ in task.part.slices()  # type: ignore[attr-defined]
        )
        assert (
            0
            < sent
            < sum(
                len(data)
                for task in every.partitions(start, at)
                for data, _ in task.part.slices()  # type: ignore[attr-defined]
            )
            / 2
        )


def test_the_latest_twenty_losses_are_told(tmp_path: Path) -> None:
    """A query that goes on for ever, without ``failOnDataLoss``, remembers no more of them."""
    (tmp_path / "journal.json").write_text(f'{{"format": 2, "id": "{JOURNAL}"}}')
    trimmed = Segment(0, 40)
    trimmed.record(Sender(1, 1), [packet("a", b"x")])
    trimmed.write(tmp_path)
    reader = _reader(path=str(tmp_path), startingOffsets="earliest", failOnDataLoss="false")
    journals = {"0": str(JOURNAL)}
    for number in (*range(25), 24):
        _latest(reader, {"0": number, "journals": journals})
    newest = reader.reportLatestOffset()
    assert newest is not None
    told = [each.partition(" of ")[0] for each in newest["lost"]]
    assert told == [f"messages {number} to 39" for number in range(5, 25)]
