"""UMQ's client session, in simulated time and without a socket."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_broker.client_errors import BadArgument, ConnectionLost, NotSupported, NotThere, Refused
from host_broker.client_session import (
    Active,
    Closed,
    Done,
    Dropped,
    Event,
    Failed,
    Message,
    Messages,
    Publication,
    Ready,
    Subscription,
)
from host_broker.protocols.umq import events, websocket
from host_broker.protocols.umq.client import _WINDOW, UmqClientSession
from host_broker.protocols.umq.peer import Peer, PeerLimits
from host_broker.protocols.umq.websocket import WebSocket
from host_broker.wire.violation import Violation
from tests.host_broker.client.sessions import fed, messages, sent, setup

_MANY = PeerLimits(max_calls=10_000)


class _Broker:
    """The other side of a session."""

    def __init__(self, **how: Any) -> None:
        self.session = UmqClientSession(setup("umq", **how))
        self.socket = WebSocket("server", 1 << 24, 1 << 24)
        self.peer = Peer("server", _MANY)
        assert self.session.begin(0.0) == ()
        (self.upgrade,) = self.heard()

    def heard(self) -> list[Any]:
        """Take what the session says: events of the peer, and what is below."""
        found: list[Any] = []
        for item in self.socket.receive_data(sent(self.session)):
            if isinstance(item, str | bytes):
                found += self.peer.receive(item)
            else:
                found.append(item)
        assert not [each for each in found if isinstance(each, Violation)]
        return found

    def calls(self) -> list[tuple[int, list[Any], Sequence[Any]]]:
        return [
            (each.id, json.loads(each.payload), each.attachments)
            for each in self.heard()
            if isinstance(each, events.Call)
        ]

    def spelled(self) -> bytes:
        """Take what was said to the peer and the socket, as bytes."""
        for message in self.peer.out:
            self.socket.send(message)
        self.peer.out.clear()
        data = bytes(self.socket.out)
        self.socket.out.clear()
        return data

    def tell(self, now: float = 1.0) -> list[Event]:
        return fed(self.session, [self.spelled()], now)

    def answer(self, number: int, value: object = None, *attachments: bytes) -> list[Event]:
        self.peer.answer(number, json.dumps({} if value is None else value), attachments)
        return self.tell()

    def refuse(self, number: int, code: int, text: str = "no") -> list[Event]:
        self.peer.fail(number, code, text)
        return self.tell()


def _greeted(**how: Any) -> tuple[_Broker, events.Hello]:
    broker = _Broker(**how)
    broker.socket.accept()
    assert broker.tell() == []
    (hello,) = broker.heard()
    return broker, hello


def _ready(**how: Any) -> _Broker:
    broker, hello = _greeted(**how)
    broker.peer.welcome(hello.version, "{}")
    assert broker.tell() == [Ready()]
    return broker


def test_the_handshake() -> None:
    """R8, R9, R10, A12, A23"""
    broker, hello = _greeted()
    assert isinstance(broker.upgrade, websocket.Upgrade)
    assert (broker.upgrade.target, broker.upgrade.host) == ("/umq", "broker.example:1")
    assert broker.upgrade.subprotocols == ()
    assert hello == events.Hello(1, "")


@pytest.mark.parametrize(
    ("how", "payload"),
    [
        ({"options": {"token_file": "secret\n"}}, {"token": "secret"}),
        (
            {"user": "ann", "options": {"token_file": "secret"}},
            {"user": "ann", "password": "secret"},
        ),
        ({"user": "ann"}, {"user": "ann", "password": ""}),
    ],
)
def test_the_hello_says_who_we_are(how: dict[str, Any], payload: dict[str, str]) -> None:
    _, hello = _greeted(**how)
    assert json.loads(hello.payload) == payload


def test_a_name_is_an_attribute() -> None:
    """R32"""
    broker = _ready(name="desk")
    broker.heard()
    assert broker.session.name == "desk"
    assert broker.peer.attributes["name"].value == "desk"


def test_a_refusal_is_final_and_later_it_is_a_loss() -> None:
    """R9, R11, R12, R13"""
    for code, kind in ((1, Refused), (5, Refused), (8, ConnectionLost)):
        broker, _ = _greeted()
        broker.peer.end(code, "because")
        (closed,) = broker.tell()
        assert isinstance(closed, Closed)
        assert isinstance(closed.error, kind)
        assert "because" in str(closed.error)
    broker = _ready()
    broker.peer.end(1, "umq.max_text: too long")
    (closed,) = broker.tell()
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, ConnectionLost)


@pytest.mark.parametrize(
    ("status", "kind", "text"), [(403, Refused, "another site"), (503, ConnectionLost, "stopping")]
)
def test_an_upgrade_that_is_refused(status: int, kind: type[Exception], text: str) -> None:
    broker = _Broker()
    broker.socket.refuse(status, json.dumps({"error": text}))
    (closed,) = broker.tell()
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, kind)
    assert text in str(closed.error)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: wrong\r\n\r\n",
        b"ACK 5 kitchen\r\n\r\n",
        b"\0" * 20_000,
    ],
)
def test_what_is_no_broker(data: bytes) -> None:
    broker = _Broker()
    found = fed(broker.session, [data])
    closed = found[-1]
    assert isinstance(closed, Closed)
    assert "is it the right port" in str(closed.error)
    assert broker.session.receive_data(data, 1.0) == []


def test_publishing() -> None:
    """Text is text, what is no UTF-8 an attachment."""
    broker = _ready()
    broker.session.publish(Publication("/a/b/", "ž".encode()), 0.2)
    broker.session.publish(Publication("a", b"\xff", retain=True), 0.2)
    broker.session.publish(Publication("a", b"", retain=True, properties={"k": "v"}), 0.2)
    assert [call[1:] for call in broker.calls()] == [
        (["publish", "a/b", "ž", {}], ()),
        (["publish", "a", None, {"retain": True}], [b"\xff"]),
        (["publish", "a", "", {"retain": True, "properties": {"k": "v"}}], ()),
    ]


@pytest.mark.parametrize(
    "publication",
    [
        Publication("", b"x"),
        Publication("a\0", b"x"),
        Publication("x" * 256, b"x"),
        Publication("\udcff", b"x"),
        Publication("a", b""),
        Publication("a", b"x", properties={"k": 1}),
        Publication("a", b"x", properties={"k" * 256: ""}),
        Publication("a", b"x", properties={"k": "\ud800"}),
    ],
)
def test_what_cannot_be_published(publication: Publication) -> None:
    broker = _ready()
    with pytest.raises(BadArgument):
        broker.session.publish(publication, 0.2)
    assert broker.heard() == []


def test_what_umq_does_not_have() -> None:
    session = _ready().session
    with pytest.raises(NotSupported):
        session.publish(Publication("a", b"x", will=True), 0.2)
    for how in ({"feedback": True}, {"filter": "a=N1"}):
        with pytest.raises(NotSupported):
            session.subscribe(Subscription(1, ("a",), **how), 0.2)  # type: ignore[arg-type]


def test_an_answer_that_is_no_text_ends_the_connection() -> None:
    broker = _ready()
    broker.session.call(1, "board", b"x", 0.2)
    ((number, _, _),) = broker.calls()
    (closed,) = broker.answer(number, {"answer": "\ud800"})
    assert isinstance(closed, Closed) and "no text" in str(closed.error)


def test_only_some_calls_are_under_way() -> None:
    """R20: what is more waits here, in order; the publisher, too."""
    broker = _ready()
    for number in range(_WINDOW + 2):
        assert broker.session.credit
        broker.session.publish(Publication("a", b"%d" % number), 0.2)
        if number >= _WINDOW:
            break
    assert not broker.session.credit
    broker.session.publish(Publication("a", b"one more"), 0.2)  # as after a lost connection
    calls = broker.calls()
    assert len(calls) == _WINDOW
    assert broker.answer(calls[5][0]) == []
    ((number, said, _),) = broker.calls()
    assert said[2] == str(_WINDOW)
    assert not broker.session.credit
    broker.answer(number)
    assert [said[2] for _, said, _ in broker.calls()] == ["one more"]
    assert broker.session.credit


def test_sync_waits_for_the_pong_and_all_answers() -> None:
    broker = _ready()
    broker.session.publish(Publication("a", b"1"), 0.2)
    broker.session.publish(Publication("a", b"2"), 0.2)
    broker.session.sync(7, 0.3)
    broker.session.publish(Publication("a", b"3"), 0.4)
    one, two, three = broker.calls()
    assert broker.tell() == []  # the pong
    assert broker.answer(two[0]) == []
    assert broker.answer(three[0]) == []
    assert broker.answer(one[0]) == [Done(7)]
    broker.session.sync(8, 0.5)
    broker.heard()
    assert broker.tell() == [Done(8)]
    broker.session.sync(9, 0.5)
    broker.session.forget(9)
    broker.heard()
    assert broker.tell() == []


def test_the_next_sync_tells_of_a_refused_publication() -> None:
    broker = _ready()
    broker.session.publish(Publication("a", b"1"), 0.2)
    broker.session.publish(Publication("b", b"2"), 0.2)
    broker.session.sync(7, 0.3)
    broker.session.sync(8, 0.3)
    one, two = broker.calls()
    broker.tell()
    assert broker.refuse(one[0], 1, "you may not") == []
    failed, done = broker.answer(two[0])
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, Refused)
    assert (failed.operation, failed.error.code) == (7, 1)
    assert done == Done(8)


def test_long_bodies_are_attachments() -> None:
    """As text each character may take six."""
    broker = _ready()
    for body in (b"x" * 65_536, b"x" * 65_537):
        broker.session.publish(Publication("a", body), 0.2)
    (_, short, _), (_, long, attachments) = broker.calls()
    assert short == ["publish", "a", "x" * 65_536, {}]
    assert (long, list(attachments)) == (["publish", "a", None, {}], [b"x" * 65_537])


def test_what_the_broker_does_not_take_is_not_sent() -> None:
    """Its welcome says how much that is; else each new connection would end by it again."""
    broker, _ = _greeted()
    broker.peer.welcome(1, json.dumps({"max_text": 2000, "max_attachment": 100_000}))
    broker.tell()
    broker.heard()
    with pytest.raises(BadArgument, match=r"umq\.max_attachment"):
        broker.session.publish(Publication("a", b"x" * 100_001), 0.2)
    with pytest.raises(BadArgument, match=r"umq\.max_text"):
        broker.session.publish(Publication("a", b"\0" * 400), 0.2)
    with pytest.raises(BadArgument, match=r"umq\.max_text"):
        broker.session.call(1, "board", "\N{EURO SIGN}".encode() * 700, 0.2)
    assert broker.calls() == []
    broker.session.publish(Publication("a", b"x" * 1900), 0.2)
    broker.session.publish(Publication("a", b"x" * 100_000), 0.2)
    assert len(broker.calls()) == 2


@pytest.mark.parametrize("welcome", ["", "[]", "no JSON", '{"max_text": "x"}'])
def test_a_broker_need_not_say_what_it_takes(welcome: str) -> None:
    broker, _ = _greeted()
    broker.peer.welcome(1, welcome)
    assert Ready() in broker.tell()
    broker.session.publish(Publication("a", b"x" * 1_000_000), 0.2)
    assert broker.calls()


def test_ping_is_one_of_the_websocket() -> None:
    broker = _ready()
    broker.session.ping(3, 1.0)
    assert broker.heard() == []
    (done,) = broker.tell(1.25)
    assert isinstance(done, Done)
    assert (done.operation, done.result) == (3, pytest.approx(0.25))


def test_calls() -> None:
    """R17, R18, R20, R21"""
    broker = _ready()
    for number, body in ((1, b"x"), (2, b"\xff"), (3, b"y"), (4, b"z")):
        broker.session.call(number, "board", body, 0.2)
    calls = broker.calls()
    assert [(said, list(attachments)) for _, said, attachments in calls] == [
        (["call", "board", "x"], []),
        (["call", "board", None], [b"\xff"]),
        (["call", "board", "y"], []),
        (["call", "board", "z"], []),
    ]
    assert broker.answer(calls[1][0], {"attachment": True}, b"\xfe") == [Done(2, b"\xfe")]
    assert broker.answer(calls[0][0], {"answer": "ž"}) == [Done(1, "ž".encode())]
    (failed,) = broker.refuse(calls[2][0], 7, "no client 'board' takes calls now")
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, NotThere)
    (failed,) = broker.refuse(calls[3][0], 8, "umq.max_calls")
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, Refused)
    with pytest.raises(BadArgument, match="empty"):
        broker.session.call(5, "board", b"", 0.2)


def test_a_subscription_is_active_when_what_is_retained_has_come() -> None:
    """R25, R26"""
    broker = _ready()
    subscription = Subscription(5, ("a/*", "b/**"), confirm=True, uncounted=True)
    assert broker.session.subscribe(subscription, 0.2) == ()
    calls = broker.calls()
    assert [said for _, said, _ in calls] == [
        ["subscribe", "a/*", "1", {"quiet": True}],
        ["subscribe", "b/**", "2", {"quiet": True}],
        ["sync"],
    ]
    broker.peer.open_topic(1)
    assert broker.answer(calls[0][0]) == []
    kept = [
        {"topic": "a/1", "at": 1, "text": "on", "retained": True, "properties": {"k": "v"}},
        {"dropped": 3},
        {"topic": "a/2", "at": None, "attachment": True},
        {"topic": "a/3", "at": 2, "attachment": True},
    ]
    broker.peer.update(1, json.dumps(kept), [b"\xff", b""])
    assert broker.tell(2.0) == [
        Dropped(5, 3),
        Messages(
            [
                Message("a/1", b"on", 2_000_000_000, retain=True, kept=True, properties={"k": "v"}),
                Message("a/2", b"\xff", 2_000_000_000),
                Message("a/3", b"", 2_000_000_000),
            ],
            5,
        ),
    ]
    assert broker.answer(calls[1][0]) == []
    assert broker.answer(calls[2][0]) == [Active(5)]


def test_a_subscription_that_is_refused() -> None:
    broker = _ready()
    broker.session.subscribe(Subscription(5, ("a",), confirm=True), 0.2)
    (subscribe, sync) = broker.calls()
    (failed,) = broker.refuse(subscribe[0], 1, "you may not subscribe")
    assert isinstance(failed, Failed)
    assert failed.operation == 5
    assert broker.answer(sync[0]) == []


def test_what_several_patterns_match_is_told_once() -> None:
    broker = _ready()
    broker.session.subscribe(Subscription(5, ("a/*", "*/b")), 0.2)
    broker.calls()
    found = []
    for topic in (1, 2):
        broker.peer.open_topic(topic)
        for name in ("a/b", "c/b", "a/c"):
            if (topic == 1 and name == "c/b") or (topic == 2 and name == "a/c"):
                continue
            broker.peer.update(topic, json.dumps([{"topic": name, "at": 1, "text": "x"}]))
        found += messages(broker.tell())
    assert [each.topic for each in found] == ["a/b", "a/c", "c/b"]


def test_unsubscribing() -> None:
    """R29, R31, A18: what is under way is nobody's."""
    broker = _ready()
    subscription = Subscription(5, ("a",))
    broker.session.subscribe(subscription, 0.2)
    ((number, _, _),) = broker.calls()
    broker.peer.open_topic(1)
    broker.answer(number)
    broker.session.unsubscribe(subscription, 0.3)
    broker.peer.update(1, '[{"topic":"a","at":1,"text":"x"}]')
    assert broker.tell() == []
    assert broker.heard() == [events.Unsubscribe(1)]
    broker.peer.close_topic(1)
    assert broker.tell() == []
    broker.session.unsubscribe(subscription, 0.4)
    assert broker.heard() == []


