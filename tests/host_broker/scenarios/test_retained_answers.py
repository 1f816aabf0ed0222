"""Retained messages are handed out step by step: what happens in between."""

import pytest

from host_broker.bus.commands import Disconnect, Publish, Send, Subscribe
from host_broker.bus.delivery import Delivery
from host_broker.bus.publication import unpack
from host_broker.protocols.fmqp.spelling import encode_publication, encode_subscription
from tests.host_broker.desk import Desk
from tests.host_broker.scripted import Given, Stage

_BODY = 100 * 1024  # three of them are a step
_COUNT = 10
_TOPICS = [f"r/{number}" for number in range(_COUNT)]


def retaining() -> tuple[Desk, int, int]:
    """A broker with long retained messages, a publisher, and a client that takes nothing yet."""
    desk = Desk()
    publisher, client = desk.open(), desk.open()
    for topic in _TOPICS:
        desk.pub(publisher, topic, b"old" + bytes(_BODY), cache=True)
    desk.slow.add(client)
    return desk, publisher, client


def heard(desk: Desk, client: int) -> list[tuple[str, bytes]]:
    return [(topic, body[:3]) for _, topic, body in desk.messages(client)]


def go_on(desk: Desk, client: int) -> None:
    desk.broker.proceed(client, desk.now)
    desk.done()


def the_rest(desk: Desk, client: int) -> list[tuple[str, bytes]]:
    desk.slow.discard(client)
    go_on(desk, client)
    return heard(desk, client)


def test_a_subscriber_that_reads_nothing_is_given_one_step() -> None:
    desk, _, client = retaining()
    desk.sub(client, "r/*")
    assert len(heard(desk, client)) == 3
    assert (client, "retained") in desk.held
    for _ in range(5):
        desk.advance(10.0)
    assert heard(desk, client) == []
    go_on(desk, client)
    assert len(heard(desk, client)) == 3
    assert len(the_rest(desk, client)) == _COUNT - 6
    assert desk.held == set()


def test_each_is_told_once_and_as_it_is_now() -> None:
    """What is published meanwhile comes at once; its old form does not come after it."""
    desk, publisher, client = retaining()
    desk.sub(client, "r/*")
    told = heard(desk, client)
    waiting = [topic for topic in _TOPICS if topic not in dict(told)]
    replaced, cleared, live = waiting[0], waiting[1], waiting[2]
    desk.pub(publisher, replaced, b"new", cache=True)
    desk.pub(publisher, cleared, b"", cache=True)
    desk.pub(publisher, live, b"not")
    desk.pub(publisher, "r/later", b"new", cache=True)
    assert heard(desk, client) == [(replaced, b"new"), (live, b"not"), ("r/later", b"new")]
    rest = the_rest(desk, client)
    assert sorted(rest) == sorted((topic, b"old") for topic in waiting[2:])


def test_what_was_replaced_is_not_kept_for_who_never_reads() -> None:
    desk, publisher, client = retaining()
    desk.sub(client, "r/*")
    heard(desk, client)
    answers = desk.broker._clients[client].answers
    assert answers is not None
    (answer,) = answers
    assert any(message() is not None for message in answer.messages)
    for topic in _TOPICS:
        desk.pub(publisher, topic, b"", cache=True)
    assert all(message() is None for message in answer.messages)
    assert the_rest(desk, client) == []


def test_commands_after_it_in_the_same_read_wait() -> None:
    desk, publisher, client = retaining()
    desk.sub(publisher, "said")
    commands = (
        encode_subscription("r/*"),
        encode_publication("said", b"1"),
        encode_subscription("r/*", unsubscribe=True),
        encode_subscription("r/0"),
        encode_publication("said", b"2"),
    )
    desk.send(client, b"".join(commands))
    assert len(heard(desk, client)) == 3
    assert desk.messages(publisher) == []
    desk.pub(publisher, "r/new", b"sub")  # it is subscribed until that is its turn
    assert heard(desk, client) == [("r/new", b"sub")]
    rest = the_rest(desk, client)
    assert rest[-1] == ("r/0", b"old")
    assert len(rest) == _COUNT - 3 + 1
    assert [body for _, _, body in desk.messages(publisher)] == [b"1", b"2"]
    desk.pub(publisher, "r/new", b"not")
    assert heard(desk, client) == []


def test_a_read_that_was_under_way_waits_too() -> None:
    """TLS may have read more than was asked for."""
    desk, publisher, client = retaining()
    desk.sub(publisher, "said")
    desk.sub(client, "r/*")
    desk.pub(client, "said", b"1")
    desk.pub(client, "said", b"2")
    assert desk.messages(publisher) == []
    the_rest(desk, client)
    assert [body for _, _, body in desk.messages(publisher)] == [b"1", b"2"]


