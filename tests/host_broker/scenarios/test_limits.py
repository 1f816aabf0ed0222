"""Limits that protect the broker, each by its setting; a long body in many reads stays cheap."""

import tracemalloc

import pytest

from host_broker.bus.publication import pack
from host_broker.bus.subscriptions import SubscriptionKey, Subscriptions
from host_broker.bus.trie import NODE_BYTES, Trie
from host_broker.settings import BusSettings
from tests.host_broker.desk import Desk


@pytest.mark.parametrize("cut", [1, 7, 100, 10_000])
def test_max_body_is_skipped_and_the_connection_goes_on(cut: int) -> None:
    """A11, Settings.bus.max_body: the longest allowed is delivered, one more byte is not."""
    desk = Desk(bus={"max_body": 1000})
    client = desk.open()
    desk.sub(client, "a")
    data = b"".join(pack(0, b"a", bytes(size)) for size in (1000, 1001, 3, 5000, 4))
    for start in range(0, len(data), cut):
        desk.send(client, data[start : start + cut])
    assert [len(body) for *_, body in desk.messages(client)] == [1000, 3, 4]
    assert desk.discarded == {"bus.max_body": 2}
    assert desk.closes == []


def test_a_long_body_is_not_buffered() -> None:
    """A11: 32 MiB of a body above the limit go through 1 MiB of memory."""
    desk = Desk(bus={"max_body": 1000})
    client = desk.open()
    desk.send(client, pack(0, b"a", b"")[:2] + (32 * 1024 * 1024).to_bytes(4, "big") + b"a")
    read = bytes(64 * 1024)
    tracemalloc.start()
    for _ in range(512):
        desk.send(client, read)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1024 * 1024
    desk.sub(client, "a")
    desk.pub(client, "a", b"next")
    assert desk.messages(client) == [(0, "a", b"next")]


def test_hard_body_limit_closes() -> None:
    """A11, Settings.fmqp.hard_body_limit: after the good packets before it, and for good."""
    desk = Desk(bus={"max_body": 10}, fmqp={"hard_body_limit": 100})
    client, other = desk.open(), desk.open()
    desk.sub(other, "a")
    desk.send(client, pack(0, b"a", bytes(100)))
    assert desk.closes == []
    desk.send(client, pack(0, b"a", b"x") + pack(0, b"a", bytes(101)) + pack(0, b"a", b"y"))
    assert desk.messages(other) == [(0, "a", b"x")]
    assert [(close.connection, close.abort) for close in desk.closes] == [(client, True)]
    assert "fmqp.hard_body_limit = 100" in desk.closes[0].reason
    desk.send(client, pack(0, b"a", b"z"))
    assert desk.messages(other) == []


def test_max_subscriptions() -> None:
    """Settings.bus.max_subscriptions: more are discarded; ending one makes room."""
    desk = Desk(bus={"max_subscriptions": 2})
    client = desk.open()
    desk.sub(client, "a")
    desk.sub(client, "a", feedback=True)
    desk.messages(client)
    desk.sub(client, "a")
    desk.sub(client, "b")
    desk.pub(client, "b", b"1")
    assert [topic for flags, topic, _ in desk.messages(client) if not flags] == []
    assert desk.discarded == {"bus.max_subscriptions": 1}
    desk.sub(client, "a", feedback=True, unsubscribe=True)
    desk.sub(client, "b")
    desk.pub(client, "b", b"2")
    assert desk.messages(client) == [(0, "b", b"2")]


def test_the_index_of_subscriptions_is_bounded() -> None:
    subscriptions = Subscriptions(limit=1000, max_nodes=250)
    deep = [b"/".join([b"%d" % number] + [b"d"] * 99) for number in range(10)]
    accepted = [subscriptions.add(1, SubscriptionKey(topic))[0] for topic in deep]
    assert accepted == [True, True] + [False] * 8
    for key in subscriptions.of(1):
        subscriptions.remove(1, key)
    assert subscriptions.add(1, SubscriptionKey(deep[5]))[0]


def test_what_an_index_node_costs() -> None:
    """NODE_BYTES, by which the retained messages' memory is bounded, is about true."""
    tracemalloc.start()
    trie: Trie[int] = Trie()
    for number in range(200):
        trie.put(b"/".join([b"%d" % number] + [b"level"] * 50), 1)
    measured = tracemalloc.get_traced_memory()[0] / trie.nodes
    tracemalloc.stop()
    assert NODE_BYTES / 1.5 < measured < NODE_BYTES * 1.5


@pytest.mark.parametrize("wrong", [0, -1, 16 * 1024 * 1024])
def test_max_body_fits_the_journal(wrong: int) -> None:
    with pytest.raises(ValueError, match=r"bus\.max_body is .* it can be 1 to"):
        BusSettings(max_body=wrong)


def test_a_body_in_many_reads_is_copied_once() -> None:
    """Not quadratic: a 1 MiB body in 100-byte reads, counted in bytes allocated, not in seconds."""
    desk = Desk()
    client = desk.open()
    desk.sub(client, "a")
    packet = pack(0, b"a", bytes(1024 * 1024))
    tracemalloc.start()
    for start in range(0, len(packet), 100):
        desk.send(client, packet[start : start + 100])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(desk.messages(client)[0][2]) == 1024 * 1024
    assert peak < 8 * 1024 * 1024


def test_routes_are_bounded() -> None:
    """100 000 topics are forwarded, not all remembered."""
    desk = Desk()
    client, publisher = desk.open(), desk.open()
    desk.sub(client, "t/*")
    read = b"".join(pack(0, b"t/%d" % number, b"x") for number in range(100_000))
    for start in range(0, len(read), 65_536):
        desk.send(publisher, read[start : start + 65_536])
    assert desk.got(client) == read
    routes = desk.broker._bus._routes  # the bound is visible nowhere else
    assert 0 < len(routes.by_topic) <= 16_384
