"""fq's client session, in simulated time and without a socket."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_broker.client_errors import BadArgument, ConnectionLost, NotSupported, Refused
from host_broker.client_session import (
    Active,
    Channel,
    Closed,
    Done,
    Event,
    Failed,
    Message,
    Opens,
    Publication,
    Ready,
    Subscription,
)
from host_broker.protocols.fq import codec
from host_broker.protocols.fq.client import FqClientSession
from host_broker.protocols.fq.events import (
    Bind,
    CommandGreeting,
    DataGreeting,
    Heartbeat,
    HeartbeatRequest,
    Login,
    MessageRun,
    StatusRequest,
    Unbind,
)
from tests.host_broker.client.sessions import fed, messages, sent, setup

_KEY = b"the key"


def _session(**how: Any) -> FqClientSession:
    return FqClientSession(setup("fq", **how))


class _Broker:
    """The other side of a session, which reads both connections."""

    def __init__(self, **how: Any) -> None:
        self.session = _session(**how)
        self.read = 0  # messages
        self.channel: Channel
        self._commands = codec.Codec("broker", 1 << 20)
        self._data = codec.Codec("broker", 1 << 20)
        assert self.session.begin(0.0) == ()
        self.greeting, self.login = self.heard()

    def heard(self) -> list[Any]:
        return list(self._commands.receive_data(sent(self.session)))

    def heard_data(self) -> list[Any]:
        found = list(self._data.receive_data(b"".join(self.channel.data_to_send())))
        self.read += sum(len(each.ids) for each in found if isinstance(each, MessageRun))
        return found

    def accept(self, now: float = 0.0) -> list[Any]:
        accepted = codec.spell_login_accepted(_KEY) + codec.spell_heartbeat()
        (opens,) = fed(self.session, [accepted], now)
        assert isinstance(opens, Opens)
        self.channel = opens.channel
        return self.heard()

    def status(self, now: float = 0.1, *, joined: bool = True) -> list[Event]:
        counters = [(b"dropped_in", 0)]
        if joined:
            counters += [(b"size_dropped", 0), (b"msgs_in", self.read)]
        return fed(self.session, [codec.spell_status(counters)], now)

    def bound(self, route: int, now: float = 0.1) -> list[Event]:
        return fed(self.session, [codec.spell_bind_answer(route)], now)


def _ready(**how: Any) -> _Broker:
    broker = _Broker(**how)
    broker.accept()
    assert broker.channel.begin(0.0) == ()
    (greeting,) = broker.heard_data()
    assert greeting == DataGreeting(_KEY)
    assert broker.status() == [Ready()]
    return broker


def test_both_connections() -> None:
    """R1, R4, R7, R10, R15: the first's key begins the second; both are there before Ready."""
    broker = _Broker(user="ann", words="q/mem:public,drop", options={"token_file": "secret\n"})
    assert broker.greeting == CommandGreeting()
    assert broker.login == Login(b"ann", b"q\0mem:public,drop", b"secret")
    assert broker.accept() == [HeartbeatRequest(2000), StatusRequest()]
    assert broker.status(joined=False) == []
    broker.channel.begin(0.1)
    assert broker.heard_data() == [DataGreeting(_KEY)]
    assert broker.session.next_deadline == pytest.approx(0.101)
    broker.session.tick(0.101)
    assert broker.heard() == [StatusRequest()]
    assert broker.status() == [Ready()]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"words": "q/tape:private"}, "a queue is mem or disk, not 'tape'"),
        ({"words": "q/mem:shared"}, "'shared' says nothing of a queue"),
        ({"words": "q/mem:backlog=many"}, "backlog=many"),
        ({"words": "q" * 2000}, "a queue with type and parameters has 2000 bytes"),
        ({"user": "u" * 128}, "a user name has 128 bytes"),
        ({"options": {"program": "prefix:"}}, "a program needs an exchange=NAME"),
        ({"options": {"exchange": "e", "program": "prefixed:"}}, "is no program of fq; write"),
        ({"options": {"exchange": "e", "program": 'prefix:"'}}, "no program of fq"),
        ({"options": {"bind": "forever"}}, "permanent or transient, not 'forever'"),
        ({"options": {"heartbeat": "0.01"}}, "not '0.01'"),
        ({"options": {"heartbeat": "often"}}, "not 'often'"),
    ],
)
def test_addresses_that_cannot_be(how: dict[str, Any], words: str) -> None:
    with pytest.raises(BadArgument, match=words):
        _session(**how)


def test_a_queue_without_a_name_or_type() -> None:
    assert _Broker().login == Login(b"motemq", b"", b"")
    assert _Broker(words="q").login.queue == b"q"
    assert _Broker(words="q/disk").login.queue == b"q\0disk"


def test_a_refusal() -> None:
    """R8: another name may do, as the one before may not have gone yet."""
    broker = _Broker(words="q")
    (closed,) = fed(broker.session, [codec.spell_error("requested queue is private and in use\n")])
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, Refused)
    assert closed.error.of_name
    assert str(closed.error).endswith("requested queue is private and in use")


