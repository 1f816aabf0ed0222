"""One LightMQ client calls another: its ClientID, ``NAME>ID``, says whom."""

import pytest

from host_broker.protocols.lightmq.events import Connack, Pong, SendResp
from tests.host_broker.desk import Desk
from tests.host_broker.lightmq_peer import Peer, board

_UNAVAILABLE = Connack(2, accepted=False)


def test_a_call() -> None:
    """R14, R17, R18, A9: the response of the board, under the caller's id, whatever is in it."""
    desk = Desk()
    kitchen = board(desk, "kitchen")
    desk_top = board(desk, "desk>kitchen")
    for answer in (b"\0binary\xff", b""):
        assert desk_top.say(desk_top.codec.send(0x1234, b"q")) == []
        (send,) = kitchen.sends()
        assert send.data == b"q"
        kitchen.say(kitchen.codec.sendresp(send.id, answer))
        assert desk_top.heard() == [SendResp(0x1234, answer)]


def test_calls_at_once() -> None:
    """R18: two callers with the same ids, several calls each, answered backwards."""
    desk = Desk()
    kitchen = board(desk, "kitchen")
    callers = [board(desk, "a>kitchen"), board(desk, "b>kitchen")]
    for number, caller in enumerate(callers):
        for id in (1, 2):
            caller.say(caller.codec.send(id, b"%d.%d" % (number, id)))
    for send in reversed(kitchen.sends()):
        kitchen.say(kitchen.codec.sendresp(send.id, b"re " + send.data))
    assert [caller.heard() for caller in callers] == [
        [SendResp(2, b"re 0.2"), SendResp(1, b"re 0.1")],
        [SendResp(2, b"re 1.2"), SendResp(1, b"re 1.1")],
    ]


def test_whoever_is_not_there_cannot_be_called() -> None:
    """R11: "unavailable", code 2; a carried client and a caller take no requests either."""
    desk = Desk()
    assert Peer(desk).connect("desk>kitchen") == _UNAVAILABLE
    board(desk, "carried", listener="lightmq+fmqp")
    assert Peer(desk).connect("desk>carried") == _UNAVAILABLE
    board(desk, "kitchen")
    board(desk, "desk>kitchen")
    assert Peer(desk).connect("x>desk>kitchen") == _UNAVAILABLE


def test_a_call_that_fails_closes_the_caller() -> None:
    """LightMQ has no error packet; the reason is in the log."""
    desk = Desk(lightmq={"request_timeout_s": 5})
    kitchen = board(desk, "kitchen")
    waits, idle = board(desk, "waits>kitchen"), board(desk, "idle>kitchen")
    assert waits.say(waits.codec.send(1, b"q")) == []
    desk.advance(5.1)
    assert "unanswered" in waits.why_closed
    assert not idle.closed
    other = board(desk, "other>kitchen")
    other.say(other.codec.send(1, b"q"))
    desk.close(kitchen.connection)
    assert "gone" in other.why_closed
    assert not idle.closed
    assert idle.say(idle.codec.send(1, b"q")) == []
    assert "'kitchen' is not connected" in idle.why_closed


def test_a_board_that_comes_back_is_called_again() -> None:
    desk = Desk()
    first = board(desk, "kitchen")
    caller = board(desk, "desk>kitchen")
    desk.close(first.connection)
    second = board(desk, "kitchen")
    caller.say(caller.codec.send(1, b"q"))
    (send,) = second.sends()
    second.say(second.codec.sendresp(send.id, b"a"))
    assert caller.heard() == [SendResp(1, b"a")]


def test_a_caller_is_nobody_on_the_bus() -> None:
    """Neither presence nor paths; what it asks is journalled under its name."""
    desk = Desk()
    watcher = desk.open()
    for depth in (3, 4):
        desk.sub(watcher, "/".join("*" * depth))
    kitchen = board(desk, "kitchen")
    desk.messages(watcher)
    desk.journal()
    caller = board(desk, "desk>kitchen")
    assert desk.messages(watcher) == [(0x04, "$/info/clients", (3).to_bytes(8, "big"))]
    assert caller.say(caller.codec.send(1, b"q")) == []
    (record,) = desk.journal()
    assert record[:3] == (caller.connection, 2, "desk>kitchen")
    (send,) = kitchen.sends()
    kitchen.say(kitchen.codec.sendresp(send.id, b"a"))
    topics = [topic for _, topic, _ in desk.messages(watcher)]
    assert [topic.split("/")[:3] for topic in topics] == [
        ["lightmq", "kitchen", end] for end in ("request", "reply", "done")
    ]
    assert len({topic.rpartition("/")[2] for topic in topics}) == 1
    desk.close(caller.connection)
    assert [topic for _, topic, _ in desk.messages(watcher)] == ["$/info/clients"]