def test_a_topic_that_the_broker_ends() -> None:
    """R27"""
    broker = _ready()
    broker.session.subscribe(Subscription(5, ("a",)), 0.2)
    ((number, _, _),) = broker.calls()
    broker.peer.open_topic(1)
    broker.answer(number)
    broker.peer.close_topic(1)
    (failed,) = broker.tell()
    assert isinstance(failed, Failed)
    assert failed.operation == 5


def test_a_broker_that_calls_is_told_that_nobody_serves() -> None:
    """R19, R23, A13, A15"""
    broker = _ready()
    ids = broker.peer.call("x"), broker.peer.call_back(7, "x")
    broker.tell()
    first, second = broker.heard()
    assert (first.id, first.payload[:1]) == (ids[0], "6")
    assert (second.id, second.payload[:1]) == (ids[1], "2")


@pytest.mark.parametrize(
    "payload",
    [
        "[[]",
        '["a"]',
        '[{"topic":5,"text":"x"}]',
        '[{"topic":"a"}]',
        '[{"topic":"a","text":5}]',
        '[{"topic":"a","text":"x","properties":[]}]',
        '[{"topic":"a","attachment":true}]',
        "[" * 100_000,
    ],
)
def test_an_update_that_is_none_ends_the_connection(payload: str) -> None:
    broker = _ready()
    broker.session.subscribe(Subscription(5, ("a",)), 0.2)
    broker.calls()
    broker.peer.open_topic(1)
    broker.peer.update(1, payload)
    (closed,) = broker.tell()
    assert isinstance(closed, Closed)
    assert "an update is none" in str(closed.error)


