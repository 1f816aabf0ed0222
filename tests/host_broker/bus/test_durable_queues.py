"""Durable queues against naive ones, with an edge that keeps what the broker says.

Whatever ends the broker between two turns: nothing is lost, all is in order, and what a consumer
had is marked.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from host_broker.bus.queue import read_place
from host_broker.outputs import Outputs
from tests.host_broker.desk import Desk, Done
from tests.host_broker.protocols.micromsg2.peer import Peer, micromsg2_desk, told

_QUEUES = ("jobs", "a/b")
_LIMITS = {"max_queue_messages": 30}


class _Keeping(Desk):
    """A desk whose edge keeps what waits in queues, as the file would have it."""

    kept: dict[bytes, tuple[bytes, bytes]]

    def done(self, outputs: Outputs | None = None) -> Done:
        done = super().done(outputs)
        for key, entry in done.outputs.queued.items():
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