def test_a_caller_leaves_no_subscriptions_behind() -> None:
    """A thousand calls on one connection, with room for a few."""
    desk = Desk(bus={"max_subscriptions": 5})
    kitchen = board(desk, "kitchen")
    caller = board(desk, "desk>kitchen")
    for id in range(1000):
        caller.say(caller.codec.send(id, b"q"))
        (send,) = kitchen.sends()
        kitchen.say(kitchen.codec.sendresp(send.id, b"a"))
        assert caller.heard() == [SendResp(id, b"a")]


def test_an_id_that_waits_and_too_many_that_do() -> None:
    """R18, Settings.lightmq.max_pending."""
    desk = Desk(lightmq={"max_pending": 2})
    board(desk, "kitchen")
    twice, many = board(desk, "twice>kitchen"), board(desk, "many>kitchen")
    twice.say(twice.codec.send(1, b"q") + twice.codec.send(1, b"q"))
    assert "R18" in twice.why_closed
    many.say(b"".join(many.codec.send(id, b"q") for id in range(3)))
    assert "max_pending" in many.why_closed


def test_an_empty_call_is_answered_by_the_bus() -> None:
    """FMQP R18: nothing empty is delivered, also not to the board."""
    desk = Desk()
    kitchen = board(desk, "kitchen")
    caller = board(desk, "desk>kitchen")
    assert caller.say(caller.codec.send(1, b"")) == [SendResp(1, b"")]
    assert kitchen.sends() == []


def test_what_others_publish_confuses_no_caller() -> None:
    """By wildcards, under tags that look like its own."""
    desk = Desk()
    kitchen, other = board(desk, "kitchen"), desk.open()
    caller = board(desk, "desk>kitchen")
    caller.say(caller.codec.send(1, b"q"))
    tag = f"{caller.connection}-1"
    for topic in ("*/*/*/*", f"*/*/*/{tag}", f"lightmq/*/reply/{tag}", "lightmq/kitchen/*/*"):
        desk.pub(other, topic, b"answered")
    assert caller.heard() == []
    kitchen_heard = kitchen.heard()
    assert kitchen_heard[0].data == b"q"
    kitchen.say(kitchen.codec.sendresp(kitchen_heard[0].id, b"a"))
    assert caller.heard() == [SendResp(1, b"a")]
    assert not caller.closed


def test_calls_are_off() -> None:
    """Settings.lightmq.calls: a ClientID is a ClientID."""
    desk = Desk(lightmq={"calls": False})
    watcher = desk.open()
    desk.sub(watcher, "lightmq/*/status")
    board(desk, "desk>kitchen")
    assert desk.messages(watcher) == [(4, "lightmq/desk>kitchen/status", b"online")]


@pytest.mark.parametrize("name", ["aa:bb:cc:dd:ee:ff", "a/b", "x" * 250, "*"])
def test_any_client_can_be_called(name: str) -> None:
    """R2: whatever its name is, as long as the caller's fits 255 bytes."""
    desk = Desk()
    kitchen, caller = board(desk, name), board(desk, f"d>{name}")
    caller.say(caller.codec.send(1, b"q"))
    (send,) = kitchen.sends()
    kitchen.say(kitchen.codec.sendresp(send.id, b"a"))
    assert caller.heard() == [SendResp(1, b"a")]


def test_who_calls_no_one_is_seen_by_nobody() -> None:
    """``NAME>``: it has no presence, and nothing is sent to it; what it SENDs is ``up``."""
    desk = Desk()
    watcher, sender = desk.open(), desk.open()
    desk.sub(watcher, "lightmq/*/status")
    desk.sub(watcher, "lightmq/*/up")
    unseen = Peer(desk)
    assert unseen.connect("x>").accepted
    assert unseen.say(unseen.codec.ping(7)) == [Pong(7)]
    assert unseen.say(unseen.codec.send(1, b"hello")) == [SendResp(1, b"")]
    two = unseen.codec.send(2, b"and") + unseen.codec.send(3, b"so on")
    assert unseen.say(two) == [SendResp(2, b""), SendResp(3, b"")]
    desk.pub(sender, "lightmq/x/down", b"nobody hears it")
    desk.pub(sender, "lightmq/x/request/1", b"nobody answers it")
    assert unseen.heard() == []
    desk.close(unseen.connection)
    up = [(0, "lightmq/x/up", payload) for payload in (b"hello", b"and", b"so on")]
    assert desk.messages(watcher) == up