@pytest.mark.parametrize("payload", ["", "[]", "5", "{"])
def test_an_answer_that_is_none_ends_the_connection(payload: str) -> None:
    broker = _ready()
    broker.session.publish(Publication("a", b"x"), 0.2)
    ((number, _, _),) = broker.calls()
    broker.peer.answer(number, payload)
    (closed,) = broker.tell()
    assert isinstance(closed, Closed)


def test_an_attachment_that_its_sender_does_not_have() -> None:
    """R15, A8: the others of its message are told."""
    broker = _ready()
    broker.session.subscribe(Subscription(5, ("a",)), 0.2)
    broker.calls()
    told = [{"topic": name, "at": 1, "attachment": True} for name in "abc"]
    for each in (f"A3:T1:{json.dumps(told)}", b"\x01", "-:gone", b"\x03"):
        broker.socket.send(each)
    found = messages(broker.tell())
    assert [(each.topic, each.payload) for each in found] == [("a", b"\x01"), ("c", b"\x03")]


def test_patterns() -> None:
    session = _ready().session
    for pattern, topic, fits in (
        ("a/*", "a/b", True),
        ("a/*", "a/b/c", False),
        ("a/**", "a", True),
        ("a/**", "a/b/c", True),
        ("a/**", "b", False),
        ("*/b/**", "a/b/c", True),
        ("**", "a", True),
        ("/a/", "a", True),
        ("a/b", "a/*", True),
    ):
        assert session.matches(pattern, topic) is fits, (pattern, topic)
    assert session.everything() == ("**",)
    assert session.everything(2) == ("*", "*/*")
    assert "'a/*/**'" in session.misread("a/+/#")
    assert session.misread("a/*") == ""
    for pattern in ("", "a/**/b", "x" * 256, "\udcff"):
        with pytest.raises(BadArgument):
            session.subscribe(Subscription(1, (pattern,)), 0.2)


