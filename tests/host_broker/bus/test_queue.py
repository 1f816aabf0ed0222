"""The queue against a naive one: order, one consumer each, credit, redelivery, policies, limits."""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from host_broker.bus.delivery import Filter
from host_broker.bus.publication import NO_PROPERTIES, Properties
from host_broker.bus.queue import QUEUE_POLICIES, Queue, QueuePolicy

BIG = 1 << 30


def queue(
    policy: QueuePolicy = "block", max_messages: int = BIG, max_bytes: int = BIG, **more: bool
) -> Queue:
    permanent = more.get("permanent", True)
    return Queue(b"q", policy, permanent=permanent, max_messages=max_messages, max_bytes=max_bytes)


def put(made: Queue, *bodies: bytes) -> list[bool]:
    return [made.put(b"t", body, NO_PROPERTIES) for body in bodies]


def assigned(made: Queue) -> dict[int, list[bytes]]:
    return {who: [each.body for each in got] for who, got in made.assign().items()}


def marked(made: Queue) -> dict[int, list[tuple[int, bool]]]:
    """Who gets which number, and whether it is marked as redelivered."""
    return {
        who: [(each.number, each.redelivered) for each in got] for who, got in made.assign().items()
    }


def test_messages_go_round_in_order() -> None:
    made = queue()
    for consumer in (1, 2, 3):
        made.consume(consumer, 10, acknowledged=True)
    put(made, *(b"%d" % number for number in range(7)))
    assert assigned(made) == {1: [b"0", b"3", b"6"], 2: [b"1", b"4"], 3: [b"2", b"5"]}
    put(made, b"7", b"8")
    assert assigned(made) == {2: [b"7"], 3: [b"8"]}  # whoever was served comes last


def test_credit_is_what_is_in_flight() -> None:
    made = queue()
    put(made, b"a", b"b", b"c", b"d")
    made.consume(1, 2, acknowledged=True)
    assert assigned(made) == {1: [b"a", b"b"]}
    assert assigned(made) == {}
    assert made.acknowledge(1, [2, 2, 3, 99]) == 1  # 3 is not in flight
    assert assigned(made) == {1: [b"c"]}
    assert (len(made), made.waiting) == (3, 1)
    made.consume(1, 5, acknowledged=True)
    assert assigned(made) == {1: [b"d"]}
    made.consume(1, 0, acknowledged=True)
    put(made, b"e")
    assert assigned(made) == {}
    assert made.acknowledge(2, [1]) == 0  # not its consumer


def test_without_acknowledgement_what_is_delivered_is_gone() -> None:
    made = queue()
    put(made, b"a", b"b")
    made.consume(1, 0, acknowledged=False)
    assert assigned(made) == {1: [b"a", b"b"]}
    assert (len(made), made.full) == (0, False)
    made.leave(1)
    assert made.waiting == 0


def test_a_consumer_can_begin_to_acknowledge_and_end_it() -> None:
    made = queue()
    put(made, b"a", b"b", b"c")
    made.consume(1, 1, acknowledged=True)
    assert assigned(made) == {1: [b"a"]}
    made.consume(1, 1, acknowledged=False)
    assert assigned(made) == {1: [b"b", b"c"]}
    made.leave(1)
    made.consume(2, 9, acknowledged=True)
    assert marked(made) == {2: [(1, True)]}  # only what was to be acknowledged comes back


def test_what_a_consumer_had_comes_back_in_order_and_marked() -> None:
    made = queue()
    put(made, b"a", b"b", b"c", b"d")
    made.consume(1, 1, acknowledged=True)
    made.consume(2, 1, acknowledged=True)
    assert assigned(made) == {1: [b"a"], 2: [b"b"]}
    made.leave(1)
    assert made.waiting == 3
    made.leave(2)
    made.consume(3, 9, acknowledged=True)
    assert marked(made) == {3: [(1, True), (2, True), (3, False), (4, False)]}


