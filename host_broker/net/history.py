"""Publications of the past, of one topic or pattern: from the journal, or from memory without one.

The journal is looked at from its end or from a time on, by its index; blocks are read, and what is
not wanted of them is left out by the same loop as for readers elsewhere. Memory has the records of
the latest turns, whole, so that to remember costs no look at any publication.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from host_broker.bus.publication import (
    PACKETS,
    RETAINED,
    unpack,
    unpack_with_properties,
)
from host_broker.bus.topic_filter import TopicFilter
from host_broker.net.journal.format import BLOCK_HEADER_LENGTH, take_block, take_column
from host_broker.net.journal.reader import Beyond, JournalReader, Trimmed
from host_broker.net.journal.selection import Selection
from host_broker.outputs import Buffer, Record
from host_broker.questions import AskHistory, History, PastPublication

_LOOKED_AT_BYTES = 64 * 1024 * 1024  # of the journal, for one answer
_STEP_BYTES = 1024 * 1024  # of it, at once
_RECORD_BYTES = 200  # a record costs beyond its body
_NS_A_MS = 1_000_000


@dataclass(slots=True)
class Recent:
    """The records of the latest turns, at most ``limit`` bytes of them; 0: none."""

    limit: int
    size: int = 0
    has_forgotten: bool = False
    _turns: deque[tuple[int, int, Buffer, int]] = field(default_factory=deque)

    def add(self, time_ns: int, records: Sequence[Record]) -> None:
        """Remember what a turn brought."""
        turns = self._turns
        for record in records:
            size = len(record.body) + _RECORD_BYTES
            turns.append((time_ns, record.encoding, record.body, size))
            self.size += size
        while self.size > self.limit and turns:
            self.size -= turns.popleft()[3]
            self.has_forgotten = True

    def looker(self, question: AskHistory) -> Callable[[], History]:
        """Return what looks, in any thread, into what there is now."""
        turns, more = list(self._turns), self.has_forgotten

        def look() -> History:
            collected = Collected(question)
            wanted = _Wanted(question)
            for time_ns, encoding, body, _ in reversed(turns) if question.last else turns:
                at_ms = time_ns // _NS_A_MS
                if not question.last and not question.from_ms <= at_ms < question.to_ms:
                    continue
                found = list(wanted.of(body, encoding, at_ms))
                if not collected.take(reversed(found) if question.last else found):
                    break
            return collected.answer("memory", more=question.last > 0 and more)

        return look


class _Wanted:
    """Takes out of runs what is of a pattern."""

    def __init__(self, question: AskHistory) -> None:
        self._filter = TopicFilter([question.topic], beneath=question.beneath)
        self._known: dict[bytes, bool] = {}

    def of(self, body: Buffer, encoding: int, at_ms: int) -> Iterator[PastPublication]:
        """Give those of a record that are wanted."""
        if encoding == PACKETS:
            for flags, topic, payload in unpack(body):
                if self._is_wanted(topic):
                    yield PastPublication(topic, at_ms, payload, bool(flags & RETAINED))
            return
        for flags, topic, payload, properties in unpack_with_properties(body):
            if self._is_wanted(topic):
                yield PastPublication(topic, at_ms, payload, bool(flags & RETAINED), properties)

    def _is_wanted(self, topic: bytes) -> bool:
        wanted = self._known.get(topic)
        if wanted is None:
            if len(self._known) > 10_000:
                self._known.clear()
            wanted = self._filter.matches(topic.decode(errors="replace"))
            self._known[topic] = wanted
        return wanted


class Collected:
    """Publications that were found, until these are enough."""

    def __init__(self, question: AskHistory) -> None:
        self._question = question
        self._most = question.last or question.limit
        self._found: list[PastPublication] = []
        self._topics: set[bytes] = set()
        self._bytes = 0
        self._more = False

    def take(self, publications: Iterator[PastPublication] | Sequence[PastPublication]) -> bool:
        """Take some, the latest first if the last ones are wanted; False: these are enough."""
        question = self._question
        for each in publications:
            if question.each and each.topic in self._topics:
                continue
            size = len(each.topic) + len(each.body)
            if len(self._found) >= self._most or (
                self._found and self._bytes + size > question.max_bytes
            ):
                self._more = True
                return False
            self._topics.add(each.topic)
            self._bytes += size
            self._found.append(each)
        return True

    def answer(self, source: str, *, more: bool) -> History:
        """Return them, the oldest first; ``more``: there was more to look at."""
        found = self._found[::-1] if self._question.last else self._found
        return History(found, source, self._more or more)


class Past:
    """Where publications of the past are looked for: in the journal, else in memory."""

    def __init__(self, reader: JournalReader | None, recent: Recent) -> None:
        self._reader = reader
        self._recent = recent

    def looker(self, question: AskHistory) -> Callable[[], History]:
        """Return what looks, in any thread; it raises ``JournalError``, ``OSError``."""
        reader = self._reader
        if reader is None:
            return self._recent.looker(question)
        return lambda: _look_into(reader, question)


def _look_into(reader: JournalReader, question: AskHistory) -> History:
    budget = [_LOOKED_AT_BYTES]
    streams = []
    for state in reader.partitions():
        if question.last:
            streams.append(_backwards(reader, state.partition, question, budget))
        else:
            streams.append(_forwards(reader, state.partition, question, budget))
    collected = Collected(question)
    # Each partition in order: together they are, by the time at which the broker read them.
    merged = heapq.merge(*streams, key=lambda each: each.at_ms, reverse=question.last > 0)
    collected.take(merged)
    return collected.answer("journal", more=budget[0] <= 0)


def _forwards(
    reader: JournalReader, partition: int, question: AskHistory, budget: list[int]
) -> Iterator[PastPublication]:
    """Give what is wanted of a partition from a time on."""
    selection = Selection([question.topic], beneath=question.beneath)
    number = reader.since(partition, question.from_ms * _NS_A_MS)
    while budget[0] > 0:
        try:
            found = reader.slice(partition, number, _STEP_BYTES)
            if found is None:
                return
            budget[0] -= found.end - found.start
            selected = reader.select(found, selection, found.end - found.start + 1)
        except Trimmed as trimmed:
            number = trimmed.first
            continue
        except Beyond:
            return
        for each in _publications(selected.blocks):
            if each.at_ms >= question.to_ms:
                return
            if each.at_ms >= question.from_ms:
                yield each
        number = selected.next


def _backwards(
    reader: JournalReader, partition: int, question: AskHistory, budget: list[int]
) -> Iterator[PastPublication]:
    """Give what is wanted of a partition, the latest first."""
    selection = Selection([question.topic], beneath=question.beneath)
    for index in reversed(reader.indexes(partition)):
        places = [*zip(index.numbers, index.offsets, strict=False)]
        until, end = index.next, index.end
        while until > index.first:
            if budget[0] <= 0:
                return
            # The last known place that is a step before the end, else the beginning.
            at = len(places) - 1
            while at > 0 and (places[at][0] >= until or end - places[at][1] < _STEP_BYTES):
                at -= 1
            first = places[at][0] if places else index.first
            budget[0] -= max(1, end - (places[at][1] if places else 0))
            found: list[PastPublication] = []
            number = first
            while number < until:
                try:
                    piece = reader.slice(partition, number, _STEP_BYTES, until)
                    if piece is None:
                        break
                    selected = reader.select(piece, selection, piece.end - piece.start + 1)
                except (Trimmed, Beyond):
                    break
                found += _publications(selected.blocks, until)
                number = selected.next
            yield from reversed(found)
            until = first
            end = places[at][1] if places else 0
            del places[at:]


def _publications(blocks: bytes, until: int | None = None) -> Iterator[PastPublication]:
    """Give the messages of selected blocks, those with numbers below ``until``."""
    position = 0
    view = memoryview(blocks)
    while position + BLOCK_HEADER_LENGTH <= len(blocks):
        block = take_block(view, position)
        if block is None:
            return
        records, messages = block.records, block.messages
        columns = position + BLOCK_HEADER_LENGTH
        times = take_column("Q", view, columns, records)
        counts = take_column("I", view, columns + 12 * records, records)
        encodings = bytes(view[columns + 19 * records : columns + 20 * records])
        lengths_at = columns + 20 * records
        lengths = take_column("I", view, lengths_at, messages)
        offsets = take_column("I", view, lengths_at + 4 * messages, messages)
        at, number = position + block.bodies, 0
        for record, count in enumerate(counts):
            at_ms = times[record] // _NS_A_MS
            for _ in range(count):
                data = view[at : at + lengths[number]]
                at += lengths[number]
                if until is None or block.first + offsets[number] < until:
                    yield _one(data, encodings[record], at_ms)
                number += 1
        position += block.length


def _one(data: memoryview, encoding: int, at_ms: int) -> PastPublication:
    if encoding == PACKETS:
        flags, topic, body = next(unpack(data))
        return PastPublication(topic, at_ms, body, bool(flags & RETAINED))
    flags, topic, body, properties = next(unpack_with_properties(data))
    return PastPublication(topic, at_ms, body, bool(flags & RETAINED), properties)