# Whatever the broker says, and however it is cut, the messages and the attachments are the same.
_BODY = st.one_of(st.binary(max_size=20), st.text(max_size=10))


@given(
    updates=st.lists(st.lists(_BODY, min_size=1, max_size=5), min_size=1, max_size=6),
    cuts=st.lists(st.integers(min_value=1, max_value=60), min_size=1, max_size=20),
)
def test_any_cuts(updates: list[list[bytes | str]], cuts: list[int]) -> None:
    """R5, R26: bodies that are attachments find their publications."""
    broker = _ready()
    broker.session.subscribe(Subscription(5, ("a/*",)), 0.2)
    broker.calls()
    broker.peer.open_topic(1)
    expected: list[tuple[str, bytes]] = []
    for bodies in updates:
        told: list[dict[str, Any]] = []
        for body in bodies:
            topic = f"a/{len(expected)}"
            if isinstance(body, str):
                told.append({"topic": topic, "at": 1, "text": body})
                expected.append((topic, body.encode()))
            else:
                told.append({"topic": topic, "at": 1, "attachment": True})
                expected.append((topic, body))
        attachments = [body for body in bodies if isinstance(body, bytes)]
        broker.peer.update(1, json.dumps(told), attachments)
    data = broker.spelled()
    reads = []
    position = at = 0
    while position < len(data):
        reads.append(data[position : position + cuts[at % len(cuts)]])
        position += cuts[at % len(cuts)]
        at += 1
    found = messages(fed(broker.session, reads))
    assert [(each.topic, each.payload) for each in found] == expected


