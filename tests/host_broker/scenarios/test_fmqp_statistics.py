"""FMQP: ``$/info/messages/second`` in simulated time."""

import pytest

from host_broker.bus.publication import pack
from tests.host_broker.desk import Desk

_TOPIC = "$/info/messages/second"


def _told(*counts: int) -> list[tuple[int, str, bytes]]:
    return [(0, _TOPIC, count.to_bytes(8, "big")) for count in counts]


@pytest.mark.parametrize("topic", [_TOPIC, "$/*/*/second", "*/*/*/*"])
def test_every_second(topic: str) -> None:
    """R42, A20: publications and subscriptions, wills and empty ones; not what is incorrect."""
    desk = Desk()
    watcher, client = desk.open(), desk.open()
    desk.sub(watcher, topic)
    desk.sub(client, "a")
    desk.send(client, pack(0, b"a", b"x") * 5 + pack(4, b"a", b"x") + pack(0, b"b", b""))
    desk.pub(client, "a", b"bye", will=True)
    desk.send(client, pack(0, b"/", b"x") + pack(0x20, b"a", b"x") + pack(0, b"a", b"x")[:-1])
    desk.advance(0.99)
    assert desk.messages(watcher) == []
    desk.advance(0.01)
    assert desk.messages(watcher) == _told(9)
    desk.send(client, b"x")
    desk.advance(2)
    assert desk.messages(watcher) == _told(1, 0)


def test_nobody_who_wants_it_no_clock() -> None:
    """R42: an idle broker sleeps; and every kind of ending ends the ticks."""
    desk = Desk()
    client = desk.open()
    assert desk.broker.next_deadline() is None
    desk.sub(client, _TOPIC)
    desk.sub(client, "$/*/*/*")
    assert desk.broker.next_deadline() == desk.now + 1
    desk.sub(client, _TOPIC, unsubscribe=True)
    desk.advance(1)
    assert len(desk.messages(client)) == 1
    desk.sub(client, "$/*/*/*", unsubscribe=True)
    desk.advance(5)
    assert desk.messages(client) == []
    assert desk.broker.next_deadline() is None
    desk.sub(client, _TOPIC)
    desk.close(client)
    desk.advance(5)
    assert desk.messages(client) == []
    assert desk.broker.next_deadline() is None


def test_it_is_not_cached_and_is_no_feedback() -> None:
    """R42, R43, A20: a late subscriber waits for its first second."""
    desk = Desk()
    early, late, feedback = desk.open(), desk.open(), desk.open()
    desk.sub(early, _TOPIC)
    desk.sub(feedback, _TOPIC, feedback=True)
    desk.messages(feedback)
    desk.advance(1.5)
    desk.sub(late, _TOPIC, debug=True)
    assert desk.messages(late) == []
    desk.advance(1)
    assert desk.messages(late) == _told(0)
    assert desk.messages(feedback) == []


def test_a_late_tick_is_one_tick() -> None:
    """R42: a broker that was held up does not catch up with a burst."""
    desk = Desk()
    watcher = desk.open()
    desk.sub(watcher, _TOPIC)
    desk.pub(watcher, "a", b"x")
    desk.now += 10
    desk.done(desk.broker.tick(desk.now))
    assert desk.messages(watcher) == _told(1)
    assert desk.broker.next_deadline() == desk.now + 1


def test_a_stop_ends_it() -> None:
    """R34: from the signal on the broker has no more to say than wills."""
    desk = Desk()
    watcher = desk.open()
    desk.sub(watcher, _TOPIC)
    desk.pub(watcher, "$/signals/stop", b"")
    desk.advance(5)
    desk.done(desk.broker.tick(desk.now))
    assert desk.messages(watcher) == []


def test_what_was_discarded_is_told_by_protocol_and_rule() -> None:
    """$/info/dropped: all numbers at first, then those that have changed."""
    desk = Desk()
    watcher, one, client = desk.open(), desk.open(), desk.open()
    desk.send(client, pack(0, b"/", b"x") * 3)
    desk.sub(watcher, "$/info/dropped/*/*")
    desk.sub(one, "$/info/dropped/fmqp/R30")
    desk.sub(client, "*/*/*/*/*")
    desk.advance(1)
    assert desk.messages(watcher) == [(0, "$/info/dropped/fmqp/R9", (3).to_bytes(8, "big"))]
    desk.advance(1)
    assert desk.messages(watcher) == []
    desk.pub(client, "$/x", b"y")
    board = desk.lightmq("board")
    desk.send(board, bytes.fromhex("0600021234"))
    desk.broker.stats.dropped_of("lightmq").add(7, 700)
    desk.advance(1)
    assert desk.messages(watcher) == [
        (0, "$/info/dropped/fmqp/R30", (1).to_bytes(8, "big")),
        (0, "$/info/dropped/lightmq/R17", (1).to_bytes(8, "big")),
        (0, "$/info/dropped/lightmq/slow", (7).to_bytes(8, "big")),
    ]
    assert desk.messages(one) == [(0, "$/info/dropped/fmqp/R30", (1).to_bytes(8, "big"))]
    assert desk.messages(client) == []
    desk.sub(watcher, "$/info/dropped/*/*", unsubscribe=True)
    desk.sub(one, "$/info/dropped/fmqp/R30", unsubscribe=True)
    desk.advance(5)
    assert desk.messages(watcher) == []
