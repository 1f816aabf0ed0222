"""Durable queues against naive ones, with an edge that keeps what the broker says.

Whatever ends the broker between two turns: nothing is lost, all is in order, and what a consumer
had is marked.
"""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from host_broker.bus.commands import (
    Acknowledge,
    Checkpoint,
    Consume,
    DeleteQueue,
    Disconnect,
    Enqueue,
    OpenQueue,
    Remember,
    Send,
    StopConsuming,
    Taker,
    Wake,
)
from host_broker.bus.queue import read_place, read_state, spell_place
from host_broker.outputs import Outputs
from tests.host_broker.desk import Desk, Done
from tests.host_broker.protocols.micromsg2.peer import Peer, micromsg2_desk, told
from tests.host_broker.scripted import Stage

_QUEUES = ("jobs", "a/b")
_LIMITS = {"max_queue_messages": 30}


class _Keeping(Desk):
    """A desk whose edge keeps what waits in queues, as the file would have it."""

    kept: dict[bytes, tuple[bytes, bytes]]

    def done(self, outputs: Outputs | None = None) -> Done:
        done = super().done(outputs)
        for key, entry in done.queued.items():
            if entry is None:
                self.kept.pop(key, None)
            else:
                self.kept[key] = entry
        return done


def _desk(kept: dict[bytes, tuple[bytes, bytes]]) -> _Keeping:
    desk = micromsg2_desk(bus=_LIMITS)
    desk.__class__ = _Keeping
    assert isinstance(desk, _Keeping)
    desk.kept = kept
    entries = [(key, *kept[key]) for key in sorted(kept, key=read_place)]
    waiting = [entry for entry in entries if read_place(entry[0])[1]]
    full = {read_place(key)[0] for key, *_ in waiting}
    found = desk.broker.restore_queues(each for each in entries if read_place(each[0])[0] in full)
    assert found == len(waiting)
    return desk


