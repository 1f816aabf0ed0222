"""LightMQ's client session and the tunnel, in simulated time and without a socket."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_broker.bus.publication import pack
from host_broker.client_errors import (
    BadArgument,
    ConnectionLost,
    NotSupported,
    NotThere,
    Refused,
)
from host_broker.client_session import (
    Active,
    Closed,
    Done,
    Event,
    Messages,
    Publication,
    Ready,
    Subscription,
)
from host_broker.protocols.lightmq.client import LightmqClientSession
from host_broker.protocols.lightmq.codec import Codec
from host_broker.protocols.lightmq.dialects import DialectName
from tests.host_broker.client.sessions import fed, lightmq, messages, sent, tunnel

_BROKER = Codec("server")
_ACCEPTED = _BROKER.connack(0)


def _ready(**how: object) -> LightmqClientSession:
    session = lightmq(name="board", **how)
    session.begin(0.0)
    sent(session)
    code = 1 if how.get("options") else 0
    assert fed(session, [_BROKER.connack(code)]) == [Ready()]
    return session


def _sends(session: LightmqClientSession, dialect: DialectName = "spec") -> list[int]:
    """Return the ids of the SENDs that are to go out."""
    return [event.id for event in Codec("server", dialect).receive_data(sent(session))]  # type: ignore[union-attr,misc]


def test_connect_comes_first_and_ready_with_the_acceptance() -> None:
    session = lightmq(name="board")
    assert session.begin(0.0) == ()
    assert sent(session) == Codec("client").connect("board")
    assert fed(session, [_ACCEPTED[:2], _ACCEPTED[2:]]) == [Ready()]


def test_a_name_is_made_up_and_a_token_is_at_its_end() -> None:
    assert lightmq().name == "host-07070707"
    session = lightmq(name="board", options={"token_file": "secret\n"})
    session.begin(0.0)
    assert sent(session) == Codec("client").connect("board:secret")
    with pytest.raises(BadArgument, match="a token needs a client id"):
        lightmq(options={"token_file": "secret"})
    with pytest.raises(BadArgument, match="255"):
        lightmq(name="x" * 256)


def test_a_caller_and_a_guest_have_a_mark_in_their_names() -> None:
    for how, name in (({"calls": "kitchen"}, "desk>kitchen"), ({"unseen": True}, "desk>")):
        session = lightmq(name="desk", **how)
        session.begin(0.0)
        assert sent(session) == Codec("client").connect(name)


@pytest.mark.parametrize("code", [1, 2, 3, 4])
def test_a_refusal_is_the_end(code: int) -> None:
    session = lightmq(name="board")
    (closed,) = fed(session, [_BROKER.connack(code)])
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, Refused)
    assert closed.error.code == code


def test_nobody_to_call_is_told_as_such() -> None:
    session = lightmq(name="board", calls="kitchen")
    (closed,) = fed(session, [_BROKER.connack(2)])
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, NotThere)


def test_a_message_can_be_answered_once_it_is_there() -> None:
    session = _ready()
    (event,) = fed(session, [_BROKER.send(0x1234, b"how warm?")])
    (message,) = messages([event])
    assert (message.topic, message.payload, message.answer) == ("down", b"how warm?", 0x1234)
    session.respond(message, b"21.5", 0.0)
    assert sent(session) == _BROKER.sendresp(0x1234, b"21.5")


def test_pings_of_the_broker_are_answered_by_themselves() -> None:
    session = _ready()
    assert fed(session, [_BROKER.ping(77)]) == []
    assert sent(session) == Codec("client").pong(77)


def test_responses_belong_to_what_was_asked_in_any_order() -> None:
    session = _ready()
    session.request(1, "up", b"a", 0.0)
    session.request(2, "up", b"b", 0.0)
    first, second = _sends(session)
    reads = [_BROKER.sendresp(second, b"B"), _BROKER.sendresp(first, b"A")]
    assert fed(session, reads) == [Done(2, b"B"), Done(1, b"A")]
    assert fed(session, reads) == []  # a second response is discarded


def test_sync_waits_for_every_response_and_else_pings() -> None:
    session = _ready()
    for _ in range(2):
        session.publish(Publication("up", b"x"), 0.0)
    first, second = _sends(session)
    session.sync(1, 0.0)
    assert sent(session) == b""
    assert fed(session, [_BROKER.sendresp(first, b"")]) == []
    assert fed(session, [_BROKER.sendresp(second, b"")]) == [Done(1)]
    session.sync(2, 5.0)
    (ping,) = Codec("server").receive_data(sent(session))
    assert session.receive_data(_BROKER.pong(ping.id), 5.5) == [Done(2, 0.5)]  # type: ignore[union-attr]


def test_credit_is_32_sends_without_a_response() -> None:
    session = _ready()
    for _ in range(32):
        assert session.credit
        session.publish(Publication("up", b"x"), 0.0)
    assert not session.credit
    ids = _sends(session)
    fed(session, [_BROKER.sendresp(ids[7], b"")])
    assert session.credit


def test_a_peer_that_never_responds_is_never_waited_for() -> None:
    """The dialect gbaranski: SENDs are not counted, and a PING shows that they were taken."""
    session = _ready(options={"dialect": "gbaranski"})
    for _ in range(1000):
        assert session.credit
        session.publish(Publication("up", b"x"), 0.0)
    assert len(_sends(session, "gbaranski")) == 1000
    session.sync(1, 0.0)
    assert sent(session)[0] == 5  # PING in that dialect


def test_an_operation_that_is_forgotten_takes_no_answer_and_no_credit() -> None:
    session = _ready()
    for operation in range(32):
        session.request(operation, "up", b"x", 0.0)
    ids = _sends(session)
    assert not session.credit
    session.forget(5)
    assert session.credit
    assert fed(session, [_BROKER.sendresp(ids[5], b"late")]) == []
    session.ping(40, 0.0)
    session.forget(40)
    (ping,) = Codec("server").receive_data(sent(session))
    assert fed(session, [_BROKER.pong(ping.id)]) == []  # type: ignore[union-attr]


def test_topics_are_up_and_down() -> None:
    session = _ready()
    with pytest.raises(BadArgument, match="a client can only send up"):
        session.publish(Publication("a/b", b"x"), 0.0)
    with pytest.raises(BadArgument, match="a client is only sent what is for it: down"):
        session.subscribe(Subscription(1, ("a/b",)), 0.0)
    assert session.subscribe(Subscription(1, ("down",), confirm=True), 0.0) == [Active(1)]
    for missing in ({"retain": True}, {"will": True}, {"properties": {"a": 1}}):
        with pytest.raises(NotSupported):
            session.publish(Publication("up", b"x", **missing), 0.0)  # type: ignore[arg-type]
    with pytest.raises(NotSupported, match="wildcards"):
        session.everything()
    assert sent(session) == b""


def test_how_it_ended_depends_on_what_was_awaited() -> None:
    lost = ConnectionLost("lost")
    early = lightmq(name="board")
    assert "instead of answering CONNECT" in str(early.receive_end(lost))
    assert _ready().receive_end(lost) is lost
    caller = _ready(calls="kitchen")
    assert caller.receive_end(lost) is lost
    caller.call(1, "board", b"how warm?", 0.0)
    assert isinstance(caller.receive_end(lost), NotThere)


_FRAMES = st.lists(
    st.one_of(
        st.builds(_BROKER.send, st.integers(0, 3), st.binary(max_size=20)),
        st.builds(_BROKER.sendresp, st.integers(0, 0xFFFF), st.binary(max_size=20)),
        st.integers(0, 0xFFFF).map(_BROKER.ping),
        st.integers(0, 0xFFFF).map(_BROKER.pong),
        st.just(b"\x09\0\0"),  # a reserved opcode
        st.just(_ACCEPTED),  # a second CONNACK
    ),
    max_size=10,
)


@given(frames=_FRAMES, data=st.data())
def test_the_same_bytes_in_any_cuts_are_the_same_events(
    frames: list[bytes], data: st.DataObject
) -> None:
    stream = _ACCEPTED + b"".join(frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    reads = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    def heard(reads: list[bytes]) -> object:
        session = lightmq(name="board")
        session.begin(0.0)
        for operation in range(3):
            session.request(operation, "up", b"x", 0.0)
        return list(map(repr, fed(session, reads))), sent(session)

    assert heard(reads) == heard([stream])


@given(stream=st.binary(max_size=200))
def test_no_bytes_of_a_peer_are_an_exception(stream: bytes) -> None:
    for session in (lightmq(name="board"), tunnel()):
        session.begin(0.0)
        for event in session.receive_data(_ACCEPTED + stream, 1.0):
            assert isinstance(event, Messages | Ready | Done | Closed)


def test_the_tunnel_cuts_what_is_long_and_acknowledges_what_comes() -> None:
    session = tunnel()
    session.begin(0.0)
    hello = sent(session)
    assert hello == Codec("client").connect("host-07070707")
    assert session.receive_data(_ACCEPTED, 0.0) == [Ready()]
    session.publish(Publication("t", bytes(100_000)), 0.0)
    sends = Codec("server").receive_data(sent(session))
    stream = b"".join(event.data for event in sends)  # type: ignore[union-attr]
    assert stream == pack(0, b"motemq/echo/0707070707070707", b"") + pack(0, b"t", bytes(100_000))
    packet = pack(0, b"t", b"x")
    frames = _BROKER.send(1, packet[:3]) + _BROKER.send(2, packet[3:])
    events: list[Event] = fed(session, [frames])
    assert [(each.topic, each.payload) for each in messages(events)] == [("t", b"x")]
    assert sent(session) == _BROKER.sendresp(1, b"") + _BROKER.sendresp(2, b"")


def test_a_tunnel_that_hears_no_fmqp_doubts_the_listener() -> None:
    session = tunnel()
    session.begin(0.0)
    assert session.doubt.startswith("; is it the right port")
    session.receive_data(_ACCEPTED, 0.0)
    assert session.doubt == "; does the broker listen for lightmq+fmqp there?"
    session.receive_data(_BROKER.send(1, pack(0, b"t", b"x")), 0.0)
    assert session.doubt == ""