@given(data=st.binary(max_size=200), ready=st.booleans())
def test_garbage(data: bytes, ready: bool) -> None:
    """Nothing but events comes of it, and the end is the end."""
    broker = _ready() if ready else _Broker()
    found = fed(broker.session, [data[at : at + 7] for at in range(0, len(data), 7)])
    closed = [each for each in found if isinstance(each, Closed)]
    assert len(closed) <= 1
    if closed:
        assert found[-1] is closed[0]


_SAID = st.one_of(
    st.binary(max_size=5),
    st.from_regex(r"(A[0-9A-Z]{0,2}:)?[-HWFCBRETDUSX!][0-9A-Z]{0,3}:.{0,12}", fullmatch=True),
    st.sampled_from(
        ["R1:{}", "T1:[]", 'T1:[{"topic":"a","text":"x"}]', "E1:3 no", "D1:", "F0:3 no", "A1:R2:{}"]
    ),
)


@given(said=st.lists(_SAID, max_size=12))
def test_whatever_a_mean_broker_says(said: list[bytes | str]) -> None:
    broker = _ready()
    broker.session.subscribe(Subscription(5, ("a",), confirm=True), 0.2)
    broker.session.publish(Publication("a", b"x"), 0.2)
    broker.session.call(9, "b", b"x", 0.2)
    broker.session.sync(10, 0.2)
    broker.heard()
    for each in said:
        broker.socket.send(each)
    found = broker.tell()
    settled = [each.operation for each in found if isinstance(each, Done | Failed)]
    assert len(settled) == len(set(settled))
    sent(broker.session)
