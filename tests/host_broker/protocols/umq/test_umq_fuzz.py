"""Whatever comes by a WebSocket, nobody else is harmed, no session fails, and cuts mean nothing."""

import json
from itertools import pairwise
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage

from host_broker.protocols.umq.calls import METHODS
from host_broker.questions import AskTraffic, NoAnswer
from tests.host_broker.lightmq_peer import board as lightmq_board
from tests.host_broker.protocols.umq.peer import UmqPeer, joined, umq_desk, updates

_WORDS = st.sampled_from(
    [
        "a",
        "a/*",
        "**",
        "*/b/**",
        "$/x",
        "",
        "/",
        "A",
        "0",
        "\0",
        "kitchen",
        "é",
        "\ud800",
        "1" * 300,
    ]
)
_NAMES = ("every_ms", "binary", "retained", "quiet", "retain", "properties")
_NAMES += ("limit", "after", "last", "prefix", "from", "to", "what")
_OPTIONS = st.dictionaries(
    st.sampled_from(_NAMES),
    st.one_of(
        st.booleans(), st.integers(-1, 3000), _WORDS, st.dictionaries(_WORDS, _WORDS, max_size=2)
    ),
    max_size=3,
)
_VALUES = st.one_of(_WORDS, st.none(), st.integers(-1, 50), _OPTIONS, st.lists(_WORDS, max_size=2))
_CALLS = st.lists(_VALUES, max_size=4).flatmap(
    lambda rest: st.sampled_from([*METHODS, "what"]).map(lambda name: json.dumps([name, *rest]))
)
_IDS = st.sampled_from(["", "0", "1", "2", "A", "0A", "ZZ", "a", "Z" * 14])
_TEXTS = st.one_of(
    st.text(max_size=12),
    st.builds("C{}:{}".format, _IDS, _CALLS),
    st.builds("A{}:C{}:{}".format, st.sampled_from(["", "0", "1", "2", "ZZ"]), _IDS, _CALLS),
    st.builds(
        "{}{}:{}".format,
        st.sampled_from([*"HWFBRETDUSX-!", "A1:T", "A1:U"]),
        _IDS,
        st.sampled_from(["", "x", "name=y", "1:x", "=", "3 no"]),
    ),
)
_EVENTS = st.one_of(
    _TEXTS.map(TextMessage),
    st.binary(max_size=20).map(BytesMessage),
    st.sampled_from([Ping(b"x"), Pong(b"1"), Pong(b"x" * 30), Pong(b"9" * 19)]),
    st.just(CloseConnection(1000)),
)
_STEPS = st.lists(
    st.one_of(
        _EVENTS,
        st.sampled_from(["slow", "drain", "time", "publish", "answer"]),
    ),
    max_size=25,
)


def _bytes_of(client: UmqPeer, events: list[Any]) -> bytes:
    data = b""
    for event in events:
        try:
            data += client._socket.send(event)
        except UnicodeEncodeError:  # no text, so no client sends it
            continue
        except Exception as error:  # closed by itself
            assert "cannot be sent in state" in str(error)
    return data


@settings(deadline=None, max_examples=150)
@given(_STEPS, st.booleans())
@example([TextMessage('C1:["call","kitchen","x"]'), "time", TextMessage("C1:[]")], True)
@example([TextMessage('C1:["clients"]'), "answer"], False)
@example([TextMessage('C1:["subscribe","**","A"]'), TextMessage("UA:"), "publish"], False)
def test_others_are_served(steps: list[Any], quick: bool) -> None:
    """And every call is answered once (R19), or its connection has ended."""
    desk = umq_desk({"call_timeout_s": 0.5, "max_waiting_updates": 5, "max_calls": 4})
    bystander, board = joined(desk), lightmq_board(desk, "kitchen")
    bystander.result("subscribe", "mine", "A")
    hostile = joined(desk)
    publisher = desk.open()
    if not quick:
        desk.slow.add(hostile.connection)
    for step in steps:
        match step:
            case "slow":
                desk.slow.add(hostile.connection)
            case "drain":
                desk.slow.discard(hostile.connection)
                desk.broker.proceed(hostile.connection, desk.now)
                desk.done()
            case "time":
                desk.advance(0.3)
            case "publish":
                desk.pub(publisher, "a/b", b"\xff" if quick else b"text", cache=quick)
            case "answer":
                for number, question in desk.questions:
                    known: Any = (
                        {} if isinstance(question, AskTraffic) else NoAnswer("nobody knows")
                    )
                    desk.broker.answered(number, known, desk.now)
                desk.questions.clear()
                desk.done()
            case _:
                desk.send(hostile.connection, _bytes_of(hostile, [step]))
    desk.pub(publisher, "mine", b"still there")
    assert [each["text"] for each in updates(bystander.heard())] == ["still there"]
    assert bystander.result("publish", "x", "y") == {"published": 1}
    assert not board.closed
    desk.advance(30.0)
    bystander.heard()
    desk.close(hostile.connection)
    assert [each.protocol for each in desk.broker.clients(0, 10)] == ["umq", "lightmq", "fmqp"]
    for each in (bystander.connection, board.connection, publisher):
        desk.close(each)
    assert desk.broker.held_bytes == 0
    assert not desk.broker.clients(0, 10)


@settings(deadline=None)
@given(st.binary(max_size=400), st.booleans())
def test_bytes_that_are_nothing(data: bytes, greeted: bool) -> None:
    desk = umq_desk({"ping_interval_s": 0.0})
    bystander = joined(desk)
    hostile = joined(desk) if greeted else UmqPeer(desk, upgrade=False)
    desk.send(hostile.connection, data)
    desk.advance(60.0)
    bystander.heard()
    assert bystander.result("publish", "x", "y") == {"published": 1}
    desk.close(hostile.connection)
    assert desk.broker.held_bytes == 0


@settings(deadline=None, max_examples=100)
@given(st.lists(_EVENTS, max_size=10), st.lists(st.integers(0, 5000), max_size=8))
def test_cuts_mean_nothing(events: list[Any], cuts: list[int]) -> None:
    """The same bytes in other reads: the same answers, byte for byte, and the same on the bus."""
    data = _request() + _bytes_of(joined(umq_desk()), [TextMessage("H1:"), *events])
    said = []
    for places in ([], cuts):
        desk = umq_desk(bus={"max_body": 100})
        client = UmqPeer(desk, upgrade=False)
        ends = sorted({0, len(data), *(cut % (len(data) + 1) for cut in places)})
        for one, other in pairwise(ends):
            desk.send(client.connection, data[one:other])
        published = b"".join(bytes(record.body) for record in desk.records)
        subscriptions = sum(each.subscriptions for each in desk.broker.clients(0, 10))
        said.append((desk.got(client.connection), published, subscriptions, len(desk.closes)))
    assert said[0] == said[1]


def _request() -> bytes:
    lines = ["GET /umq HTTP/1.1", "Host: 127.0.0.1", "Upgrade: websocket", "Connection: Upgrade"]
    lines += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13", "", ""]
    return "\r\n".join(lines).encode()
