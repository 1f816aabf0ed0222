"""The subscriptions of a connection that had many end step by step; its wills do not wait."""

from collections.abc import Sequence

from host_broker.bus.commands import (
    Command,
    Consume,
    DeleteQueue,
    Enqueue,
    OpenQueue,
    Publish,
    Subscribe,
)
from host_broker.bus.subscriptions import Interest
from host_broker.protocols.fmqp.spelling import encode_publication, encode_subscription
from tests.host_broker.desk import Desk
from tests.host_broker.scripted import Stage

MANY = 1000
STEP = 256  # as gradual_unsubscribe.py has it
LIMIT = 12_000  # steps through the index in a second


def _crowd(desk: Desk, name: str, count: int = MANY) -> int:
    """Open a client with many subscriptions and two wills."""
    client = desk.open()
    topics = (encode_subscription(f"{name}/{number}") for number in range(count))
    desk.send(client, b"".join(topics))
    for number in range(2):
        desk.send(client, encode_publication(f"will/{name}", b"%d" % number, will=True))
    return client


def _observer(desk: Desk) -> int:
    observer = desk.open()
    desk.sub(observer, "*/*", feedback=True)
    desk.sub(observer, "will/*")
    desk.sub(observer, "$/info/clients")
    return observer


def _ending(name: str, clients: int) -> list[tuple[str, bytes]]:
    """What is said at once when one of these ends."""
    count = ("$/info/clients", clients.to_bytes(8, "big"))
    return [(f"will/{name}", b"0"), (f"will/{name}", b"1"), count]


def _interests(name: str) -> list[tuple[str, bytes]]:
    return [(f"{name}/{number}", b"") for number in range(MANY)]


def _said(desk: Desk, connection: int) -> list[tuple[str, bytes]]:
    return [(topic, body) for _, topic, body in desk.messages(connection)]


def test_wills_and_count_at_once_and_then_the_interests_in_order() -> None:
    desk = Desk()
    observer = _observer(desk)
    client = _crowd(desk, "a")
    desk.messages(observer)
    desk.close(client)
    assert _said(desk, observer) == _ending("a", 1) + _interests("a")[:STEP]
    assert desk.broker.next_deadline() == desk.now
    desk.advance(0.0)
    assert _said(desk, observer) == _interests("a")[STEP:]
    due = desk.broker.next_deadline()
    assert due is None or due > desk.now


def test_who_is_back_at_once_is_not_declared_dead_afterwards() -> None:
    """The will of the old connection comes before what the new one says."""
    desk = Desk()
    topics = b"".join(encode_subscription(f"a/{number}") for number in range(MANY))
    old = desk.open()
    desk.send(old, topics + encode_publication("status", b"offline", will=True, cache=True))
    desk.close(old)
    new = desk.open()
    desk.pub(new, "status", b"online", cache=True)
    desk.advance(0.0)
    watcher = desk.open()
    desk.sub(watcher, "status")
    assert [body for _, _, body in desk.messages(watcher)] == [b"online"]


def test_it_is_sent_nothing_more() -> None:
    """Not even its own will, in the call that ends it; later it is the edge that knows."""
    desk = Desk()
    client = _crowd(desk, "a")
    desk.sub(client, "will/a")
    desk.messages(client)
    desk.close(client)
    assert desk.messages(client) == []


def test_a_departure_of_exactly_full_steps_ends() -> None:
    desk = Desk()
    observer = _observer(desk)
    client = _crowd(desk, "a", STEP * 2)
    desk.messages(observer)
    desk.close(client)
    desk.advance(0.0)
    assert _said(desk, observer) == _ending("a", 1) + _interests("a")[: STEP * 2]


def test_others_are_served_meanwhile_and_not_told_of_topics_too_early() -> None:
    desk = Desk()
    observer = _observer(desk)
    client = _crowd(desk, "a")
    desk.close(client)
    desk.messages(observer)
    other = desk.open()
    desk.messages(observer)
    # The last topic has not been given up yet: two want it, then one.
    last = f"a/{MANY - 1}"
    desk.sub(other, last)
    assert desk.messages(observer) == [(0x24, last, (2).to_bytes(8, "big"))]
    desk.pub(other, last, b"still served")
    assert (0, last, b"still served") in desk.messages(other)
    desk.advance(0.0)
    assert (0x24, last, (1).to_bytes(8, "big")) in desk.messages(observer)
    desk.pub(other, last, b"and now")
    assert desk.messages(other) == [(0, last, b"and now")]


