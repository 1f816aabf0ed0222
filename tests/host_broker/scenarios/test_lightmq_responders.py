"""A client's SEND gets an answer, if somebody on the bus says to answer it."""

import pytest

from host_broker.protocols.lightmq.codec import MAX_SENDRESP
from host_broker.protocols.lightmq.events import SendResp
from tests.host_broker.desk import Desk
from tests.host_broker.lightmq_peer import board


def responder(desk: Desk, topic: str = "lightmq/*/up/*", **flags: bool) -> int:
    client = desk.open()
    desk.sub(client, topic, **flags)
    return client


@pytest.mark.parametrize("topic", ["lightmq/*/up/*", "lightmq/kitchen/up/*"])
def test_the_answer_is_the_response(topic: str) -> None:
    """R17, R18: under the id of the SEND, when it comes; answers in any order."""
    desk = Desk()
    answering, kitchen = responder(desk, topic), board(desk, "kitchen")
    assert kitchen.say(kitchen.codec.send(7, b"what?") + kitchen.codec.send(8, b"when?")) == []
    assert desk.messages(answering) == [
        (0, "lightmq/kitchen/up/7", b"what?"),
        (0, "lightmq/kitchen/up/8", b"when?"),
    ]
    desk.pub(answering, "lightmq/kitchen/answer/8", b"now")
    desk.pub(answering, "lightmq/kitchen/answer/7", b"this")
    assert kitchen.heard() == [SendResp(8, b"now"), SendResp(7, b"this")]


def test_without_a_responder_the_bus_responds_at_once() -> None:
    """A9: also when others listen to everything, and when the responder has gone."""
    desk = Desk()
    others = [responder(desk, "*/*/*/*"), responder(desk, "lightmq/hall/up/*")]
    others.append(responder(desk, "lightmq/kitchen/up/*", debug=True))
    going, kitchen = responder(desk), board(desk, "kitchen")
    desk.close(going)
    assert kitchen.say(kitchen.codec.send(7, b"x")) == [SendResp(7, b"")]
    assert [desk.messages(other) for other in others] == [[], [], []]


def test_one_responder_more_or_less() -> None:
    """R17: as long as one is left, it is asked."""
    desk = Desk()
    first, second = responder(desk), responder(desk)
    kitchen = board(desk, "kitchen")
    desk.close(first)
    assert kitchen.say(kitchen.codec.send(1, b"x")) == []
    desk.pub(second, "lightmq/kitchen/answer/1", b"y")
    assert kitchen.heard() == [SendResp(1, b"y")]
    desk.sub(second, "lightmq/*/up/*", unsubscribe=True)
    assert kitchen.say(kitchen.codec.send(2, b"x")) == [SendResp(2, b"")]


def test_a_late_answer_is_none() -> None:
    """Settings.lightmq.answer_timeout_s: the bus responds in its place."""
    desk = Desk(lightmq={"answer_timeout_s": 4, "ping_interval_s": 0})
    answering, kitchen = responder(desk), board(desk, "kitchen")
    kitchen.say(kitchen.codec.send(1, b"x"))
    desk.advance(3.9)
    assert kitchen.heard() == []
    desk.advance(0.2)
    assert kitchen.heard() == [SendResp(1, b"")]
    desk.pub(answering, "lightmq/kitchen/answer/1", b"late")
    assert kitchen.heard() == []
    assert desk.discarded["R18"] == 1


def test_who_listens_to_up_hears_it_once_and_the_journal_too() -> None:
    desk = Desk()
    responder(desk)
    listener, kitchen = desk.open(), board(desk, "kitchen")
    desk.sub(listener, "lightmq/*/up")
    desk.journal()
    kitchen.say(kitchen.codec.send(1, b"x"))
    assert desk.messages(listener) == [(0, "lightmq/kitchen/up", b"x")]
    assert desk.journal() == [
        (kitchen.connection, 2, "kitchen", [(0, "lightmq/kitchen/up", b"x")]),
    ]
    assert desk.broker.stats.publications == 1


@pytest.mark.parametrize("number", ["2", "x", "-1", "99999999999", "²", "1x", "*"])
def test_answers_to_nothing(number: str) -> None:
    """R18: of no SEND that waits; nothing is sent, nobody is closed."""
    desk = Desk()
    answering, kitchen = responder(desk), board(desk, "kitchen")
    kitchen.say(kitchen.codec.send(1, b"x"))
    desk.pub(answering, f"lightmq/kitchen/answer/{number}", b"y")
    assert kitchen.heard() == []
    assert desk.closes == []
    desk.pub(answering, "lightmq/kitchen/answer/1", b"y")
    assert kitchen.heard() == [SendResp(1, b"y")]


def test_an_answer_too_long_for_a_sendresp() -> None:
    """R17: an empty response, rather than none."""
    desk = Desk()
    answering, kitchen = responder(desk), board(desk, "kitchen")
    kitchen.say(kitchen.codec.send(1, b"x") + kitchen.codec.send(2, b"x"))
    desk.pub(answering, "lightmq/kitchen/answer/1", bytes(MAX_SENDRESP + 1))
    desk.pub(answering, "lightmq/kitchen/answer/2", bytes(MAX_SENDRESP))
    assert kitchen.heard() == [SendResp(1, b""), SendResp(2, bytes(MAX_SENDRESP))]


def test_more_questions_than_can_wait() -> None:
    """Settings.lightmq.max_pending; and an id that still waits is not asked twice (R18)."""
    desk = Desk(lightmq={"max_pending": 2})
    responder(desk)
    kitchen = board(desk, "kitchen")
    assert kitchen.say(kitchen.codec.send(1, b"x") + kitchen.codec.send(1, b"y")) == [
        SendResp(1, b"")
    ]
    assert kitchen.say(kitchen.codec.send(2, b"x")) == []
    assert kitchen.say(kitchen.codec.send(3, b"x")) == [SendResp(3, b"")]


def test_an_empty_send_asks_nobody() -> None:
    """FMQP R18: it could not be delivered."""
    desk = Desk()
    responder(desk)
    kitchen = board(desk, "kitchen")
    assert kitchen.say(kitchen.codec.send(1, b"")) == [SendResp(1, b"")]
