"""Exchange and route on the bus: reversible, and prefixes of bytes are found by their index."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from host_broker.bus.publication import is_service, topic_fault
from host_broker.protocols.fq.topics import (
    EXCHANGE,
    MAX_REMEMBERED,
    ROUTE,
    Topics,
    address_of,
    index_of,
    queue_level,
    read_topic,
)

# Bytes that mean something to the rule come often.
_PIECES = st.one_of(
    st.sampled_from(
        [b"/", b"//", b"*", b"$", b"%", b"%2", b"%2F", b"%25", b"%~", b"%-", b"\0", b"\xff", b"a"]
    ),
    st.sampled_from(["é", "€", "😀", "ab"]).map(str.encode),
    st.sampled_from([b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xa9", b"\xed\xa0\x80"]),
    st.binary(max_size=3),
)
names = st.lists(_PIECES, max_size=40).map(b"".join).map(lambda name: name[:127])


@given(names, names)
@example(b"", b"")
@example(b"e" * 127, b"r" * 127)
@example(b"\0" * 127, b"\xff" * 127)
@example(b"$", b"/outer/")
def test_every_name_is_a_topic_and_comes_back(exchange: bytes, route: bytes) -> None:
    address = address_of(exchange, route)
    assert topic_fault(address.topic) == ""
    assert not is_service(address.topic)
    assert b"*" not in address.topic.split(b"/")
    if address.is_cut:
        assert address.properties == {EXCHANGE: exchange, ROUTE: route}
        topics = Topics()
        assert topics.of(exchange, route) == address
        found = topics.read(address.topic)
    else:
        found = read_topic(address.topic)
    assert (found.exchange, found.route) == (exchange, route)


@given(st.tuples(names, names), st.tuples(names, names))
def test_different_names_are_different_topics(
    one: tuple[bytes, bytes], two: tuple[bytes, bytes]
) -> None:
    assert (address_of(*one).topic == address_of(*two).topic) == (one == two)


@given(names, names, names)
@example(b"e", b"\xc3", b"\xa9")
@example(b"e", b"a/", b"b")
@example(b"e", b"a/*", b"x")
@example(b"e", b"%", b"2F")
@example(b"e" * 127, b"r" * 120, b"\0" * 7)
def test_an_index_finds_all_routes_that_begin_with_a_prefix(
    exchange: bytes, prefix: bytes, rest: bytes
) -> None:
    route = (prefix + rest)[:127]
    index = index_of(exchange, prefix)
    topic = address_of(exchange, route).topic
    if route.startswith(prefix):
        assert topic.startswith(index.prefix) or topic == index.topic


@given(names, names, names)
@example(b"e", b"a", b"a%2Fb")
def test_an_exact_index_finds_no_other(exchange: bytes, prefix: bytes, route: bytes) -> None:
    index = index_of(exchange, prefix)
    if index.is_exact and not route.startswith(prefix):
        topic = address_of(exchange, route).topic
        assert not topic.startswith(index.prefix)
        assert topic != index.topic


@given(names, names, names, names)
def test_another_exchange_is_never_found(
    exchange: bytes, prefix: bytes, other: bytes, route: bytes
) -> None:
    if exchange == other:
        return
    index, topic = index_of(exchange, prefix), address_of(other, route).topic
    assert not topic.startswith(index.prefix)
    assert topic != index.topic


@pytest.mark.parametrize(
    ("exchange", "route", "topic"),
    [
        (b"hall", b"temp/1", b"hall/temp/1"),
        (b"hall", b"", b"hall"),
        (b"hall", b"/a//b/", b"hall//a//b%2F"),
        (b"hall", b"a/*/b*", b"hall/a/%2A/b*"),
        (b"a/b", b"50%", b"a%2Fb/50%"),
        (b"$", b"$", b"%24/$"),
        (b"*", b"%2F", b"%2A/%252F"),
        (b"", b"r", b"%-/r"),
        (b"\0", b"\xff\xc3\xa9", b"%00/%FF\xc3\xa9"),
    ],
)
def test_the_rule(exchange: bytes, route: bytes, topic: bytes) -> None:
    assert address_of(exchange, route).topic == topic


@pytest.mark.parametrize("topic", [b"a", b"a/b", b"a/50%/c", b"a/%41", b"\xc3\xa9/%zz", b"a//b"])
def test_topics_of_other_protocols_are_as_they_are_typed(topic: bytes) -> None:
    exchange, _, route = topic.partition(b"/")
    found = read_topic(topic)
    assert (found.exchange, found.route) == (exchange, route)
    assert address_of(exchange, route).topic == topic


@given(names, names)
def test_queues_have_different_names_on_the_bus(one: bytes, two: bytes) -> None:
    assert (queue_level(one) == queue_level(two)) == (one == two)
    assert topic_fault(b"fq/" + queue_level(one)) == ""


def test_what_is_remembered_has_an_end() -> None:
    topics = Topics()
    first = topics.of(b"\0" * 127, b"first")
    for number in range(MAX_REMEMBERED + 10):
        topics.of(b"e", b"%d" % number)
        topics.read(b"f/%d" % number)
        assert (
            topics.heads[b"g/%d" % number] == b"\1g" + bytes([len(b"%d" % number)]) + b"%d" % number
        )
    assert topics.read(first.topic) == first
    assert len(topics.by_head) <= MAX_REMEMBERED
    assert len(topics.heads) <= MAX_REMEMBERED
    assert len(topics._by_topic) <= MAX_REMEMBERED