def test_an_error_later_is_a_loss() -> None:
    """The broker took us once, and may again."""
    broker = _ready()
    (closed,) = fed(broker.session, [codec.spell_error("client heartbeat failed")])
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, ConnectionLost)


def test_publishing() -> None:
    """R21, R26: exchange, route, an id that no other message has."""
    broker = _ready()
    for topic in ("ex/a/b", "ex/a/b", "ex", "a%2Fb/%00"):
        broker.session.publish(Publication(topic, b"body"), 0.2)
    (run,) = broker.heard_data()
    assert [codec.read_head(head) for head in run.heads] == [
        (b"ex", b"a/b"),
        (b"ex", b"a/b"),
        (b"ex", b""),
        (b"a/b", b"\0"),
    ]
    ids = run.ids
    assert len(set(ids)) == len({id[:8] for id in ids}) == 4


@pytest.mark.parametrize("topic", ["", "/route", "e/" + "r" * 128, "e" * 128])
def test_topics_that_cannot_be(topic: str) -> None:
    with pytest.raises(BadArgument):
        _ready().session.publish(Publication(topic, b""), 0.2)


def test_what_fq_does_not_have() -> None:
    session = _ready().session
    for publication in (
        Publication("e/r", b"", retain=True),
        Publication("e/r", b"", will=True),
        Publication("e/r", b"", properties={"a": 1}),
    ):
        with pytest.raises(NotSupported):
            session.publish(publication, 0.2)
    with pytest.raises(NotSupported):
        session.subscribe(Subscription(1, ("e/r",), feedback=True), 0.2)


def test_sync_asks_until_all_is_read() -> None:
    broker = _ready()
    for _ in range(3):
        broker.session.publish(Publication("e/r", b"x"), 0.2)
    broker.session.sync(7, 0.2)
    assert broker.heard() == [StatusRequest()]
    assert broker.status(0.3) == []
    assert broker.session.next_deadline == pytest.approx(0.301)
    broker.session.publish(Publication("e/r", b"later"), 0.3)
    broker.heard_data()
    broker.read = 3
    broker.session.tick(0.301)
    assert broker.heard() == [StatusRequest()]
    assert broker.status(0.31) == [Done(7)]
    broker.session.sync(8, 0.4)
    assert broker.heard() == [StatusRequest()]
    broker.session.forget(8)
    assert broker.status(0.5) == []
    assert broker.session.next_deadline == pytest.approx(2.0)  # nothing but heartbeats


def test_ping_is_a_status() -> None:
    broker = _ready()
    broker.session.ping(3, 1.0)
    assert broker.heard() == [StatusRequest()]
    (done,) = broker.status(1.25)
    assert isinstance(done, Done)
    assert (done.operation, done.result) == (3, pytest.approx(0.25))


@pytest.mark.parametrize(
    ("pattern", "filter", "program"),
    [
        ("e/r.1", "", b'exact:"r.1" true()'),
        ("e/r.*", "", b'prefix:"r." true()'),
        ("e/*", "", b'prefix:"" true()'),
        ("e", "", b'exact:"" true()'),
        ("e/prefix:r.", "", b'prefix:"r." true()'),
        ('e/exact:"a b" route_contains("a")', "", b'exact:"a b" route_contains("a")'),
        ("e/*", "sample(0.5)", b'prefix:"" sample(0.5)'),
        (
            "e/prefix: sample(0.5)",
            'payload_prefix("a;b");payload_contains("c%3Bd")',
            b'prefix:"" ((sample(0.5) && payload_prefix("a;b")) && payload_contains("c;d"))',
        ),
    ],
)
def test_patterns_are_programs(pattern: str, filter: str, program: bytes) -> None:
    broker = _ready()
    assert broker.session.subscribe(Subscription(1, (pattern,), True, filter=filter), 0.2) == ()
    assert broker.heard() == [Bind(0, b"e", program)]
    assert broker.bound(17) == [Active(1)]


@pytest.mark.parametrize(
    ("pattern", "filter"),
    [("", ""), ("/r", ""), ('e/prefix:"', ""), ("e/*", "sample(")],
)
def test_patterns_that_cannot_be(pattern: str, filter: str) -> None:
    broker = _ready()
    with pytest.raises(BadArgument):
        broker.session.subscribe(Subscription(1, (pattern,), filter=filter), 0.2)


def test_two_subscriptions_are_one_binding() -> None:
    """R16, R18: it ends with the last of them, also if that is before its answer."""
    broker = _ready()
    session = broker.session
    first, second = (Subscription(number, ("e/*",), True) for number in (1, 2))
    session.subscribe(first, 0.2)
    session.subscribe(second, 0.2)
    (bind,) = broker.heard()
    session.unsubscribe(first, 0.3)
    session.unsubscribe(second, 0.3)
    assert broker.heard() == []
    broker.bound(5)
    assert broker.heard() == [Unbind(5, b"e")]
    session.subscribe(first, 0.4)
    assert broker.heard() == [bind]
    assert fed(session, [codec.spell_unbind_answer(5), codec.spell_bind_answer(6)]) == [Active(1)]
    assert session.subscribe(second, 0.5) == [Active(2)]


