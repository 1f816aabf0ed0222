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