class DurableQueues(RuleBasedStateMachine):
    """Numbered messages; one consumer at a time and queue, which acknowledges some."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = _desk({})
        self.writer = Peer(self.desk, "batch-ack:max-count=1000")
        self.consumers: dict[str, Peer] = {}
        self.waiting: dict[str, list[int]] = {queue: [] for queue in _QUEUES}
        self.had: dict[str, set[int]] = {queue: set() for queue in _QUEUES}  # by a consumer
        self.heard: dict[str, list[int]] = {queue: [] for queue in _QUEUES}  # by the one now
        self.position = dict.fromkeys(_QUEUES, 0)  # the frame that the consumer has acknowledged
        self.number = 0

    @rule(queue=st.sampled_from(_QUEUES), count=st.integers(1, 12))
    def put(self, queue: str, count: int) -> None:
        """Publish: what is acknowledged is there."""
        if len(self.waiting[queue]) + count > _LIMITS["max_queue_messages"]:
            return
        numbers = range(self.number + 1, self.number + count + 1)
        frames = [self.writer.spell(queue, b"%d" % n, f"n:N{n}") for n in numbers]
        assert self.writer.acked(self.writer.say(b"".join(frames))) == [self.writer.sequence]
        self.number += count
        self.waiting[queue] += numbers
        self._hear(queue)

    @rule(queue=st.sampled_from(_QUEUES), window=st.sampled_from([1, 3, 10]))
    def consume(self, queue: str, window: int) -> None:
        """A consumer comes, in the place of the one before."""
        self.leave(queue)
        peer = self.consumers[queue] = Peer(self.desk, f"pubsub;batch-ack:max-count={window}")
        self._take(queue, peer.subscribe(queue))

    @rule(queue=st.sampled_from(_QUEUES))
    def leave(self, queue: str) -> None:
        """The consumer hangs up; what it had and did not acknowledge comes again."""
        peer = self.consumers.pop(queue, None)
        if peer is not None:
            peer.close()
        self.heard[queue] = []
        self.position[queue] = 0

    @rule(queue=st.sampled_from(_QUEUES), part=st.floats(0, 1))
    def acknowledge(self, queue: str, part: float) -> None:
        """The consumer is done with some of what it has heard."""
        peer, heard = self.consumers.get(queue), self.heard[queue]
        count = round(len(heard) * part)
        if peer is None or not count:
            return
        done, self.heard[queue] = heard[:count], heard[count:]
        self.position[queue] += count
        for number in done:
            self.waiting[queue].remove(number)
        self._take(queue, peer.acknowledge(self.position[queue]))

    @rule()
    def kill(self) -> None:
        """Another broker begins with what the edge has."""
        self.desk = _desk(self.desk.kept)
        self.writer = Peer(self.desk, "batch-ack:max-count=1000")
        self.consumers.clear()
        self.heard = {queue: [] for queue in _QUEUES}
        self.position = dict.fromkeys(_QUEUES, 0)

    def _hear(self, queue: str) -> None:
        if queue in self.consumers:
            self._take(queue, self.consumers[queue].heard())

    def _take(self, queue: str, events: list[Any]) -> None:
        for _, destination, properties, payload in told(events):
            number = int(payload)
            assert destination == queue
            assert properties.split(";")[0] == f"n:N{number}"
            assert "redelivered:N1" in properties or number not in self.had[queue]
            self.had[queue].add(number)
            self.heard[queue].append(number)
        heard = self.heard[queue]
        assert heard == self.waiting[queue][: len(heard)]

    @invariant()
    def what_is_kept_is_what_waits(self) -> None:
        """No more and no less."""
        for queue in _QUEUES:
            places = map(read_place, self.desk.kept)
            kept = sorted(number for name, number in places if name == queue.encode() and number)
            assert len(kept) == len(self.waiting[queue])


TestDurableQueues = DurableQueues.TestCase
TestDurableQueues.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


_Q = b"work"


def _stored(done: Done) -> dict[tuple[bytes, int], bool]:
    """What is to be stored (True) and forgotten, but for the queue itself."""
    queued = done.queued
    places = {read_place(key): entry is not None for key, entry in queued.items()}
    return {place: stays for place, stays in places.items() if place[1]}


def test_what_is_deleted_is_forgotten_and_its_numbers_are_not_used_again() -> None:
    """Or a queue of the same name would have what the other one had, after a kill at the wrong
    moment."""
    stage = Stage()
    client = stage.enter()
    put = Enqueue(_Q, b"x")
    assert _stored(stage.do(client, put, put)) == {(_Q, 1): True, (_Q, 2): True}
    stage.do(client, Consume(_Q, 1))
    done = stage.do(client, DeleteQueue(_Q), put)
    assert _stored(done) == {(_Q, 1): False, (_Q, 2): False, (_Q, 3): True}
    assert done.queued[spell_place(_Q, 0)] is not None  # the new one
    done = stage.do(client, DeleteQueue(_Q))
    assert _stored(done) == {(_Q, 3): False}
    assert done.queued[spell_place(_Q, 0)] is None


def test_without_acks_a_message_is_done_with_when_it_is_sent() -> None:
    """Or when its consumer leaves; until then a kill would lose it."""
    stage = Stage()
    client, other = stage.enter(), stage.enter()
    stage.slow.add(client)
    stage.do(client, Consume(_Q, 1, acknowledged=False))
    assert _stored(stage.do(other, Enqueue(_Q, b"x"))) == {(_Q, 1): True}
    assert _stored(stage.do(other, Enqueue(_Q, b"y"))) == {(_Q, 2): True}
    assert stage.queued(client) == [b"x", b"y"]
    stage.broker.proceed(client, stage.now)
    assert _stored(stage.done()) == {(_Q, 1): False, (_Q, 2): False}
    assert _stored(stage.do(other, Enqueue(_Q, b"z"))) == {(_Q, 3): True}
    assert _stored(stage.do(client, StopConsuming(_Q))) == {(_Q, 3): False}


def test_what_is_on_its_way_is_forgotten_when_its_queue_is_deleted() -> None:
    stage = Stage()
    client, other = stage.enter(), stage.enter()
    stage.slow.add(client)
    stage.do(client, Consume(_Q, 1, acknowledged=False))
    stage.do(other, Enqueue(_Q, b"x"))
    assert _stored(stage.do(other, DeleteQueue(_Q))) == {(_Q, 1): False}


@pytest.mark.parametrize("marks", [False, True])
def test_what_is_not_sent_when_the_broker_stops_waits_again(marks: bool) -> None:
    """What was sent until the end does not; also of those who hang up meanwhile."""
    stage = Stage()
    other, early, hasty, quick, slow, leaving, stuck = (stage.enter() for _ in range(7))
    if marks:
        stage.do(other, OpenQueue(_Q), Checkpoint(_Q, "set", b"mark", 0))
    consumers = (early, hasty, quick, slow, leaving, stuck)
    stage.slow.update(consumers)
    for client in consumers:
        stage.do(client, Consume(_Q, 1, acknowledged=False))
    stage.do(other, *[Enqueue(_Q, b"%d" % number) for number in range(1, 7)])
    stage.broker.stopping()
    stage.broker.closed(early, stage.now, is_sent=True)
    stage.broker.closed(hasty, stage.now, is_sent=False)
    stage.broker.sent_all({quick, leaving})
    stage.session(other).last = [Wake(leaving), Wake(stuck)]  # as fq's other connection does
    for client in (leaving, stuck):
        stage.session(client).due = [StopConsuming(_Q)]
    stage.broker.stop(stage.now)
    stage.broker.sent_all({early, hasty, quick})
    queued = stage.done().queued
    forgotten = {read_place(key)[1] for key, entry in queued.items() if entry is None}
    if marks:
        entry = queued[spell_place(_Q, 0)]
        assert entry is not None
        _, done, _, _ = read_state(entry[1])
        assert (forgotten, done) == (set(), 1)  # one of those behind it may come again
    else:
        assert forgotten == {1, 3, 5}


def test_a_will_that_is_sent_at_a_stop_does_not_come_again() -> None:
    """Its consumer leaves, as fq's do, before it is known that the socket took it; one that does
    not take it gets it from the next broker."""
    stage = Stage()
    board, other, quick, stuck = (stage.enter() for _ in range(4))
    stage.slow.update((quick, stuck))
    for client in (quick, stuck):
        stage.do(client, Consume(_Q, 1, acknowledged=False))
        stage.session(client).due = [StopConsuming(_Q)]
    stage.session(board).last = [Enqueue(_Q, b"gone"), Enqueue(_Q, b"away")]
    stage.session(other).last = [Wake(quick), Wake(stuck)]
    stage.broker.stopping()
    stage.broker.stop(stage.now)
    assert _stored(stage.done()) == {(_Q, 1): True, (_Q, 2): True}
    queue = stage.broker.queues[_Q]
    assert (queue.consumers, queue.numbers, queue.done) == ([], [1, 2], 0)
    stage.broker.sent_all({quick})
    assert _stored(stage.done()) == {(_Q, 1): False}
    assert (queue.numbers, queue.done) == ([2], 1)


def test_what_is_acknowledged_while_its_queue_is_deleted_is_forgotten() -> None:
    """Or it would be on file for ever, and come again in another queue of this name."""
    stage = Stage()
    client, other = stage.enter(), stage.enter()
    stage.do(other, Enqueue(_Q, b"x"))
    stage.session(client).reply = lambda given: (
        Acknowledge(_Q, [given.messages[0].number]),
        DeleteQueue(_Q),
    )
    done = stage.do(client, Consume(_Q, 1))
    assert _stored(done) == {(_Q, 1): False}
    assert done.queued[spell_place(_Q, 0)] is None


def test_two_consumers_are_sent_what_they_were_given_each_in_its_time() -> None:
    stage = Stage()
    first, second, other = stage.enter(), stage.enter(), stage.enter()
    stage.slow |= {first, second}
    for client in (first, second):
        stage.do(client, Consume(_Q, 1, acknowledged=False))
    stage.do(other, *[Enqueue(_Q, b"%d" % number) for number in range(1, 5)])
    assert stage.queued(first) == [b"1", b"3"]
    stage.broker.proceed(second, stage.now)
    assert _stored(stage.done()) == {(_Q, 2): False, (_Q, 4): False}
    assert stage.broker.queues[_Q].numbers == [1, 3]
    assert _stored(stage.do(other, Enqueue(_Q, b"5"))) == {(_Q, 5): True}
    assert _stored(stage.close(first)) == {(_Q, 1): False, (_Q, 3): False, (_Q, 5): False}


def test_what_comes_and_is_acknowledged_in_one_turn_is_never_stored() -> None:
    stage = Stage()
    client, other = stage.enter(), stage.enter()
    stage.do(client, Consume(_Q, 1))
    stage.session(client).reply = lambda given: (Acknowledge(_Q, [given.messages[0].number]),)
    assert _stored(stage.do(other, Enqueue(_Q, b"x"), Enqueue(_Q, b"y"))) == {}
    assert len(stage.broker.queues[_Q]) == 0


def test_what_is_dropped_is_forgotten() -> None:
    """The oldest, of a queue that drops."""
    stage = Stage()
    client = stage.enter()
    stage.do(client, OpenQueue(_Q, "drop-oldest", max_messages=2), Enqueue(_Q, b"1"))
    done = stage.do(client, Enqueue(_Q, b"2"), Enqueue(_Q, b"3"))
    assert _stored(done) == {(_Q, 1): False, (_Q, 2): True, (_Q, 3): True}


def test_what_is_given_to_nobody_after_all_is_not_forgotten() -> None:
    """Who was to have it left because of what another consumer has said, which put more."""
    stage = Stage()
    holder, one, two = stage.enter(), stage.enter(), stage.enter()
    stage.do(holder, Enqueue(_Q, b"1"), Enqueue(_Q, b"2"), Consume(_Q, 2))
    for taker in (one, two):
        stage.do(taker, Consume(_Q, 1, acknowledged=False))
    stage.session(one).reply = lambda given: (
        Disconnect("by the other", connection=two),
        StopConsuming(_Q),
        Enqueue(_Q, b"3"),
    )
    done = stage.do(holder, StopConsuming(_Q))  # one to each
    assert stage.queued(one) == [b"1"]
    assert stage.queued(two) == []
    assert _stored(done) == {(_Q, 1): False, (_Q, 3): True}
    stage.do(holder, Consume(_Q, 2))
    assert stage.queued(holder)[-2:] == [b"2", b"3"]


@pytest.mark.parametrize(
    ("how", "journalled"),
    [({"permanent": False}, True), ({"durable": False}, True), ({}, False)],
)
def test_other_queues_are_in_memory(how: dict[str, bool], journalled: bool) -> None:
    """One that goes with its consumers, one that is not to outlive the broker; all, without a place
    for them."""
    stage = Stage(journalled=journalled)
    client = stage.enter()
    done = stage.do(client, OpenQueue(_Q, **how), Consume(_Q, 9), Enqueue(_Q, b"x"))
    assert done.queued == {}
    assert not done.queued_first
    assert stage.queued(client) == [b"x"]


def test_a_queue_comes_back_as_it_was_opened() -> None:
    """With its policy and its limits; those of the settings are those of today."""
    stage = Stage()
    client = stage.enter()
    opened = OpenQueue(_Q, "drop-newest", max_messages=3)
    done = stage.do(client, opened, Enqueue(_Q, b"1"), Enqueue(b"plain", b"p"))
    again = Stage(bus={"max_queue_messages": 7, "max_queues": 1})
    entries = sorted(done.queued.items(), key=lambda entry: read_place(entry[0]))
    assert again.broker.restore_queues((key, *entry) for key, entry in entries if entry) == 2
    queues = again.broker.queues
    assert (queues[_Q].policy, queues[_Q].max_messages) == ("drop-newest", 3)
    assert (queues[b"plain"].policy, queues[b"plain"].max_messages) == ("block", 7)
    taker = again.enter()
    again.do(taker, Consume(_Q, 9))
    ((delivery,),) = [again.given(taker)]
    assert [(each.number, each.body, each.redelivered) for each in delivery.messages] == [
        (1, b"1", False)
    ]


def test_nobody_else_that_acknowledges_consumes_beside_a_taker() -> None:
    """What it gave back would come behind what the taker has, and count as kept. Nor can the queue
    go back to a checkpoint: its numbers would, too."""
    stage = Stage()
    client, other = stage.enter(), stage.enter()
    said: list[str] = []

    def answer(refusal: str) -> list[Any]:
        said.append(refusal)
        return []

    stage.do(client, OpenQueue(_Q, durable=True), Checkpoint(_Q, "set", b"c"))
    stage.do(other, Checkpoint(_Q, "go back", b"c", answer=answer))
    stage.do(client, Consume(_Q, 9, taker=Taker(b"t", 0), answer=answer))
    stage.do(other, Consume(_Q, 9, answer=answer))
    stage.do(other, Checkpoint(_Q, "go back", b"c", answer=answer))
    assert said == ["", "", "queue.taker", "queue.taker"]


def test_what_is_remembered_is_there_after_a_restart() -> None:
    """It is stored with what comes to queues, and is none of their messages; the peer hears nothing
    before. Without a place for it nothing is remembered."""
    stage = Stage()
    client = stage.enter()
    stage.do(client, Remember(b"p/a", b"0"), Remember(b"p/b", b"0"))
    said = Remember(b"p/a", b"1"), Remember(b"p/b", None), Enqueue(_Q, b"x"), Send(b"!")
    done = stage.do(client, *said)
    assert done.kept_first == {client}
    assert not done.queued_first
    stored = sorted((key, *entry) for key, entry in done.queued.items() if entry)
    assert len(stored) == 3  # one is the queue itself
    again = Stage()
    assert again.broker.restore_queues(stored) == 1
    assert again.broker._remembered == {b"p/a": b"1"}
    assert list(again.broker.queues) == [_Q]
    nowhere = Stage(journalled=False)
    done = nowhere.do(nowhere.enter(), Remember(b"p/a", b"1"))
    assert (done.queued, done.kept_first) == ({}, set())


@pytest.mark.parametrize(
    "entries",
    [
        [(b"short", b"", b"")],
        [(spell_place(b"q", 0), b"block 0", b"0")],
        [(spell_place(b"q", 0), b"maybe 0 0", b"0")],
        [(spell_place(b"q", 0), b"block 0 0", b"many")],
        [(spell_place(b"q", 1), b"\0\1\0\0\0\1qx", b"")],
        [(spell_place(b"q", 0), b"block 0 0", b"0"), (spell_place(b"q", 1), b"no packet", b"")],
        [
            (spell_place(b"q", 0), b"block 0 0", b"0"),
            (spell_place(b"q", 2), b"\0\1\0\0\0\1qx", b""),
            (spell_place(b"q", 1), b"\0\1\0\0\0\1qx", b""),
        ],
    ],
)
def test_what_cannot_be_is_not_taken_back(entries: list[tuple[bytes, bytes, bytes]]) -> None:
    with pytest.raises(ValueError):
        Stage().broker.restore_queues(entries)
