"""Queues on the bus: who publishes, who consumes, who waits, and who leaves meanwhile."""

from collections.abc import Sequence

import pytest

from host_broker.access.access import Access, Peer
from host_broker.access.rules import Rules
from host_broker.access.users import Users
from host_broker.bus.commands import (
    Acknowledge,
    Command,
    Consume,
    DeleteQueue,
    Disconnect,
    Enqueue,
    OpenQueue,
    Publish,
    PublishMany,
    StopConsuming,
    Subscribe,
    Unsubscribe,
)
from host_broker.bus.delivery import Delivery, QueueDelivery
from host_broker.bus.queue import read_place
from tests.host_broker.scripted import Given, Stage, run

Q = b"work"


def bodies(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def fill(stage: Stage, publisher: int, *wanted: bytes, queue: bytes = Q) -> None:
    stage.do(publisher, *(Enqueue(queue, body) for body in wanted))


def test_each_message_goes_to_one_consumer() -> None:
    stage = Stage()
    publisher, first, second = stage.enter(), stage.enter(), stage.enter()
    stage.do(first, Consume(Q, 100))
    stage.do(second, Consume(Q, 100))
    fill(stage, publisher, *bodies(10))
    got = stage.queued(first), stage.queued(second)
    assert sorted(got[0] + got[1]) == bodies(10)
    assert len(got[0]) == len(got[1]) == 5
    assert got[0] == sorted(got[0])
    assert got[1] == sorted(got[1])


def test_a_queue_that_is_deleted_in_the_turn_of_a_batch_is_gone() -> None:
    """What was put into it is nobody's, and nothing says that the queue is to come back."""
    stage = Stage(journalled=True)
    publisher, consumer = stage.enter(), stage.enter()
    stage.do(consumer, OpenQueue(Q, durable=True), Consume(Q, 10), Subscribe(b"a", queue=Q))
    batch = PublishMany([b"a"] * 3, bodies(3), [{}], "n", [b"1", b"2", b"3"])
    done = stage.do(publisher, batch, DeleteQueue(Q))
    assert stage.queued(consumer) == []
    assert {read_place(key)[1] for key in done.queued} == {0, 1, 2, 3}
    assert set(done.queued.values()) == {None}


def test_a_queue_that_its_consumer_deletes_gives_no_more() -> None:
    stage = Stage(journalled=True)
    publisher, first, second = stage.enter(), stage.enter(), stage.enter()
    stage.do(first, OpenQueue(Q, durable=True), Consume(Q, 10), Subscribe(b"a", queue=Q))
    stage.do(second, Consume(Q, 10))
    stage.session(first).reply = lambda given: [DeleteQueue(Q)]
    batch = PublishMany([b"a"] * 4, bodies(4), [{}], "n", [b"1", b"2", b"3", b"4"])
    done = stage.do(publisher, batch)
    assert stage.queued(first) == [b"0", b"2"]
    assert stage.queued(second) == []
    assert set(done.queued.values()) == {None}


def test_it_is_known_without_a_search_whether_publishers_have_to_wait() -> None:
    stage = Stage()
    publisher, consumer = stage.enter(), stage.enter()
    names = [b"q/%d" % number for number in range(3)]
    for name in names:
        stage.do(consumer, OpenQueue(name, max_messages=1))
    assert not stage.broker.makes_publishers_wait
    for name in names[:2]:
        fill(stage, publisher, b"1", queue=name)
    assert stage.broker.makes_publishers_wait
    stage.do(consumer, Consume(names[0], 0, acknowledged=False))
    assert stage.broker.makes_publishers_wait
    stage.do(consumer, DeleteQueue(names[1]))
    assert not stage.broker.makes_publishers_wait
    stage.do(consumer, Consume(names[2], 1))
    fill(stage, publisher, b"1", queue=names[2])
    assert stage.broker.makes_publishers_wait  # it is in flight
    stage.do(consumer, Acknowledge(names[2], [1]))
    assert not stage.broker.makes_publishers_wait


def test_a_message_names_its_queue_topic_and_properties() -> None:
    stage = Stage()
    publisher, consumer = stage.enter(), stage.enter()
    stage.do(consumer, Consume(Q, 1), Subscribe(b"a/*", queue=Q))
    stage.do(publisher, Publish(b"a/b", b"body", properties={"sender": b"me"}))
    (given,) = stage.given(consumer)
    assert isinstance(given, QueueDelivery)
    (message,) = given.messages
    assert (given.queue, message.number, message.topic, message.body, message.redelivered) == (
        Q,
        1,
        b"a/b",
        b"body",
        False,
    )
    assert message.properties == {"sender": b"me"}


def test_credit_is_never_exceeded_and_an_acknowledgement_makes_room() -> None:
    stage = Stage()
    publisher, consumer = stage.enter(), stage.enter()
    stage.do(consumer, Consume(Q, 2))
    fill(stage, publisher, *bodies(5))
    assert stage.queued(consumer) == [b"0", b"1"]
    stage.do(consumer, Acknowledge(Q, [1]))
    assert stage.queued(consumer) == [b"2"]
    stage.do(consumer, Acknowledge(Q, [1, 77]), Acknowledge(b"no such queue", [1]))
    assert stage.queued(consumer) == []
    stage.do(consumer, Consume(Q, 4))
    assert stage.queued(consumer) == [b"3", b"4"]


@pytest.mark.parametrize("leave", ["close", "stop", "disconnect"])
def test_what_a_consumer_had_goes_to_the_next_one_marked_and_first(leave: str) -> None:
    stage = Stage()
    publisher, first, second = stage.enter(), stage.enter(), stage.enter()
    stage.do(first, Consume(Q, 2))
    fill(stage, publisher, *bodies(4))
    assert stage.queued(first) == [b"0", b"1"]
    stage.do(second, Consume(Q, 1))
    assert stage.queued(second) == [b"2"]
    if leave == "close":
        stage.close(first)
    else:
        stage.do(first, StopConsuming(Q) if leave == "stop" else Disconnect("violation"))
    stage.do(second, Acknowledge(Q, [3]), Consume(Q, 10))
    messages = [each for given in stage.given(second) for each in _messages(given)]
    assert messages == [(b"0", True), (b"1", True), (b"3", False)]
    assert stage.given(first) == []


def _messages(given: Given) -> list[tuple[bytes, bool]]:
    assert isinstance(given, QueueDelivery)
    return [(message.body, message.redelivered) for message in given.messages]


def test_a_consumer_ended_by_another_one_of_the_same_delivery_gets_nothing() -> None:
    """Both are given messages at once; what the first says ends the second before its turn."""
    stage = Stage()
    publisher, first, second = stage.enter(), stage.enter(), stage.enter()
    for acknowledged in (True, False):
        name = b"acknowledged" if acknowledged else b"not"
        fill(stage, publisher, *bodies(4), queue=name)
        third = stage.enter()
        stage.session(first).reply = _once([Disconnect("a name twice", connection=second)])
        stage.congested(first, True)
        stage.congested(second, True)
        stage.do(first, Consume(name, 10, acknowledged))
        stage.do(second, Consume(name, 10, acknowledged))
        queue = stage.broker.queues[name]
        queue.ready(first, ready=True)
        queue.ready(second, ready=True)
        stage.do(third, Consume(name, 0, acknowledged=True))
        assert stage.given(second) == []
        assert sorted(stage.queued(first)) == bodies(4)  # its own two, then the other's
        assert second in stage.left
        stage.congested(first, False)
        second = stage.enter()


def _once(commands: Sequence[Command]) -> "_Once":
    return _Once(commands)


class _Once:
    """Says something to what it is given first."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self._commands = commands

    def __call__(self, given: Given) -> Sequence[Command]:
        commands, self._commands = self._commands, ()
        return commands


def test_acknowledging_at_once_takes_a_whole_queue() -> None:
    """Not one call within the other for each message."""
    stage = Stage()
    publisher, consumer = stage.enter(), stage.enter()
    fill(stage, publisher, *bodies(5000))

    def acknowledge(given: Given) -> Sequence[Command]:
        assert isinstance(given, QueueDelivery)
        return [Acknowledge(given.queue, [each.number for each in given.messages])]

    stage.session(consumer).reply = acknowledge
    stage.do(consumer, Consume(Q, 1))
    assert stage.queued(consumer) == bodies(5000)
    assert len(stage.broker.queues[Q]) == 0


def test_without_acknowledgement_nothing_comes_back() -> None:
    stage = Stage()
    publisher, first = stage.enter(), stage.enter()
    stage.do(first, Consume(Q, 0, acknowledged=False))
    fill(stage, publisher, *bodies(3))
    assert stage.queued(first) == bodies(3)
    stage.close(first)
    second = stage.enter()
    stage.do(second, Consume(Q, 9))
    assert stage.given(second) == []


def test_a_long_backlog_is_handed_out_step_by_step() -> None:
    """Credit is not counted, or is large: its outbox is bounded all the same."""
    stage = Stage()
    publisher, consumer, other = stage.enter(), stage.enter(), stage.enter()
    body = bytes(64 * 1024)
    fill(stage, publisher, *[body] * 64)
    stage.slow.add(consumer)
    assert stage.do(consumer, Consume(Q, 0, acknowledged=False)).paced == {consumer: True}
    assert 4 <= len(stage.queued(consumer)) <= 5
    fill(stage, publisher, body)
    assert stage.queued(consumer) == []
    stage.broker.proceed(consumer, stage.now)
    assert stage.done().paced == {consumer: True}
    assert 4 <= len(stage.queued(consumer)) <= 5
    stage.do(other, Consume(Q, 100))  # drains as fast as it is given
    assert len(stage.queued(other)) > 50
    assert stage.broker.queues[Q].waiting == 0


# ---- policies, limits ----


@pytest.mark.parametrize("by", ["messages", "bytes"])
def test_a_full_blocking_queue_holds_only_those_who_publish_to_it(by: str) -> None:
    stage = Stage()
    publisher, second, other, consumer = (stage.enter() for _ in range(4))
    limits = {"max_messages": 2} if by == "messages" else {"max_bytes": 2 * (len(Q) + 1)}
    stage.do(consumer, OpenQueue(Q, "block", **limits))
    fill(stage, publisher, b"0")
    assert stage.held == set()
    fill(stage, publisher, b"1")
    assert stage.held == {(publisher, "queue")}
    fill(stage, other, *bodies(10), queue=b"another")
    stage.do(other, run((b"a/b", b"x")))
    fill(stage, second, b"2")
    assert stage.held == {(publisher, "queue"), (second, "queue")}
    stage.do(consumer, Consume(Q, 1))
    assert stage.queued(consumer) == [b"0"]
    assert len(stage.held) == 2  # in flight is room taken
    stage.do(consumer, Acknowledge(Q, [1]))
    assert len(stage.held) == 2
    stage.do(consumer, Acknowledge(Q, [2]))
    assert stage.held == set()
    assert stage.queued(consumer) == [b"1", b"2"]


def test_a_publisher_waits_for_all_queues_that_are_full() -> None:
    stage = Stage()
    publisher, consumer = stage.enter(), stage.enter()
    for name in (b"one", b"two"):
        stage.do(consumer, OpenQueue(name, max_messages=1))
        fill(stage, publisher, b"x", queue=name)
    assert stage.held == {(publisher, "queue")}
    stage.do(consumer, Consume(b"one", 0, acknowledged=False))
    assert stage.held == {(publisher, "queue")}
    stage.do(consumer, DeleteQueue(b"two"))
    assert stage.held == set()
    assert stage.broker._held == {}


def test_released_and_held_again_in_one_turn_is_held() -> None:
    """The edge does what a turn wants at its end; TLS may be read twice in one."""
    stage = Stage()
    publisher, consumer = stage.enter(), stage.enter()
    stage.do(consumer, OpenQueue(Q, max_messages=1), Consume(Q, 1))
    session, broker = stage.session(publisher), stage.broker
    fill(stage, publisher, b"0")
    assert stage.held == {(publisher, "queue")}
    session.lines += [[Enqueue(Q, b"1")]]
    stage.session(consumer).lines.append([Acknowledge(Q, [1])])
    broker.received(consumer, b".", stage.now)
    broker.received(publisher, b".", stage.now)
    stage.done()
    assert stage.held == {(publisher, "queue")}
    stage.do(consumer, Acknowledge(Q, [2]))
    assert stage.held == set()


def test_a_held_publisher_that_leaves_is_forgotten() -> None:
    stage = Stage()
    publisher, consumer = stage.enter(), stage.enter()
    stage.do(consumer, OpenQueue(Q, max_messages=1))
    fill(stage, publisher, b"0")
    stage.close(publisher)
    done = stage.do(consumer, Consume(Q, 0, acknowledged=False))
    assert not done.releases


@pytest.mark.parametrize("by", ["messages", "bytes"])
@pytest.mark.parametrize("policy", ["drop-newest", "drop-oldest"])
def test_a_full_queue_that_drops_holds_nobody(policy: str, by: str) -> None:
    stage = Stage()
    publisher, consumer = stage.enter(), stage.enter()
    limits = {"max_messages": 3} if by == "messages" else {"max_bytes": 3 * (len(Q) + 1)}
    stage.do(consumer, OpenQueue(Q, policy, **limits))  # type: ignore[arg-type]
    fill(stage, publisher, *bodies(5))
    assert stage.held == set()
    stage.do(consumer, Consume(Q, 9))
    kept = bodies(3) if policy == "drop-newest" else bodies(5)[2:]
    assert stage.queued(consumer) == kept
    assert stage.broker.queues[Q].dropped == 2
    assert stage.discarded == ({"queue.full": 2} if policy == "drop-newest" else {})


def test_the_limits_of_the_settings() -> None:
    stage = Stage(bus={"max_queues": 2, "max_queue_messages": 3, "max_queue_bytes": 1000})
    client = stage.enter()
    stage.do(
        client, OpenQueue(b"1", "drop-newest", max_messages=100, max_bytes=1 << 40), OpenQueue(b"2")
    )
    fill(stage, client, *bodies(5), queue=b"1")
    assert len(stage.broker.queues[b"1"]) == 3
    assert stage.broker.queues[b"1"].max_bytes == 1000
    stage.do(
        client,
        OpenQueue(b"3"),
        Enqueue(b"4", b"x"),
        Consume(b"5", 1),
        Subscribe(b"a", queue=b"6"),
        Unsubscribe(b"a", queue=b"6"),
        StopConsuming(b"5"),
        DeleteQueue(b"7"),
    )
    assert sorted(stage.broker.queues) == [b"1", b"2"]
    assert stage.discarded == {"queue.full": 2, "bus.max_queues": 4}
    stage.do(client, DeleteQueue(b"1"), OpenQueue(b"3"))
    assert sorted(stage.broker.queues) == [b"2", b"3"]


def test_an_open_queue_stays_as_it_is() -> None:
    stage = Stage()
    client = stage.enter()
    stage.do(client, OpenQueue(Q, "drop-oldest", max_messages=5), OpenQueue(Q, "block"))
    queue = stage.broker.queues[Q]
    assert (queue.policy, queue.max_messages) == ("drop-oldest", 5)


# ---- their end ----


def test_a_queue_that_is_not_permanent_goes_with_its_last_consumer() -> None:
    stage = Stage()
    publisher, first, second = stage.enter(), stage.enter(), stage.enter()
    stage.do(first, OpenQueue(Q, permanent=False), Subscribe(b"a/*", queue=Q), Consume(Q, 1))
    stage.do(second, Consume(Q, 1))
    stage.close(first)
    assert Q in stage.broker.queues
    stage.do(second, StopConsuming(Q))
    assert Q not in stage.broker.queues
    stage.do(publisher, run((b"a/b", b"x")))  # nobody is subscribed any more
    assert stage.given(second) == []
    stage.do(second, Consume(Q, 1))
    stage.do(publisher, run((b"a/b", b"x")))
    assert stage.given(second) == []


def test_a_deleted_queue_gives_nothing_and_its_consumers_may_come_again() -> None:
    stage = Stage()
    publisher, consumer = stage.enter(), stage.enter()
    stage.do(consumer, Consume(Q, 1), Subscribe(b"a", queue=Q))
    fill(stage, publisher, *bodies(3))
    stage.given(consumer)
    stage.do(publisher, DeleteQueue(Q))
    stage.do(consumer, Acknowledge(Q, [1]))
    stage.do(publisher, run((b"a", b"x")))
    assert stage.given(consumer) == []
    stage.do(consumer, StopConsuming(Q), Consume(Q, 1))
    fill(stage, publisher, b"new")
    assert stage.queued(consumer) == [b"new"]
    stage.close(consumer)
    assert stage.broker.queues[Q].waiting == 1


def test_a_queue_deleted_by_a_receiver_of_the_same_publication_is_passed_over() -> None:
    """Its subscription was found before; what the other receiver says comes in between."""
    stage = Stage()
    publisher, nosy = stage.enter(), stage.enter()
    for name in (Q, b"other"):
        stage.do(publisher, OpenQueue(name), Subscribe(b"a", queue=name))
    stage.do(nosy, Consume(Q, 9), Consume(b"other", 9))
    stage.session(nosy).reply = _once([DeleteQueue(Q), DeleteQueue(b"other")])
    stage.do(publisher, run((b"a", b"1"), (b"a", b"2")))
    assert stage.broker.queues == {}
    assert len(stage.given(nosy)) == 1


# ---- the queue as a subscriber ----


def test_a_queue_subscribes_with_and_without_filters() -> None:
    stage = Stage()
    publisher, consumer = stage.enter(), stage.enter()
    stage.do(
        consumer,
        Consume(Q, 99),
        Subscribe(b"a/*", queue=Q),
        Subscribe(b"b", filter=lambda topic, properties, body: body == b"yes", queue=Q),
        Subscribe(b"b", id=1, filter=lambda topic, properties, body: b"y" in body, queue=Q),
        Subscribe(b"c/", prefix=True, queue=Q),
    )
    publications = [(b"a/x", b"1"), (b"b", b"yes"), (b"b", b"y"), (b"b", b"no"), (b"c/d/e", b"2")]
    stage.do(publisher, run(*publications, (b"c", b"3"), (b"a/y", b"4")))
    assert stage.queued(consumer) == [b"1", b"yes", b"y", b"2", b"4"]
    stage.do(consumer, Unsubscribe(b"a/*", queue=Q), Unsubscribe(b"b", id=1, queue=Q))
    stage.do(publisher, run(*publications))
    assert stage.queued(consumer) == [b"yes", b"2"]


def test_a_queue_and_its_consumer_are_different_subscribers() -> None:
    stage = Stage()
    publisher, consumer = stage.enter(), stage.enter()
    stage.do(consumer, Consume(Q, 9), Subscribe(b"a", queue=Q), Subscribe(b"a", id=7))
    stage.do(publisher, run((b"a", b"x")))
    kinds = {type(each) for each in stage.given(consumer)}
    assert kinds == {Delivery, QueueDelivery}


def test_retained_messages_are_not_put_into_a_queue_that_subscribes() -> None:
    stage = Stage()
    client = stage.enter()
    stage.do(client, Publish(b"a", b"kept", retain=True))
    stage.do(client, Subscribe(b"a", queue=Q), Consume(Q, 9))
    assert stage.given(client) == []


# ---- congestion ----


def test_a_congested_connection_is_given_nothing() -> None:
    stage = Stage()
    publisher, slow, other = stage.enter(), stage.enter(), stage.enter()
    stage.do(slow, Consume(Q, 99))
    stage.congested(slow, True)
    fill(stage, publisher, b"0")
    assert stage.given(slow) == []
    stage.do(other, Consume(Q, 1))
    assert stage.queued(other) == [b"0"]
    fill(stage, publisher, b"1")
    stage.congested(slow, False)
    assert stage.queued(slow) == [b"1"]


def test_who_is_congested_already_gets_nothing_when_it_begins_to_consume() -> None:
    stage = Stage()
    publisher, slow = stage.enter(), stage.enter()
    fill(stage, publisher, b"0")
    stage.congested(slow, True)
    stage.do(slow, Consume(Q, 99))
    assert stage.given(slow) == []
    stage.congested(slow, False)
    assert stage.queued(slow) == [b"0"]


# ---- who may do what ----


def _rules(**everybody: list[str]) -> Rules:
    return Rules.read({"roles": {"everybody": {"connect": ["**"], **everybody}}})


def test_a_queue_is_for_those_who_may() -> None:
    nobody = Users.read({"users": {}})
    stage = Stage(access=Access(nobody, _rules(publish=["work"], subscribe=["jobs"])))
    client = stage.open("translating", peer=Peer("127.0.0.1"))
    answers: list[str] = []

    def answer(limit: str) -> Sequence[Command]:
        answers.append(limit)
        return ()

    stage.do(client, Enqueue(Q, b"1", answer=answer), Consume(Q, 9, answer=answer))
    stage.do(client, Enqueue(b"jobs", b"2", answer=answer), Consume(b"jobs", 9, answer=answer))
    stage.do(client, Enqueue(Q, b"3"), Consume(Q, 9))  # no answer is wanted: it is told
    assert [bool(refusal) for refusal in answers] == [False, True, True, False]
    assert {refusal for refusal in answers if refusal} == {"access.subscribe", "access.publish"}
    assert stage.session(client).refusals == [("subscribe", Q)]
    assert stage.queued(client) == []


def test_who_may_consume_no_more_gives_back_what_it_had() -> None:
    users = Users.read({"users": {}})
    stage = Stage(access=Access(users, _rules(publish=["**"], subscribe=["**"])))
    peer = Peer("127.0.0.1")
    publisher = stage.open("translating", peer=peer)
    lasting, stopped = (
        stage.open("translating", peer=Peer("127.0.0.1", listener=name)) for name in ("a", "b")
    )
    stage.do(stopped, Consume(Q, 2, acknowledged=True))
    fill(stage, publisher, *bodies(3))
    assert stage.queued(stopped) == bodies(3)[:2]
    rules = {"connect": ["**"], "publish": ["**"]}
    document = {"roles": {"everybody": rules}, "principals": {"a": {"subscribe": ["work"]}}}
    stage.broker.access.change(users, Rules.read(document))
    stage.done(stage.broker.access_changed(stage.now))
    assert stage.session(stopped).refusals == [("subscribe", Q)]
    fill(stage, publisher, b"3")
    assert stage.queued(stopped) == []
    stage.do(lasting, Consume(Q, 9, acknowledged=True))
    assert stage.queued(lasting) == bodies(4)
    assert stage.closes == []