def test_what_comes_back_twice_is_still_in_order() -> None:
    """A consumer that holds a younger message is given an older one, and leaves with both."""
    made = queue()
    put(made, b"a", b"b")
    made.consume(1, 1, acknowledged=True)
    made.consume(2, 2, acknowledged=True)
    assert assigned(made) == {1: [b"a"], 2: [b"b"]}
    made.leave(1)
    assert assigned(made) == {2: [b"a"]}
    put(made, b"c")
    made.leave(2)
    made.consume(3, 9, acknowledged=True)
    assert marked(made) == {3: [(1, True), (2, True), (3, False)]}


@pytest.mark.parametrize("limits", [(3, BIG), (BIG, 3 * len(b"t1"))], ids=["messages", "bytes"])
def test_a_full_queue(limits: tuple[int, int]) -> None:
    """At both limits: ``max_messages``, and ``max_bytes`` of topics and bodies."""
    bodies = [b"%d" % number for number in range(5)]
    blocking = queue("block", *limits)
    assert put(blocking, *bodies[:3]) == [True] * 3
    assert blocking.full
    assert put(blocking, *bodies[3:]) == [True, True]  # its publisher is held, nothing is lost
    assert blocking.dropped == 0
    newest = queue("drop-newest", *limits)
    assert put(newest, *bodies) == [True, True, True, False, False]
    newest.consume(1, 9, acknowledged=True)
    assert assigned(newest) == {1: bodies[:3]}
    assert newest.dropped == 2
    oldest = queue("drop-oldest", *limits)
    assert put(oldest, *bodies) == [True] * 5
    oldest.consume(1, 9, acknowledged=True)
    assert assigned(oldest) == {1: bodies[2:]}
    assert oldest.dropped == 2


def test_a_property_takes_room_too() -> None:
    made = queue("drop-newest", max_bytes=10)
    assert made.put(b"t", b"b", {"name": b"v" * 4})
    assert made.full
    assert not made.put(b"t", b"b", NO_PROPERTIES)


def test_what_is_in_flight_takes_room_and_is_never_dropped() -> None:
    made = queue("drop-oldest", max_messages=2)
    made.consume(1, 2, acknowledged=True)
    put(made, b"a", b"b")
    assert assigned(made) == {1: [b"a", b"b"]}
    assert put(made, b"c", b"d") == [True, True]  # the newest alone may wait
    assert (len(made), made.waiting, made.dropped) == (3, 1, 1)
    made.acknowledge(1, [1, 2])
    assert assigned(made) == {1: [b"d"]}


def test_publishers_that_nobody_can_hold_do_not_fill_a_blocking_queue_for_ever() -> None:
    """They come, publish one read into the full queue, leave, and come again."""
    made = queue("block", max_messages=1, max_bytes=1000)
    body = bytes(1024 * 1024)
    results = put(made, *[body] * 100)
    assert results.count(True) < 70
    assert results == sorted(results, reverse=True)
    assert made.dropped == results.count(False)
    many = queue("block", max_messages=1)
    results = put(many, *[b"x"] * 150_000)
    assert sum(results) == 100_002
    assert many.dropped == 49_998


def test_a_consumer_that_takes_no_more_is_passed_over() -> None:
    made = queue()
    made.consume(1, 9, acknowledged=True)
    made.consume(2, 9, acknowledged=True)
    made.ready(1, ready=False)
    put(made, b"a", b"b")
    assert assigned(made) == {2: [b"a", b"b"]}
    made.ready(2, ready=False)
    put(made, b"c")
    assert assigned(made) == {}
    made.ready(1, ready=True)
    assert assigned(made) == {1: [b"c"]}
    made.ready(3, ready=True)  # nobody


def test_a_consumer_is_given_so_much_at_once() -> None:
    """A backlog is not put into the outbox of whoever comes first."""
    made = queue()
    put(made, *(b"%03d" % number for number in range(10)))
    made.consume(1, 0, acknowledged=False)
    made.consume(2, 1, acknowledged=True)
    assert {who: len(got) for who, got in made.assign(12).items()} == {1: 3, 2: 1}
    assert made.is_paced(1)
    assert not made.is_paced(2)
    assert made.assign(12) == {}
    made.proceed(1)
    assert {who: len(got) for who, got in made.assign(12).items()} == {1: 3}
    made.proceed(3)  # nobody