def test_a_program_is_refused() -> None:
    """R17: whoever subscribed is told, and the connection goes on."""
    broker = _ready()
    broker.session.subscribe(Subscription(1, ("e/*",), True, filter="nonsense()"), 0.2)
    (failed,) = broker.bound(codec.REFUSED)
    assert isinstance(failed, Failed)
    assert failed.operation == 1
    assert "nonsense()" in str(failed.error)
    broker.heard()
    broker.session.ping(3, 1.0)
    assert isinstance(broker.status(1.0)[0], Done)


def test_the_program_of_the_address_is_bound_before_ready() -> None:
    options = {"exchange": "e", "program": "prefix:a", "bind": "permanent"}
    broker = _Broker(words="q", options=options)
    _, bind, _ = broker.accept()
    assert bind == Bind(codec.PERMANENT, b"e", b'prefix:"a" true()')
    broker.channel.begin(0.0)
    assert broker.bound(3) == []
    assert broker.status() == [Ready()]
    session = broker.session
    (everything,) = session.everything()
    assert session.subscribe(Subscription(1, (everything,), True), 0.2) == [Active(1)]
    with pytest.raises(BadArgument, match="the address is for 'e' only; write e/ROUTE"):
        session.publish(Publication("other/r", b""), 0.2)
    with pytest.raises(BadArgument, match="no pattern is for all exchanges"):
        _session().everything()


def test_what_comes() -> None:
    """R22: with sender, hops and id; bytes that no topic has are escaped."""
    broker = _ready()
    head, origin = codec.spell_head(b"e", b"a\xff"), codec.spell_origin(b"bob", b"\x0a\0\0\1" * 2)
    data = codec.spell_run(head, origin, [b"0" * 16, b"1" * 16], [b"", b"body"])
    (batch,) = broker.channel.receive_data(data, 2.0)
    found = messages([batch])
    assert [(message.topic, message.payload) for message in found] == [
        ("e/a%FF", b""),
        ("e/a%FF", b"body"),
    ]
    assert found[1].properties == {
        "fq.sender": "bob",
        "fq.hops": "10.0.0.1 10.0.0.1",
        "fq.id": b"1" * 16,
    }
    assert broker.session.matches("e/a%FF", "e/a%FF")
    assert broker.session.matches('e/prefix:a payload_prefix("x")', "e/a%FF")
    assert not broker.session.matches("e/b*", "e/a%FF")
    assert not broker.session.matches("f/*", "e/a%FF")


@given(st.data())
def test_cuts_change_nothing(data: Any) -> None:
    head, origin = codec.spell_head(b"e", b"r"), codec.spell_origin(b"bob", b"\x0a\0\0\1")
    wire = codec.spell_run(head, origin, [bytes([n]) * 16 for n in range(4)], [b"ab"] * 4)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(wire)))))
    channel = _ready().channel
    pieces = [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    found: list[Message] = []
    for piece in pieces:
        found += messages(channel.receive_data(piece, 2.0))
    assert found == messages(_ready().channel.receive_data(wire, 2.0))
    assert len(found) == 4


def test_heartbeats() -> None:
    """R15: ours at every interval; three of the broker's that do not come end it."""
    broker = _ready()
    session = broker.session
    for beat in range(1, 4):
        now = beat * 2.0
        assert session.next_deadline == pytest.approx(now)
        assert session.tick(now) == ()
        assert broker.heard() == [Heartbeat()]
    (closed,) = session.tick(8.0)
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, ConnectionLost)
    assert "sent no heartbeat for 7.9 s" in str(closed.error)


def test_a_program_that_was_stopped_looks_again() -> None:
    """What the broker said meanwhile is unread still."""
    session = _ready().session
    assert session.tick(100.0) == ()
    assert session.tick(102.0) == ()
    assert fed(session, [codec.spell_heartbeat()], 103.0) == []
    assert session.tick(106.0) == ()


def test_without_heartbeats() -> None:
    broker = _Broker(options={"heartbeat": "0"})
    assert broker.accept() == [StatusRequest()]
    broker.status()
    assert broker.session.next_deadline is None


@pytest.mark.parametrize(
    "words",
    [
        [codec.spell_bind_answer(3)],
        [codec.spell_login_accepted(_KEY)],
        [b"\x12\x34"],
    ],
)
def test_a_broker_that_breaks_the_protocol(words: Sequence[bytes]) -> None:
    (closed,) = fed(_ready().session, words)
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, ConnectionLost)


@given(st.binary(max_size=200))
def test_garbage_never_raises(data: bytes) -> None:
    broker = _ready()
    fed(broker.session, [data])
    broker.channel.receive_data(data, 1.0)


def test_misreadings() -> None:
    session = _session()
    assert "all are 'e/*'" in session.misread("e")
    assert "as a character" in session.misread("e/*/b")
    assert session.misread("e/b*") == session.misread("e/b") == session.misread("e/c#") == ""
    assert "'#' is no wildcard here but a character; '*' ends a route: 'e/*'" in session.misread(
        "e/#"
    )
    assert "'e/b.*'" in session.misread("e/b.+.c")