def test_two_subscriptions_in_one_read_are_answered_one_after_the_other() -> None:
    desk, publisher, client = retaining()
    desk.pub(publisher, "s", b"old", cache=True)
    desk.send(client, encode_subscription("r/*") + encode_subscription("s"))
    first, rest = heard(desk, client), the_rest(desk, client)
    assert len(first + rest) == _COUNT + 1
    assert rest[-1] == ("s", b"old")


def test_who_leaves_meanwhile_has_said_what_it_has_said() -> None:
    """Its publications count, and its wills come after them; it is told nothing more."""
    desk, publisher, client = retaining()
    desk.sub(publisher, "said")
    commands = (
        encode_publication("said", b"will", will=True),
        encode_subscription("r/*"),
        encode_publication("said", b"last"),
    )
    desk.send(client, b"".join(commands))
    heard(desk, client)
    desk.close(client)
    assert [body for _, _, body in desk.messages(publisher)] == [b"last", b"will"]
    assert heard(desk, client) == []
    go_on(desk, client)  # the edge may still say so
    assert heard(desk, client) == []


def test_a_stop_meanwhile() -> None:
    desk, publisher, client = retaining()
    desk.sub(publisher, "said")
    desk.send(client, encode_publication("said", b"will", will=True) + encode_subscription("r/*"))
    desk.broker.stopping()
    go_on(desk, client)
    heard(desk, client)
    desk.broker.stop(desk.now)
    desk.done()
    assert [body for _, _, body in desk.messages(publisher)] == [b"will"]


def test_a_signal_that_waited_leaves_no_will_behind() -> None:
    """R31, R36: also those that are said in the same turn as the signal."""
    desk, publisher, client = retaining()
    desk.sub(publisher, "said")
    wills = b"".join(encode_publication("said", body, will=True) for body in (b"1", b"2", b"3"))
    other = desk.open()
    desk.send(other, wills)
    desk.send(
        client, wills + encode_subscription("r/*") + encode_publication("$/signals/stop", b"")
    )
    heard(desk, client)
    desk.broker.received(publisher, encode_publication("$/signals/stop", b"!"), desk.now)
    desk.broker.closed(other, desk.now)  # in the same turn
    desk.done()
    assert [body for _, _, body in desk.messages(publisher)] == [b"1", b"2", b"3"]
    desk.close(client)
    assert [body for _, _, body in desk.messages(publisher)] == [b"1", b"2", b"3"]


def test_a_violation_after_it_ends_the_connection_when_its_turn_has_come() -> None:
    desk, _, client = retaining()
    hard = b"\0\1\xff\xff\xff\xff"  # a length that nobody can mean
    desk.send(client, encode_subscription("r/*") + hard)
    assert desk.closes == []
    the_rest(desk, client)
    assert [close.connection for close in desk.closes] == [client]


def test_time_does_not_wait() -> None:
    """What a session does by the clock happens at once, all of it, and what was asked for waits."""
    stage = Stage()
    publisher, client = stage.enter(), stage.enter()
    for topic in _TOPICS:
        stage.do(publisher, Publish(topic.encode(), bytes(_BODY), retain=True))
    stage.slow.add(client)
    session = stage.session(client)
    session.deadline = stage.now + 5
    session.due = [Send(b"PING"), Disconnect("silent", abort=True)]
    stage.do(client, Subscribe(b"r/*"), Publish(b"said", b"x"))
    assert stage.closes == []
    stage.advance(10)
    assert stage.got(client) == b"PING"
    assert [close.connection for close in stage.closes] == [client]


def test_a_subscription_that_somebody_else_causes_is_answered_after_the_one_under_way() -> None:
    stage = Stage()
    publisher, client = stage.enter(), stage.enter()
    for topic in [*_TOPICS, "s/1"]:
        stage.do(publisher, Publish(topic.encode(), bytes(_BODY), retain=True))
    stage.slow.add(client)

    def reply(given: Given) -> list[Subscribe]:
        assert isinstance(given, Delivery)
        return [Subscribe(b"s/*", id=2)] if given.subscriptions == (3,) else []

    stage.session(client).reply = reply
    stage.do(client, Subscribe(b"go", id=3), Subscribe(b"r/*", id=1))
    stage.do(publisher, Publish(b"go", b"!"))
    stage.slow.discard(client)
    stage.broker.proceed(client, stage.now)
    stage.done()
    ids = [each.subscriptions for each in stage.given(client) if isinstance(each, Delivery)]
    assert ids.count((1,)) == _COUNT
    assert ids[-1] == (2,)


@pytest.mark.parametrize("verbatim", [False, True])
def test_a_long_answer_to_each_kind_of_session(verbatim: bool) -> None:
    stage = Stage()
    publisher, client = stage.enter(), stage.enter(verbatim)
    for topic in _TOPICS:
        stage.do(publisher, Publish(topic.encode(), bytes(_BODY), retain=True))
    stage.do(client, Subscribe(b"r/*", id=1))
    if verbatim:
        assert len(list(unpack(stage.got(client)))) == _COUNT
    else:
        assert len(stage.given(client)) == _COUNT