@dataclass
class _NaiveConsumer:
    credit: int
    acknowledged: bool
    ready: bool = True
    in_flight: list[int] = field(default_factory=list)
    parity: int | None = None  # of the lengths of bodies that it wants


_OF: list[Filter] = [
    lambda topic, properties, body: len(body) % 2 == 0,
    lambda topic, properties, body: len(body) % 2 == 1,
]


class QueueAgainstNaive(RuleBasedStateMachine):
    """The naive queue is two lists that are sorted again after every step."""

    @initialize(
        policy=st.sampled_from(QUEUE_POLICIES),
        most=st.integers(1, 6),
        most_bytes=st.sampled_from([8, 20, 1000]),
    )
    def begin(self, policy: QueuePolicy, most: int, most_bytes: int) -> None:
        self.queue = queue(policy, most, most_bytes)
        self.policy, self.most, self.most_bytes = policy, most, most_bytes
        self.last = 0
        self.sizes: dict[int, int] = {}
        self.waiting: list[int] = []
        self.had: set[int] = set()  # was in flight once
        self.ring: list[int] = []
        self.consumers: dict[int, _NaiveConsumer] = {}
        self.lengths: dict[int, int] = {}

    def _is_full(self) -> bool:
        return len(self.sizes) >= self.most or sum(self.sizes.values()) >= self.most_bytes

    @rule(body=st.binary(max_size=6))
    def put(self, body: bytes) -> None:
        taken = True
        if self._is_full():
            taken = self.policy != "drop-newest"
            while self.policy == "drop-oldest" and self._is_full() and self.waiting:
                del self.sizes[self.waiting.pop(0)]
        if taken:
            self.last += 1
            self.sizes[self.last] = 1 + len(body)
            self.lengths[self.last] = len(body)
            self.waiting.append(self.last)
        assert self.queue.put(b"t", body, NO_PROPERTIES) == taken
        if self.policy == "drop-oldest":  # never what is in flight, and one may wait behind it
            in_flight = len(self.sizes) - len(self.waiting)
            assert len(self.queue) <= max(self.most, in_flight + 1)

    @rule(
        who=st.integers(1, 4),
        credit=st.integers(0, 4),
        acknowledged=st.booleans(),
        parity=st.sampled_from([None, None, 0, 1]),
    )
    def consume(self, who: int, credit: int, acknowledged: bool, parity: int | None) -> None:
        self.queue.consume(who, credit, acknowledged, None if parity is None else _OF[parity])
        known = self.consumers.setdefault(who, _NaiveConsumer(credit, acknowledged))
        known.credit, known.acknowledged, known.parity = credit, acknowledged, parity
        if who not in self.ring:
            self.ring.append(who)

    @rule(who=st.integers(1, 4))
    def leave(self, who: int) -> None:
        self.queue.leave(who)
        if who in self.ring:
            self.ring.remove(who)
            back = self.consumers.pop(who).in_flight
            self.waiting = sorted(self.waiting + back)

    @rule(who=st.integers(1, 4), ready=st.booleans())
    def ready(self, who: int, ready: bool) -> None:
        self.queue.ready(who, ready)
        if who in self.consumers:
            self.consumers[who].ready = ready

    @rule(who=st.integers(1, 4), which=st.lists(st.integers(0, 5), max_size=3))
    def acknowledge(self, who: int, which: list[int]) -> None:
        mine = self.consumers[who].in_flight if who in self.consumers else []
        numbers = [mine[index] if index < len(mine) else 1000 + index for index in which]
        done = set(numbers).intersection(mine)
        assert self.queue.acknowledge(who, numbers) == len(done)
        for number in done:
            mine.remove(number)
            del self.sizes[number]

    @rule()
    def assign(self) -> None:
        expected: dict[int, list[tuple[int, bool]]] = {}
        while True:
            able = [
                (who, number)
                for who in self.ring
                if self._room(self.consumers[who])
                for number in self.waiting
                if self.consumers[who].parity in (None, self.lengths[number] % 2)
            ]
            if not able:
                break
            who, number = able[0]
            self.waiting.remove(number)
            expected.setdefault(who, []).append((number, number in self.had))
            if self.consumers[who].acknowledged:
                self.consumers[who].in_flight.append(number)
                self.had.add(number)
            else:
                del self.sizes[number]
            self.ring.remove(who)
            self.ring.append(who)
        assert marked(self.queue) == expected

    @staticmethod
    def _room(consumer: _NaiveConsumer) -> bool:
        enough = not consumer.acknowledged or len(consumer.in_flight) < consumer.credit
        return consumer.ready and enough

    @invariant()
    def agree(self) -> None:
        assert (len(self.queue), self.queue.waiting) == (len(self.sizes), len(self.waiting))
        assert self.queue.full == self._is_full()
        assert sorted(self.queue.consumers) == sorted(self.ring)
        if self.policy == "drop-newest":
            assert len(self.queue) <= self.most