def test_who_leaves_first_is_said_first_and_whole() -> None:
    desk = Desk()
    observer = _observer(desk)
    first, second, small = _crowd(desk, "a"), _crowd(desk, "b"), _crowd(desk, "c", 1)
    desk.messages(observer)
    for client in (first, second, small):
        desk.close(client)
    said = _said(desk, observer)
    # A small one need not wait for the large ones, nor do wills.
    assert [each for each in said if each[0][0] != "a"] == [
        *_ending("a", 3),
        *_ending("b", 2),
        ("c/0", b""),
        *_ending("c", 1),
    ]
    desk.advance(0.0)
    said += _said(desk, observer)
    assert [each for each in said if each[0][:2] in ("a/", "b/")] == [
        *_interests("a"),
        *_interests("b"),
    ]


def test_a_stop_in_the_middle_of_it_says_everything() -> None:
    desk = Desk()
    observer = _observer(desk)
    client = _crowd(desk, "a")
    desk.messages(observer)
    desk.close(client)
    desk.done(desk.broker.stop(desk.now))
    assert _said(desk, observer) == _ending("a", 1) + _interests("a")


def test_its_wills_are_in_the_journal_once() -> None:
    desk = Desk()
    client = _crowd(desk, "a")
    desk.journal()
    desk.close(client)
    (record,) = desk.journal()
    assert record[0] == client
    assert [(topic, body) for _, topic, body in record[3]] == [("will/a", b"0"), ("will/a", b"1")]
    desk.advance(60.0)
    assert desk.journal() == []


def _disconnected(desk: Desk, name: str) -> int:
    """A crowd that makes the broker search too much; what its wildcards say was taken."""
    client = _crowd(desk, name)
    desk.advance(2.0)
    wildcards = b"".join(encode_publication(f"*/*/{n}", b"x") for n in range(5 * MANY))
    outputs = desk.send(client, wildcards)
    assert [close.connection for close in outputs.closes] == [client]
    return client


def test_whom_the_broker_disconnects_leaves_step_by_step_too() -> None:
    desk = Desk(bus={"max_steps_per_s": LIMIT})
    observer = _observer(desk)
    client = _disconnected(desk, "a")
    assert all(body for topic, body in _said(desk, observer) if topic[:2] == "a/")  # none ended
    assert desk.broker.next_deadline() == desk.now
    said = []
    for step in range(3):  # each of a tick
        desk.done(desk.broker.tick(desk.now))
        said += _said(desk, observer)
        assert said == _interests("a")[: STEP * (step + 1)]
    # Its socket is closed only now; the wills come then, and nothing is said twice.
    desk.close(client)
    assert _said(desk, observer) == _ending("a", 1) + _interests("a")[STEP * 3 :]
    due = desk.broker.next_deadline()
    assert due is None or due > desk.now


def test_whom_the_broker_disconnects_may_be_gone_before_its_socket_is() -> None:
    desk = Desk(bus={"max_steps_per_s": LIMIT})
    observer = _observer(desk)
    client = _disconnected(desk, "a")
    desk.messages(observer)
    desk.advance(0.0)
    assert _said(desk, observer) == _interests("a")
    desk.close(client)
    assert _said(desk, observer) == _ending("a", 1)


def test_a_queue_with_many_subscriptions_is_deleted_step_by_step() -> None:
    stage = Stage()
    owner, publisher, watcher = stage.enter(), stage.enter(), stage.enter()
    heard: list[Interest] = []

    def hear(news: Interest | int) -> Sequence[Command]:
        if isinstance(news, Interest):
            heard.append(news)
        return ()

    stage.servers[0].heard = hear
    stage.do(owner, OpenQueue(b"q"))
    for number in range(MANY):
        stage.do(owner, Subscribe(b"q/%d" % number, queue=b"q"))
    heard.clear()
    stage.do(owner, DeleteQueue(b"q"))
    at_once = len(heard)
    assert at_once < MANY
    # It is gone for everybody: what is published meanwhile goes nowhere, and its name is free.
    stage.do(publisher, Publish(b"q/%d" % (MANY - 1), b"x"))
    stage.do(watcher, OpenQueue(b"q"), Consume(b"q", 9))
    assert stage.queued(watcher) == []
    stage.advance(0.0)
    assert [interest.topic for interest in heard] == [b"q/%d" % number for number in range(MANY)]
    stage.do(publisher, Enqueue(b"q", b"new"))
    assert stage.queued(watcher) == [b"new"]
