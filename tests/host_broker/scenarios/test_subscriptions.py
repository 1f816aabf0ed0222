"""Subscriptions with ids, filters, prefixes: which of them a delivery names, what that costs."""

from collections.abc import Callable

import pytest

from host_broker.bus.commands import (
    Announce,
    Consume,
    Disconnect,
    Publish,
    Subscribe,
    Unsubscribe,
)
from host_broker.bus.delivery import Delivery, Filter
from host_broker.bus.publication import Properties, unpack
from tests.host_broker.scripted import Stage, run


class Asked:
    """A filter that counts how often it is asked."""

    def __init__(self, wanted: Callable[[bytes], bool]) -> None:
        self._wanted = wanted
        self.count = 0

    def __call__(self, topic: bytes, properties: Properties, body: bytes) -> bool:
        self.count += 1
        return self._wanted(body)


def taken(stage: Stage, connection: int) -> list[tuple[bytes, bytes, tuple[int, ...]]]:
    """Take (topic, body, ids of the subscriptions) of what a session was given."""
    found = []
    for given in stage.given(connection):
        assert isinstance(given, Delivery)
        found += [(topic, body, given.subscriptions) for _, topic, body in given.each()]
    return found


def test_a_delivery_names_every_subscription_that_matches() -> None:
    stage = Stage()
    client, publisher = stage.enter(), stage.enter()
    stage.do(
        client,
        Subscribe(b"a/b", id=3),
        Subscribe(b"a/*", id=1),
        Subscribe(b"a/", id=2, prefix=True),
        Subscribe(b"c", id=4),
    )
    stage.do(publisher, run((b"a/b", b"1"), (b"a/x", b"2"), (b"a/x/y", b"3"), (b"c", b"4")))
    assert taken(stage, client) == [
        (b"a/b", b"1", (1, 2, 3)),
        (b"a/x", b"2", (1, 2)),
        (b"a/x/y", b"3", (2,)),
        (b"c", b"4", (4,)),
    ]


def test_the_same_topic_under_two_ids_and_two_topics_under_one() -> None:
    stage = Stage()
    client, publisher = stage.enter(), stage.enter()
    stage.do(client, Subscribe(b"a", id=1), Subscribe(b"a", id=2), Subscribe(b"*", id=2))
    stage.do(publisher, run((b"a", b"x")))
    assert taken(stage, client) == [(b"a", b"x", (1, 2))]  # each id once
    stage.do(client, Unsubscribe(b"a", id=2), Unsubscribe(b"a", id=9))
    stage.do(publisher, run((b"a", b"x")))
    assert taken(stage, client) == [(b"a", b"x", (1, 2))]
    stage.do(client, Unsubscribe(b"a", id=1))
    stage.do(publisher, run((b"a", b"x")))
    assert taken(stage, client) == [(b"a", b"x", (2,))]


def test_a_filter_is_asked_once_per_publication_and_only_that() -> None:
    stage = Stage()
    client, publisher = stage.enter(), stage.enter()
    odd, never = Asked(lambda body: int(body) % 2 == 1), Asked(lambda body: False)
    stage.do(
        client,
        Subscribe(b"a/*", id=1, filter=odd),
        Subscribe(b"a/*", id=2),
        Subscribe(b"b", id=3, filter=never),
    )
    stage.do(publisher, run(*((b"a/x", b"%d" % number) for number in range(4))))
    assert taken(stage, client) == [
        (b"a/x", b"0", (2,)),
        (b"a/x", b"1", (1, 2)),
        (b"a/x", b"2", (2,)),
        (b"a/x", b"3", (1, 2)),
    ]
    assert (odd.count, never.count) == (4, 0)


def test_who_has_no_filter_is_given_a_whole_run_at_once() -> None:
    """One that has none costs nothing: no look at each publication."""
    stage = Stage()
    plain, filtering, publisher = stage.enter(), stage.enter(), stage.enter()
    stage.do(plain, Subscribe(b"a"))
    stage.do(filtering, Subscribe(b"a", filter=Asked(lambda body: True)))
    published = run(*[(b"a", b"x")] * 100)
    stage.do(publisher, published)
    (given,) = stage.given(plain)
    assert isinstance(given, Delivery)
    assert given.run == published.data
    assert len(stage.given(filtering)) == 100


def test_a_filter_sees_topic_and_properties() -> None:
    seen = []

    def asked(topic: bytes, properties: Properties, body: bytes) -> bool:
        seen.append((topic, dict(properties), body))
        return "wanted" in properties

    stage = Stage()
    client, publisher = stage.enter(), stage.enter()
    stage.do(client, Subscribe(b"*", filter=asked))
    stage.do(publisher, Publish(b"a", b"1", properties={"wanted": b"!"}), Publish(b"b", b"2"))
    assert seen == [(b"a", {"wanted": b"!"}, b"1"), (b"b", {}, b"2")]
    (given,) = stage.given(client)
    assert isinstance(given, Delivery)
    assert given.properties == {"wanted": b"!"}