TestQueueAgainstNaive = QueueAgainstNaive.TestCase
TestQueueAgainstNaive.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_filter_is_asked_once_about_each_message() -> None:
    """However long the backlog is, and however often somebody publishes."""
    asked: list[bytes] = []

    def late(topic: bytes, properties: Properties, body: bytes) -> bool:
        asked.append(body)
        return int(body) >= 1000

    made = queue()
    put(made, *(b"%d" % number for number in range(1000)))
    made.consume(1, 2, acknowledged=True, filter=late)
    assert assigned(made) == {}
    assert len(asked) == 1000
    put(made, *(b"%d" % number for number in range(1000, 1005)))
    assert assigned(made) == {1: [b"1000", b"1001"]}
    assert len(asked) == 1002
    made.consume(2, 3, acknowledged=True)
    assert assigned(made) == {2: [b"0", b"1", b"2"]}
    made.acknowledge(1, [1001, 1002])
    assert assigned(made) == {1: [b"1002", b"1003"]}
    made.leave(1)
    made.consume(3, 9, acknowledged=True, filter=late)
    assert marked(made) == {3: [(1003, True), (1004, True), (1005, False)]}
    assert (len(made), made.waiting) == (1003 - 3 + 3, 997)


def test_what_is_taken_from_the_middle_is_cleared_away() -> None:
    made = queue()
    made.consume(1, BIG, acknowledged=True, filter=_OF[1])
    for _ in range(1000):
        put(made, b"22", b"1")
        assert assigned(made) == {1: [b"1"]}
    assert (made.waiting, len(made)) == (1000, 2000)
    assert len(made._waiting) <= 2 * made.waiting + 64
    made.leave(1)
    made.consume(2, BIG, acknowledged=False)
    numbers = [number for number, _ in marked(made)[2]]
    assert numbers == list(range(1, 2001))


def test_a_message_knows_its_size() -> None:
    queue = Queue(b"q", "block", permanent=True, max_messages=9, max_bytes=999)
    assert queue.put(b"topic", b"body", {"n": b"vv"})
    queue.put_many([b"topic"], [b"body"], [{"n": b"vv"}], [12])
    queue.consume(1, 9, acknowledged=True)
    (given,) = queue.assign().values()
    assert [message.size for message in given] == [5 + 4 + 1 + 2] * 2


def test_who_is_behind_with_what_it_was_given_gets_no_more() -> None:
    """All of it together counts, not what is given at a time; nothing else is held back for it."""
    made = Queue(b"q", "block", permanent=True, max_messages=99, max_bytes=BIG, durable=True)
    made.consume(1, 0, acknowledged=False)
    made.consume(2, 2, acknowledged=True)
    put(made, *(b"%d" % number for number in range(6)))
    first = made.assign(60)
    assert [message.body for message in first[1]] == [b"0", b"2", b"4", b"5"]
    assert [message.body for message in first[2]] == [b"1", b"3"]
    assert made.waits_until_sent(1)
    assert not made.waits_until_sent(2)
    assert not made.is_paced(1)
    put(made, b"6" * (60 - sum(message.size for message in first[1])))
    assert len(made.assign(60)[1]) == 1
    assert made.is_paced(1)
    put(made, b"7")
    assert made.assign(60) == {}
    made.proceed(1)
    assert not made.waits_until_sent(1)
    assert [message.body for message in made.assign(60)[1]] == [b"7"]
