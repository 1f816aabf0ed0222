"""FMQP's client session: what it says, what it understands, in simulated time."""

from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_broker.bus.publication import pack
from host_broker.client_errors import BadArgument, ConnectionLost, NotSupported
from host_broker.client_session import (
    Active,
    Closed,
    Done,
    Messages,
    Publication,
    Ready,
    Subscription,
)
from tests.host_broker.client.sessions import fed, fmqp, messages, sent

_ECHO = b"motemq/echo/0707070707070707"
_COUNT = Struct(">Q")


def _echo(number: int) -> bytes:
    return pack(0, _ECHO, _COUNT.pack(number))


def test_the_first_word_is_an_empty_publication() -> None:
    session = fmqp()
    assert session.begin(0.0) == [Ready()]
    assert sent(session) == pack(0, _ECHO, b"")
    assert sent(session) == b""


@pytest.mark.parametrize(
    ("publication", "packet"),
    [
        (Publication("/a/b/", b"hi"), "000300000002612f626869"),
        (Publication("a/b", b"bye", will=True), "080300000003612f62627965"),
        (Publication("a/b", b"", retain=True), "040300000000612f62"),
    ],
)
def test_publications_on_the_wire(publication: Publication, packet: str) -> None:
    session = fmqp()
    for _ in range(2):  # the second time the topic is known
        session.publish(publication, 0.0)
        assert sent(session).hex() == packet


@pytest.mark.parametrize("topic", ["", "//", "a\0b", "x" * 256])
def test_a_topic_that_cannot_be_says_so_and_sends_nothing(topic: str) -> None:
    session = fmqp()
    with pytest.raises(BadArgument, match="topic"):
        session.publish(Publication(topic, b"x"), 0.0)
    with pytest.raises(BadArgument, match="topic"):
        session.subscribe(Subscription(1, ("fine", topic)), 0.0)
    assert sent(session) == b""


def test_what_fmqp_has_not() -> None:
    session = fmqp()
    with pytest.raises(NotSupported, match="has no properties"):
        session.publish(Publication("t", b"x", properties={"a": 1}), 0.0)
    with pytest.raises(NotSupported, match="has no filters"):
        session.subscribe(Subscription(1, ("t",), filter="x"), 0.0)
    with pytest.raises(NotSupported, match="has no answers to publications"):
        session.request(1, "t", b"x", 0.0)
    assert sent(session) == b""


def test_subscriptions_on_the_wire() -> None:
    session = fmqp()
    for how, flags in ({}, "80"), ({"feedback": True}, "a0"), ({"uncounted": True}, "90"):
        subscription = Subscription(1, ("a/*",), **how)
        assert session.subscribe(subscription, 0.0) == ()
        assert sent(session).hex() == f"{flags}0300000000612f2a"
    session.unsubscribe(Subscription(1, ("a/*",), feedback=True, uncounted=True), 0.0)
    assert sent(session).hex() == "e00300000000612f2a"


def test_sync_is_done_when_its_echo_is_back_and_not_before() -> None:
    session = fmqp()
    session.sync(5, 0.0)
    assert sent(session) == pack(0x90, _ECHO, b"") + _echo(1)
    session.sync(6, 0.0)
    assert sent(session) == _echo(2)
    assert fed(session, [pack(0, b"t", b"x")]) != []
    assert fed(session, [_echo(1)]) == [Done(5)]
    assert fed(session, [_echo(1)]) == []
    assert fed(session, [_echo(2)]) == [Done(6)]


def test_a_late_echo_answers_all_before_it() -> None:
    session = fmqp()
    for operation in (1, 2, 3):
        session.sync(operation, 0.0)
    assert fed(session, [_echo(3)]) == [Done(1), Done(2), Done(3)]


def test_a_ping_measures_from_its_own_bytes() -> None:
    """The first one waits for its subscription, which is not what is measured."""
    session = fmqp()
    session.ping(1, 10.0)
    sent(session)
    assert session.receive_data(_echo(1), 10.5) == []
    assert sent(session) == _echo(2)
    assert session.receive_data(_echo(2), 10.75) == [Done(1, 0.25)]
    session.ping(2, 20.0)
    assert session.receive_data(_echo(3), 20.5) == [Done(2, 0.5)]


