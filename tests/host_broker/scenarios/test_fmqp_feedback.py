"""FMQP: the feedback system and the broker's own topics."""

import pytest

from host_broker.bus.publication import pack
from tests.host_broker.desk import Desk


def _count(number: int) -> bytes:
    return number.to_bytes(8, "big")


def test_count_mode_tells_how_many_want_a_topic() -> None:
    """R45, A4, A18: subscribing, unsubscribing and leaving; empty when nobody is left."""
    desk = Desk()
    watcher, one, two, three = (desk.open() for _ in range(4))
    desk.sub(watcher, "a/b", feedback=True)
    for client in (one, two, three):
        desk.sub(client, "a/b")
    desk.sub(one, "a/b", unsubscribe=True)
    desk.close(two)
    desk.sub(three, "a/b", unsubscribe=True)
    bodies = [_count(1), _count(2), _count(3), _count(2), _count(1), b""]
    assert desk.messages(watcher) == [(0x24, "a/b", body) for body in bodies]


def test_event_mode_tells_every_change() -> None:
    """R45, A4: 0x01 for every subscription, empty for every end of one."""
    desk = Desk(fmqp={"feedback_payload": "event"})
    watcher, one, two = desk.open(), desk.open(), desk.open()
    desk.sub(watcher, "a", feedback=True)
    desk.sub(one, "a")
    desk.sub(two, "a")
    desk.sub(one, "a", unsubscribe=True)
    assert [body for _, _, body in desk.messages(watcher)] == [b"\1", b"\1", b""]


def test_subscribing_again_announces_again() -> None:
    """R45: on every subscribe; unsubscribing from what is not subscribed is none."""
    desk = Desk()
    watcher, client = desk.open(), desk.open()
    desk.sub(watcher, "a", feedback=True)
    desk.sub(client, "a", unsubscribe=True)
    desk.sub(client, "a")
    desk.sub(client, "a")
    assert [body for _, _, body in desk.messages(watcher)] == [_count(1), _count(1)]


def test_feedback_is_cached_the_empty_one_too() -> None:
    """R46, A5."""
    desk = Desk()
    client = desk.open()
    desk.sub(client, "a")
    desk.sub(client, "b")
    desk.sub(client, "b", unsubscribe=True)
    publisher = desk.open()
    desk.sub(publisher, "*", feedback=True)
    assert desk.messages(publisher) == [(0x24, "a", _count(1)), (0x24, "b", b"")]


def test_debug_subscriptions_are_not_reported_and_deliver() -> None:
    """R47, R48, A19: not when made, ended by packet or by leaving, and not in the count."""
    desk = Desk()
    watcher, quiet, loud = desk.open(), desk.open(), desk.open()
    desk.sub(watcher, "a", feedback=True)
    desk.sub(quiet, "a", debug=True)
    desk.sub(loud, "a")
    desk.pub(loud, "a", b"x")
    assert desk.messages(quiet) == [(0, "a", b"x")]
    assert [body for _, _, body in desk.messages(watcher)] == [_count(1)]
    desk.sub(quiet, "a", unsubscribe=True)
    desk.sub(quiet, "a", debug=True)
    desk.close(quiet)
    assert desk.messages(watcher) == []


def test_a_debug_subscription_does_not_hide_a_regular_one() -> None:
    """A19: the regular subscription stays one, and its end is reported."""
    desk = Desk()
    watcher, client = desk.open(), desk.open()
    desk.sub(watcher, "a", feedback=True)
    desk.sub(client, "a")
    desk.sub(client, "a", debug=True)
    desk.sub(client, "a", unsubscribe=True, debug=True)
    assert [body for _, _, body in desk.messages(watcher)] == [_count(1), b""]


def test_a_debug_subscription_becomes_regular() -> None:
    """R45, R47."""
    desk = Desk()
    watcher, client = desk.open(), desk.open()
    desk.sub(watcher, "a", feedback=True)
    desk.sub(client, "a", debug=True)
    desk.sub(client, "a")
    desk.close(client)
    assert [body for _, _, body in desk.messages(watcher)] == [_count(1), b""]


def test_the_two_systems_never_mix() -> None:
    """R43, R44, A19: and a subscription to feedback raises none."""
    desk = Desk()
    regular, feedback = desk.open(), desk.open()
    desk.sub(regular, "a")
    desk.messages(feedback)
    desk.sub(feedback, "a", feedback=True)
    assert desk.messages(feedback) == [(0x24, "a", _count(1))]
    desk.pub(regular, "a", b"x")
    desk.send(regular, pack(0x24, b"a", b"forged"))
    assert desk.messages(feedback) == []
    assert desk.messages(regular) == [(0, "a", b"x")]
    desk.sub(feedback, "a", feedback=True, unsubscribe=True)
    desk.sub(regular, "a", unsubscribe=True)
    assert desk.messages(feedback) == []


def test_feedback_is_routed_by_equivalence() -> None:
    """R49."""
    desk = Desk()
    watcher, client = desk.open(), desk.open()
    desk.sub(watcher, "a/b", feedback=True)
    desk.sub(client, "a/*")
    desk.sub(client, "b/*")
    assert desk.messages(watcher) == [(0x24, "a/*", _count(1))]


def test_the_number_of_clients() -> None:
    """R40, R41, A21: on every change, of any protocol, and cached."""
    desk = Desk()
    watcher = desk.open()
    desk.sub(watcher, "$/info/clients")
    other, lightmq = desk.open(), desk.open("lightmq")
    desk.close(other)
    desk.close(lightmq)
    counts = [_count(number) for number in (1, 2, 3, 2, 1)]
    assert desk.messages(watcher) == [(4, "$/info/clients", body) for body in counts]


@pytest.mark.parametrize(
    "topic", ["$", "$/info/clients", "$/x", "$/signals", "$/signals/*", "$/*/*"]
)
@pytest.mark.parametrize("flags", [{}, {"cache": True}])
def test_service_topics_are_not_forwarded(topic: str, flags: dict[str, bool]) -> None:
    """R30: not delivered, not kept, not journalled."""
    desk = Desk()
    watcher, client = desk.open(), desk.open()
    for wanted in (topic, "$/*/*", "*/*/*"):
        desk.sub(watcher, wanted, debug=True)
    desk.messages(watcher)
    desk.pub(client, topic, b"forged", **flags)
    desk.pub(client, topic, b"", **flags)
    assert desk.messages(watcher) == []
    assert desk.journal() == []
    late = desk.open()
    desk.sub(late, "$/info/clients")
    assert desk.messages(late) == [(4, "$/info/clients", _count(3))]


def test_only_a_literal_dollar_is_a_service_topic() -> None:
    """A15: a wildcard publication is an ordinary one, to whoever subscribed to an equivalent."""
    desk = Desk()
    watcher, client = desk.open(), desk.open()
    desk.sub(watcher, "$/signals/stop")
    desk.pub(client, "*/signals/stop", b"x")
    assert desk.messages(watcher) == [(0, "*/signals/stop", b"x")]
    assert desk.closes == []