def test_subscribing_again_replaces_the_filter() -> None:
    stage = Stage()
    client, publisher = stage.enter(), stage.enter()

    def heard(filter: Filter | None) -> list[bytes]:
        stage.do(client, Subscribe(b"a", id=1, filter=filter))
        stage.do(publisher, run((b"a", b"1"), (b"a", b"2")))
        return [body for _, body, _ in taken(stage, client)]

    assert heard(lambda topic, properties, body: body == b"1") == [b"1"]
    assert heard(lambda topic, properties, body: body == b"2") == [b"2"]
    assert heard(None) == [b"1", b"2"]
    assert heard(lambda topic, properties, body: False) == []
    stage.do(client, Unsubscribe(b"a", id=1))
    stage.do(publisher, run((b"a", b"1")))
    assert taken(stage, client) == []


def test_a_verbatim_connection_with_a_filter_gets_the_stored_form_of_what_it_wants() -> None:
    stage = Stage()
    client, publisher = stage.enter(verbatim=True), stage.enter()
    asked = Asked(lambda body: body == b"yes")
    stage.do(client, Subscribe(b"a", filter=asked))
    stage.do(publisher, run((b"a", b"yes"), (b"a", b"no"), (b"a", b"yes")))
    assert list(unpack(stage.got(client))) == [(0, b"a", b"yes")] * 2
    stage.do(client, Subscribe(b"*", id=1))  # and everything, once, with no question asked
    asked.count = 0
    stage.do(publisher, run((b"a", b"yes"), (b"a", b"no")))
    assert [body for _, _, body in unpack(stage.got(client))] == [b"yes", b"no"]
    assert asked.count == 0
    stage.do(client, Unsubscribe(b"*", id=1))
    stage.do(publisher, run((b"a", b"yes"), (b"a", b"no")))
    assert [body for _, _, body in unpack(stage.got(client))] == [b"yes"]
    assert stage.given(client) == []


def test_a_filter_is_asked_about_retained_messages_too() -> None:
    stage = Stage()
    client, publisher = stage.enter(), stage.enter()
    for body in (b"1", b"2"):
        stage.do(publisher, Publish(b"a/" + body, body, retain=True, properties={"n": body}))
    wanted = Asked(lambda body: body == b"2")
    stage.do(client, Subscribe(b"a/*", id=5, filter=wanted))
    (given,) = stage.given(client)
    assert isinstance(given, Delivery)
    assert (given.subscriptions, given.properties) == ((5,), {"n": b"2"})
    stage.do(client, Subscribe(b"a/", id=6, prefix=True), Subscribe(b"a/1", id=7, retained=False))
    found = sorted((body, ids) for _, body, ids in taken(stage, client))  # in any order (R21)
    assert found == [(b"1", (6,)), (b"2", (6,))]


def test_feedback_is_no_prefixs_business() -> None:
    stage = Stage()
    client = stage.enter()
    stage.do(client, Subscribe(b"a", prefix=True), Subscribe(b"a/b", id=1, feedback=True))
    stage.do(client, Announce(b"a/b", b"\x01", idle=False))
    assert taken(stage, client) == [(b"a/b", b"\x01", (1,))]


@pytest.mark.parametrize("prefix", [False, True])
def test_the_limit_of_subscriptions(prefix: bool) -> None:
    stage = Stage(bus={"max_subscriptions": 2})
    client, publisher = stage.enter(), stage.enter()
    for number in range(3):
        stage.do(client, Subscribe(b"a", id=number, prefix=prefix))
    stage.do(client, Subscribe(b"a", id=1, prefix=prefix))  # no new one
    assert stage.discarded == {"bus.max_subscriptions": 1}
    stage.do(publisher, run((b"a", b"x")))
    assert taken(stage, client) == [(b"a", b"x", (0, 1))]


@pytest.mark.parametrize("count", [1, 1000])
def test_who_is_ended_in_the_middle_of_a_read_leaves_nothing_behind(count: int) -> None:
    """What it publishes first has somebody end it; then it subscribes. Many end step by step."""
    stage = Stage()
    client, other = stage.enter(), stage.enter()
    stage.session(other).reply = lambda given: [Disconnect("a name twice", connection=client)]
    stage.do(other, Subscribe(b"hello"))
    stage.do(client, *(Subscribe(b"a/%d" % number) for number in range(count)))
    stage.do(client, Publish(b"hello", b"!"), Subscribe(b"late"), Consume(b"q", 1))
    stage.close(client)
    stage.advance(1.0)
    assert list(stage.broker.wanted([b"late", b"a/*"], 10_000)) == [False, False]
    assert all(not queue.consumers for queue in stage.broker.queues.values())