def test_what_is_kept_comes_before_a_subscription_is_active() -> None:
    session = fmqp()
    session.subscribe(Subscription(9, ("a/*",), confirm=True), 0.0)
    kept, other = pack(0x04, b"a/b", b"old"), pack(0x04, b"b", b"else")
    live, later = pack(0, b"a/b", b"new"), pack(0x04, b"a/b", b"newer")
    events = fed(session, [kept + other + live + _echo(1) + later])
    assert [(each.payload, each.kept, each.retain) for each in messages(events)] == [
        (b"old", True, True),
        (b"else", False, True),
        (b"new", False, False),
        (b"newer", False, True),
    ]
    assert [type(event) for event in events] == [Messages, Active, Messages]
    assert events[1] == Active(9)


def test_an_unconfirmed_subscription_sends_no_echo() -> None:
    session = fmqp()
    session.subscribe(Subscription(9, ("a",)), 0.0)
    assert sent(session) == pack(0x80, b"a", b"")


def test_feedback_is_of_its_own_system() -> None:
    session = fmqp()
    session.subscribe(Subscription(2, ("a",), feedback=True, confirm=True), 0.0)
    events = fed(session, [pack(0x24, b"a", _COUNT.pack(1)) + pack(0x04, b"a", b"x")])
    assert [(each.feedback, each.kept) for each in messages(events)] == [
        (True, True),
        (False, False),
    ]


def test_incorrect_packets_are_discarded_and_the_rest_is_understood() -> None:
    session = fmqp()
    nonsense = bytes.fromhex("8001000000007400000000000178")
    events = fed(session, [nonsense + pack(0, b"t", b"x")])
    assert [(each.topic, each.payload) for each in messages(events)] == [("t", b"x")]


def test_a_broker_that_cannot_be_read_ends_it() -> None:
    # 4 GiB are no violation for a client, so what ends it is what no FMQP peer can send: nothing.
    session = fmqp()
    error = session.receive_end(ConnectionLost("gone"))
    assert str(error) == "gone"
    assert session.doubt.startswith("; is it the right port")
    fed(session, [pack(0, b"t", b"x")])
    assert session.doubt == ""


@pytest.mark.parametrize(
    ("pattern", "topic", "matches"),
    [
        ("a/*", "a/b", True),
        ("/a/*/", "a/b", True),
        ("a/*", "a", False),
        ("a/*", "a/b/c", False),
        ("*/b", "a/b", True),
        ("a/b", "a/*", True),
        ("a*", "ab", False),
        ("a//b", "a/*/b", True),
    ],
)
def test_matching_is_equivalence(pattern: str, topic: str, matches: bool) -> None:
    """R10 to R13."""
    assert fmqp().matches(pattern, topic) is matches


def test_everything_is_every_depth_that_a_pattern_can_name() -> None:
    patterns = fmqp().everything()
    assert patterns[:2] == ("*", "*/*")
    assert len(patterns) == 128
    session = fmqp()
    session.subscribe(Subscription(1, patterns), 0.0)
    with pytest.raises(BadArgument):
        session.subscribe(Subscription(1, (patterns[-1] + "/*",)), 0.0)
    assert fmqp().everything(2) == ("*", "*/*")


_PACKETS = st.lists(
    st.one_of(
        st.builds(
            pack,
            st.sampled_from([0, 0, 0, 0x04, 0x08, 0x24]),
            st.sampled_from([b"a", b"a/b", b"motemq/echo/other", "ü/x".encode()]),
            st.binary(max_size=40),
        ),
        st.integers(1, 3).map(_echo),
        st.just(bytes.fromhex("80010000000074")),  # a subscription: incorrect from a broker
    ),
    max_size=12,
)


@given(packets=_PACKETS, data=st.data())
def test_the_same_bytes_in_any_cuts_are_the_same_events(
    packets: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(packets)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    reads = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    def heard(reads: list[bytes]) -> object:
        session = fmqp()
        session.begin(0.0)
        session.subscribe(Subscription(4, ("a/*", "a"), confirm=True), 0.0)
        session.sync(5, 0.0)
        session.ping(6, 0.0)
        return fed(session, reads), sent(session)

    assert heard(reads) == heard([stream])


@given(stream=st.binary(max_size=300))
def test_no_bytes_of_a_peer_are_an_exception(stream: bytes) -> None:
    session = fmqp()
    session.begin(0.0)
    session.sync(1, 0.0)
    for event in fed(session, [stream]):
        assert isinstance(event, Messages | Active | Done | Closed)
