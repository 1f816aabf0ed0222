"""The past: from the journal by its index, and from memory, against a plain list."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from host_broker.bus.publication import (
    RETAINED,
    WITH_PROPERTIES,
    pack,
    pack_with_properties,
    unpack,
    unpack_with_properties,
)
from host_broker.bus.topic_filter import TopicFilter
from host_broker.net import history
from host_broker.net.answerer import LATER
from host_broker.net.history import Past, Recent
from host_broker.net.journal.assembly import Assembler
from host_broker.net.journal.identity import identity_of
from host_broker.net.journal.reader import JournalReader
from host_broker.net.journal.segment import BLOCK_BYTES, Partition
from host_broker.outputs import Record
from host_broker.questions import AskHistory, NoAnswer, PastPublication
from host_broker.settings import JournalSettings
from tests.host_broker.net.broker_process import until
from tests.host_broker.net.served import served
from tests.host_broker.protocols.umq.peer import joined, umq_desk

_MS = 1_000_000
_ALWAYS = 1 << 53


def _turns(count: int, seed: int = 1) -> list[tuple[int, list[Record]]]:
    """Turns of several clients, at rising times: runs, single ones, some with properties."""
    chance = random.Random(seed)
    turns = []
    number = 0
    for turn in range(count):
        records = []
        for _ in range(chance.randrange(1, 4)):
            client = chance.randrange(1, 6)
            if chance.random() < 0.2:
                body = pack(RETAINED, b"b/%d" % (number % 3), b"%d" % number)
                record = Record(
                    client,
                    2,
                    f"board{client}",
                    1,
                    pack_with_properties(body, {"unit": b"C"}),
                    WITH_PROPERTIES,
                )
                number += 1
            else:
                size = chance.randrange(1, 30)
                packets = []
                for _ in range(size):
                    filler = b"x" * chance.randrange(300)
                    packets.append(pack(0, b"a/%d" % (number % 7), b"%d " % number + filler))
                    number += 1
                record = Record(client, 1, "", size, b"".join(packets))
            records.append(record)
        turns.append(((1000 + turn * 5) * _MS, records))
    return turns


def _plain(turns: Sequence[tuple[int, list[Record]]], pattern: str) -> list[PastPublication]:
    """All that fits a pattern, by time; of one time in any order."""
    wanted = TopicFilter([pattern])
    found = []
    for time_ns, records in turns:
        for record in records:
            if record.encoding == WITH_PROPERTIES:
                for flags, topic, body, properties in unpack_with_properties(record.body):
                    kept = bool(flags & RETAINED)
                    found.append(PastPublication(topic, time_ns // _MS, body, kept, properties))
            else:
                for flags, topic, body in unpack(record.body):
                    kept = bool(flags & RETAINED)
                    found.append(PastPublication(topic, time_ns // _MS, body, kept))
    return [each for each in found if wanted.matches(each.topic.decode())]


def _same(found: Sequence[PastPublication], expected: Sequence[PastPublication]) -> None:
    """Equal, but for the order of what was read in one millisecond."""
    assert [each.at_ms for each in found] == [each.at_ms for each in expected]
    assert sorted(found, key=_order) == sorted(expected, key=_order)


def _order(each: PastPublication) -> tuple[int, bytes]:
    return each.at_ms, each.body


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[JournalReader, list]:
    """A journal of several partitions and segments, and what is in it."""
    folder: Path = tmp_path_factory.mktemp("journal")
    turns = _turns(600)
    settings = JournalSettings(partitions=3, segment_bytes=200_000)
    identity = identity_of(folder)
    partitions = [Partition(folder, number, identity, 7, settings) for number in range(3)]
    for start in range(0, len(turns), 20):
        assembler = Assembler(3, BLOCK_BYTES)
        for time_ns, records in turns[start : start + 20]:
            assembler.add(time_ns, records)
        for block in assembler.take(1 << 40):
            partitions[block.partition].write([block])
    return JournalReader(folder, identity, partitions), turns


def _ask(reader: JournalReader, question: AskHistory) -> history.History:
    return Past(reader, Recent(0)).looker(question)()


@pytest.mark.parametrize("pattern", ["a/3", "a/*", "b/1", "*/1", "nobody"])
@pytest.mark.parametrize("last", [1, 10, 500])
def test_the_last_ones_of_a_journal(written: tuple, pattern: str, last: int) -> None:
    reader, turns = written
    expected = _plain(turns, pattern)
    found = _ask(reader, AskHistory(pattern, last=last, max_bytes=1 << 30))
    assert len(found.publications) == min(last, len(expected))
    assert found.more == (len(expected) > last)
    assert found.source == "journal"
    # Those at the edge may be others of the same millisecond.
    times = [each.at_ms for each in found.publications]
    assert times == [each.at_ms for each in expected[-last:]]
    assert all(each in expected for each in found.publications)


@pytest.mark.parametrize("pattern", ["a/3", "a/*", "b/1"])
@pytest.mark.parametrize(("start", "end"), [(0, 900), (1000, 1200), (3000, 3001), (3500, 99_999)])
def test_a_time_of_a_journal(written: tuple, pattern: str, start: int, end: int) -> None:
    reader, turns = written
    expected = [each for each in _plain(turns, pattern) if start <= each.at_ms < end]
    question = AskHistory(pattern, from_ms=start, to_ms=end, limit=100_000, max_bytes=1 << 30)
    found = _ask(reader, question)
    _same(found.publications, expected)
    assert not found.more
    few = _ask(reader, replace(question, limit=3))
    assert [each.at_ms for each in few.publications] == [each.at_ms for each in expected[:3]]
    assert few.more == (len(expected) > 3)


def test_of_each_topic_the_latest(written: tuple) -> None:
    reader, turns = written
    latest = {each.topic: each for each in _plain(turns, "a/*")}
    found = _ask(reader, AskHistory("a/*", last=100, each=True, max_bytes=1 << 30))
    assert len(found.publications) == len(latest) == 7
    assert {each.topic: each.at_ms for each in found.publications} == {
        topic: each.at_ms for topic, each in latest.items()
    }


def test_answers_are_bounded_in_bytes_and_the_search_in_what_it_looks_at(
    written: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, turns = written
    some = _ask(reader, AskHistory("a/*", last=1000, max_bytes=5000))
    assert 1 < len(some.publications) < 100
    assert some.more
    assert sum(len(each.body) for each in some.publications) <= 5000
    one = _ask(reader, AskHistory("a/*", last=1000, max_bytes=1))
    assert len(one.publications) == 1
    monkeypatch.setattr(history, "_LOOKED_AT_BYTES", 50_000)
    nothing = _ask(reader, AskHistory("nobody", last=10))
    assert (nothing.publications, nothing.more) == ([], True)
    begun = _ask(reader, AskHistory("a/*", from_ms=0, to_ms=_ALWAYS, limit=100_000))
    assert begun.more
    assert len(begun.publications) < len(_plain(turns, "a/*"))


def test_an_empty_journal_has_no_past(tmp_path: Path) -> None:
    reader = JournalReader(tmp_path, identity_of(tmp_path))
    for question in (AskHistory("a", last=5), AskHistory("a", to_ms=_ALWAYS, limit=5)):
        assert _ask(reader, question) == history.History([], "journal", more=False)


# ---- memory ----


def _remembered(turns: Sequence[tuple[int, list[Record]]], limit: int) -> Recent:
    recent = Recent(limit)
    for time_ns, records in turns:
        recent.add(time_ns, records)
    return recent


@pytest.mark.parametrize("pattern", ["a/3", "a/*", "b/1", "nobody"])
def test_memory_says_what_a_journal_would(pattern: str) -> None:
    turns = _turns(200)
    recent = _remembered(turns, 1 << 30)
    expected = _plain(turns, pattern)
    last = recent.looker(AskHistory(pattern, last=20, max_bytes=1 << 30))()
    assert list(last.publications) == expected[-20:]
    assert (last.source, last.more) == ("memory", len(expected) > 20)
    question = AskHistory(pattern, from_ms=1100, to_ms=1500, limit=1 << 20, max_bytes=1 << 30)
    some = recent.looker(question)()
    assert list(some.publications) == [each for each in expected if 1100 <= each.at_ms < 1500]


@pytest.mark.parametrize(("topic", "same"), [("", ["*", "*/*"]), ("a", ["a", "a/*"])])
def test_what_is_beneath_a_topic(written: tuple, topic: str, same: list[str]) -> None:
    """``**`` of UMQ: in the journal and in memory."""
    reader, turns = written
    expected = [each for pattern in same for each in _plain(turns, pattern)]
    question = AskHistory(topic, to_ms=_ALWAYS, limit=1 << 20, max_bytes=1 << 30, beneath=True)
    assert len(expected) > 100
    _same(_ask(reader, question).publications, expected)
    _same(_remembered(turns, 1 << 30).looker(question)().publications, expected)
    last = _ask(reader, replace(question, limit=0, last=7))
    assert len(last.publications) == 7


def test_memory_is_bounded_and_the_oldest_go() -> None:
    """bus.history_bytes: and it says that there may have been more."""
    turns = _turns(500)
    recent = _remembered(turns, 100_000)
    assert recent.size <= 100_000
    found = recent.looker(AskHistory("a/*", last=1 << 20, max_bytes=1 << 30))()
    expected = _plain(turns, "a/*")
    assert 0 < len(found.publications) < len(expected)
    assert list(found.publications) == expected[-len(found.publications) :]
    assert found.more
    nothing = Recent(0)
    nothing.add(1, turns[0][1])
    assert nothing.looker(AskHistory("a/*", last=5))().publications == []
    assert nothing.size == 0


def test_what_comes_while_somebody_looks_is_in_nobodys_way() -> None:
    turns = _turns(50)
    recent = _remembered(turns, 1 << 30)
    look = recent.looker(AskHistory("a/*", last=1 << 20, max_bytes=1 << 30))
    for time_ns, records in _turns(50, seed=2):
        recent.add(time_ns, records)
    assert list(look().publications) == _plain(turns, "a/*")


# ---- what the edge is asked ----


def test_a_question_that_cannot_be_looked_for_is_answered_all_the_same() -> None:
    """Whatever fails there: whoever asked is told, and the log has it."""

    class Failing:
        def at_once(self, question: object) -> object:
            return LATER

        async def look(self, question: object) -> object:
            raise RuntimeError("a mistake of ours")

    with served() as running:
        answers: list[object] = []
        running.server.answerer = Failing()  # type: ignore[assignment]
        running.broker.answered = lambda number, answer, now: answers.append(answer)  # type: ignore[method-assign]
        running.call(lambda: running.server._answer_question(1, AskHistory("a")))
        until(lambda: bool(answers))
        (answer,) = answers
        assert isinstance(answer, NoAnswer)
        (error,) = running.errors
        assert "could not be answered" in error["message"]
        running.errors.clear()
    client = joined(umq_desk())
    client.say('C1:["history", "a"]')
    client.desk.broker.answered(client.desk.questions.pop()[0], answer, client.desk.now)
    client.desk.done()
    assert str(client.heard()[0]).startswith("E1:8 ")
