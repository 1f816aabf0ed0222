"""FMQP: who gets a publication, and in what form."""

import pytest

from host_broker.bus.publication import pack
from tests.host_broker.desk import Desk


@pytest.mark.parametrize(
    ("subscribed", "published", "delivered"),
    [
        ("a/b", "a/b", True),
        ("a/*", "a/b", True),
        ("*/b", "a/b", True),
        ("*/*", "a/b", True),
        ("a/b", "a/*", True),
        ("a/b", "*/*", True),
        ("a/*", "*/b", True),
        ("a/b", "a/c", False),
        ("a", "a/b", False),
        ("*", "a/b", False),
        ("a/*", "a", False),
        ("a/*", "a/b/c", False),
        ("a*", "ab", False),
        ("a*", "a*", True),
        ("a/*/b", "a//b", True),
        ("a/b", "a//b", False),
        ("*/clients", "$a/clients", True),
    ],
)
def test_equivalence_decides(subscribed: str, published: str, delivered: bool) -> None:
    """R10 to R14, A8."""
    desk = Desk()
    subscriber, publisher = desk.open(), desk.open()
    desk.sub(subscriber, subscribed)
    desk.pub(publisher, published, b"x")
    assert desk.messages(subscriber) == ([(0, published, b"x")] if delivered else [])


def test_once_per_client_however_many_subscriptions_match() -> None:
    """R15, R50, A14: and a publisher gets its own."""
    desk = Desk()
    client = desk.open()
    for topic in ("a/b", "a/*", "*/b", "*/*", "a/b"):
        desk.sub(client, topic)
    desk.pub(client, "a/b", b"x")
    assert desk.messages(client) == [(0, "a/b", b"x")]


def test_unsubscribing_ends_exactly_that_subscription() -> None:
    """R16, R17."""
    desk = Desk()
    client = desk.open()
    desk.sub(client, "a/b")
    desk.sub(client, "a/*")
    desk.sub(client, "a/*", unsubscribe=True)
    desk.pub(client, "a/b", b"1")
    desk.pub(client, "a/c", b"2")
    assert desk.messages(client) == [(0, "a/b", b"1")]
    desk.sub(client, "a/b", unsubscribe=True)
    desk.pub(client, "a/b", b"3")
    assert desk.messages(client) == []


@pytest.mark.parametrize("flags", [{}, {"cache": True}])
def test_empty_messages_go_nowhere(flags: dict[str, bool]) -> None:
    """R18: not to clients, and not to the journal."""
    desk = Desk()
    client = desk.open()
    desk.sub(client, "a/b")
    desk.pub(client, "a/b", b"", **flags)
    assert desk.messages(client) == []
    assert desk.journal() == []


def test_topics_are_forwarded_normal() -> None:
    """R8, A12: what is subscribed or published with slashes is the same topic."""
    desk = Desk()
    client = desk.open()
    desk.send(client, pack(0x80, b"/home/", b""))
    desk.send(client, pack(0, b"//home//", b"x"))
    desk.send(client, pack(0, b"home", b"y"))
    assert desk.messages(client) == [(0, "home", b"x"), (0, "home", b"y")]
    desk.send(client, pack(0xC0, b"home/", b""))
    desk.pub(client, "home", b"z")
    assert desk.messages(client) == []


def test_meaningless_and_reserved_flags_are_not_forwarded() -> None:
    """A2, A3, A13: the cache flag is."""
    desk = Desk()
    client = desk.open()
    desk.sub(client, "a")
    desk.send(client, pack(0x57, b"a", b"x"))
    assert desk.messages(client) == [(0x04, "a", b"x")]


def test_incorrect_packets_are_discarded_and_the_connection_goes_on() -> None:
    """R4, R5, R7, R9, R44: no effect, no close, and the next packet is read."""
    desk = Desk()
    client, other = desk.open(), desk.open()
    desk.sub(client, "*")
    bad = [
        pack(0, b"", b"x"),
        pack(0, b"///", b"x"),
        pack(0, b"a\0", b"x"),
        pack(0, b"\xff", b"x"),
        pack(0x80, b"", b""),
        pack(0x24, b"a", b"x"),
    ]
    desk.send(other, b"".join(bad) + pack(0, b"a", b"good"))
    assert desk.messages(client) == [(0, "a", b"good")]
    assert desk.closes == []
    assert desk.discarded == {"R9": 3, "R7": 1, "R5": 1, "R44": 1}


def test_order_is_kept_between_topics() -> None:
    """R14: one receiver sees one publisher's messages in order, plain or not, batched or not."""
    desk = Desk()
    subscriber, publisher = desk.open(), desk.open()
    desk.sub(subscriber, "*")
    desk.sub(subscriber, "b/*")
    sent = [(0, "a", b"1"), (4, "a", b"2"), (0, "b/x", b"3"), (0, "none/x", b"4"), (0, "a", b"5")]
    desk.send(publisher, b"".join(pack(flags, t.encode(), body) for flags, t, body in sent))
    assert desk.messages(subscriber) == [m for m in sent if m[1] != "none/x"]


def test_a_subscription_changes_the_route_at_once() -> None:
    """R14, R16: also in the middle of one read, although routes are cached."""
    desk = Desk()
    client = desk.open()
    publication = pack(0, b"a/b", b"x")
    subscription, unsubscription = pack(0x80, b"a/*", b""), pack(0xC0, b"a/*", b"")
    desk.send(client, publication + subscription + publication + unsubscription + publication)
    assert desk.messages(client) == [(0, "a/b", b"x")]


def test_one_list_of_buffers_per_receiver_and_one_slice_per_run() -> None:
    """architecture.md: consecutive publications with one route are one slice of the read."""
    desk = Desk()
    one, two, publisher = desk.open(), desk.open(), desk.open()
    desk.sub(one, "*")
    desk.sub(two, "*")
    read = b"".join(pack(0, b"t%d" % (n % 3), b"x") for n in range(30))
    outputs = desk.send(publisher, read)
    assert outputs.sends == {one: [read], two: [read]}
    assert [record.body for record in outputs.records] == [read]
    assert outputs.records[0].count == 30


def test_nothing_is_sent_to_the_gone() -> None:
    """R14: only to connected clients."""
    desk = Desk()
    subscriber, publisher = desk.open(), desk.open()
    desk.sub(subscriber, "a")
    desk.pub(publisher, "a", b"while it is there: the route is cached")
    desk.messages(subscriber)
    desk.close(subscriber)
    assert desk.pub(publisher, "a", b"x").sends == {}
    assert desk.messages(subscriber) == []
    assert desk.send(subscriber, pack(0, b"a", b"x")).records == []


@pytest.mark.parametrize("flags", [0x00, 0x04, 0x80, 0xA0])
def test_nobody_introduces_himself(flags: int) -> None:
    """R52: no handshake and no secret; the first packet of a connection counts."""
    desk = Desk()
    client = desk.open()
    assert desk.got(client) == b""
    desk.send(client, pack(flags, b"a", b"x"))
    desk.sub(client, "a")
    desk.pub(client, "a", b"y")
    assert desk.messages(client)[-1] == (0, "a", b"y")
    assert desk.closes == []
