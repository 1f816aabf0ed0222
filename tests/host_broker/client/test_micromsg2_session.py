"""MicroMsg2's client session, in simulated time and without a socket."""

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_broker.client_errors import BadArgument, ConnectionLost, NotSupported, Refused
from host_broker.client_session import (
    Active,
    Closed,
    Done,
    Message,
    Messages,
    Publication,
    Ready,
    Subscription,
)
from host_broker.protocols.micromsg2.client import WINDOW, MicroMsg2ClientSession
from host_broker.protocols.micromsg2.codec import (
    MAX_FRAGMENT,
    Codec,
    spell_error,
    spell_extension,
    spell_handshake,
    spell_message,
)
from host_broker.protocols.micromsg2.events import (
    CommandFrame,
    ExtensionFrame,
    Handshake,
    MessageFrame,
)
from host_broker.protocols.micromsg2.grammar import read_extensions
from host_broker.protocols.micromsg2.refusal import STOPPING
from host_broker.protocols.micromsg2.windows import read_ack, spell_ack
from tests.host_broker.client.sessions import fed, messages, sent, setup


def _session(**how: Any) -> MicroMsg2ClientSession:
    return MicroMsg2ClientSession(setup("micromsg2", **how))


def _reply(required: str = "", optional: str = "pubsub") -> bytes:
    lists = (read_extensions(required.encode()), read_extensions(optional.encode()))
    return spell_handshake(Handshake(1, 0, "srvr", *lists))


class _Server:
    """The other side of a session: what it has said, and acks for it."""

    def __init__(self, reply: bytes | None = None, **how: Any) -> None:
        self.session = _session(**how)
        self.codec = Codec("server", MAX_FRAGMENT)
        assert self.session.begin(0.0) == ()
        (self.request,) = self.heard()
        assert fed(self.session, [_reply() if reply is None else reply]) == []
        self.final, *self.first = self.heard()
        self.index = 1 + ("token_file" in how.get("options", {}))

    def heard(self) -> list[Any]:
        return list(self.codec.receive_data(sent(self.session)))

    def ack(self, number: int, now: float = 1.0) -> list[Any]:
        return fed(self.session, [spell_extension(self.index, spell_ack(number))], now)


def _ready(**how: Any) -> _Server:
    server = _Server(**how)
    assert server.ack(1) == [Ready()]
    server.heard()
    return server


def test_the_client_starts_and_ends_the_handshake() -> None:
    """R1, R9, R27: it requires batch-ack, and its last word has what both want."""
    server = _Server(name="board")
    assert isinstance(server.request, Handshake)
    assert (server.request.identity, server.request.major, server.request.minor) == ("board", 1, 0)
    assert [each.name for each in server.request.required] == ["batch-ack"]
    assert [each.name for each in server.request.optional] == ["pubsub"]
    assert [each.name for each in server.final.optional] == ["pubsub"]
    (ping,) = server.first
    assert (ping.destination, ping.payload, ping.sequence) == (b"topic/motemq/echo/ping", b"", 1)
    assert server.ack(1) == [Ready()]


def test_a_secret_follows_the_last_word() -> None:
    """R23: as an extension frame, before anything else."""
    server = _Server(name="board", options={"token_file": "secret\n"})
    assert [each.name for each in server.final.required] == ["x-motemq-login", "batch-ack"]
    secret, ping = server.first
    assert secret == ExtensionFrame(1, b"secret")
    assert isinstance(ping, MessageFrame)
    with pytest.raises(BadArgument, match="a token needs a client id"):
        _session(options={"token_file": "secret"})
    with pytest.raises(BadArgument, match="no colon"):
        _session(name="board", options={"token_file": "a:b"})
    with pytest.raises(BadArgument):
        _session(name="küche")


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (_reply("x-nope"), "unsupported extension: x-nope"),
        (spell_handshake(Handshake(2, 0, "s")), "unsupported version 2.0"),
        (b"\0", "never 0"),
    ],
)
def test_a_server_that_cannot_be_spoken_to(reply: bytes, words: str) -> None:
    """R5, R7: it is told ERROR, and the connection ends."""
    session = _session()
    session.begin(0.0)
    sent(session)
    (closed,) = fed(session, [reply])
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, ConnectionLost)
    assert words in str(closed.error)
    assert sent(session)[:1] == b"\x04"


def test_a_refusal_is_told_with_its_words() -> None:
    """A5, A25: before and after the handshake."""
    session = _session()
    session.begin(0.0)
    (closed,) = fed(session, [spell_error("unsupported extension: batch-ack")])
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, Refused)
    assert closed.error.of_name
    assert "refused: unsupported extension: batch-ack" in str(closed.error)
    server = _Server(name="board")
    (closed,) = fed(server.session, [spell_error("no such name")])
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, Refused)
    server = _ready()
    (closed,) = fed(server.session, [spell_error("this client may not publish here")])
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, Refused)
    assert not closed.error.of_name  # another try would not help
    session = _session()
    session.begin(0.0)
    (closed,) = fed(session, [spell_error(STOPPING)])
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, ConnectionLost)


def test_never_more_than_the_window_is_without_an_ack() -> None:
    """R26, R28: what is published beyond it waits for an ack, and an early one makes room."""
    server = _Server(_reply("batch-ack:max-count=3"))
    session = server.session
    server.ack(1)
    for number in range(5):
        assert session.credit == (number < 3)
        session.publish(Publication("topic/t", b"%d" % number), 1.0)
    assert [each.payload for each in server.heard()] == [b"0", b"1", b"2"]
    assert server.ack(3) == [Messages([])]  # whoever waits for credit is woken
    assert [each.payload for each in server.heard()] == [b"3", b"4"]
    assert not session.credit
    server.ack(6)
    assert session.credit


def test_numbers_wrap() -> None:
    """R22, R29: after 65535 comes 1, and an ack covers what was before it."""
    server = _ready()
    numbers = []
    for _ in range(70_000 // WINDOW):
        for _ in range(WINDOW):
            server.session.publish(Publication("q", b"x"), 1.0)
        numbers += [each.sequence for each in server.heard()]
        server.ack(numbers[-1])
        assert server.session.credit
    assert numbers[:2] == [2, 3]
    assert numbers[65_533:65_536] == [65_535, 1, 2]


def test_operations_are_answered_by_acks() -> None:
    """What was said before has been processed then, commands too."""
    server = _ready()
    session = server.session
    session.publish(Publication("topic/t", b"1"), 1.0)
    session.sync(7, 1.0)
    session.ping(8, 2.0)
    assert [each.payload for each in server.heard()] == [b"1", b"", b""]
    assert server.ack(3) == [Done(7)]
    assert server.ack(4, 2.5) == [Done(8, 0.5)]
    assert session.subscribe(Subscription(3, ("topic/a/*", "jobs"), confirm=True), 3.0) == ()
    one, two, ping = server.heard()
    assert one == CommandFrame("subscribe", (("destination", b"topic/a/*"),))
    assert two == CommandFrame("subscribe", (("destination", b"jobs"),))
    assert isinstance(ping, MessageFrame)
    assert server.ack(5) == [Active(3)]


def test_what_comes_is_acknowledged_once_a_read() -> None:
    """R28, R32: with one number, and what was sent again is no message twice."""
    server = _ready()
    frames = b"".join(spell_message(n, b"topic/t", b"", b"%d" % n) for n in (1, 2, 3))
    got = fed(server.session, [frames])
    assert [each.payload for each in messages(got)] == [b"1", b"2", b"3"]
    (ack,) = server.heard()
    assert read_ack(ack.payload) == 3
    again = fed(server.session, [frames + spell_message(4, b"topic/u", b"", b"4")])
    assert [(each.topic, each.payload) for each in messages(again)] == [("topic/u", b"4")]
    (ack,) = server.heard()
    assert read_ack(ack.payload) == 4


def test_what_comes_of_a_queue_is_acknowledged_when_it_is_finished_with() -> None:
    """R28, R29: an ack covers all before it, so the first that is not keeps back the rest."""
    server = _ready()
    session = server.session
    wire = [spell_message(1, b"topic/t", b"", b"1")]
    wire += [spell_message(n, b"q", b"", b"%d" % n) for n in (2, 3, 4)]
    wire += [spell_message(5, b"topic/t", b"", b"5"), spell_message(6, b"q", b"", b"6")]
    got = messages(fed(session, [b"".join(wire)]))
    assert _acks(server) == [1]
    assert [each.receipt is None for each in got] == [True, False, False, False, True, False]
    session.acknowledge(got[2])
    session.acknowledge(got[0])  # a topic's has nothing to be finished with
    assert _acks(server) == []
    session.acknowledge(got[1])
    assert _acks(server) == [3]
    # What comes again is no message, and what was said of it is said again.
    assert messages(fed(session, [wire[1] + wire[3]])) == []
    assert _acks(server) == [3]
    session.acknowledge(got[3])
    session.acknowledge(got[3])
    assert _acks(server) == [5]
    # Before what is not acknowledged goes back to the queue.
    session.acknowledge(got[5])
    session.unsubscribe(Subscription(0, ("q",)), 1.0)
    ack, command = server.heard()
    assert (read_ack(ack.payload), command.name) == (6, "unsubscribe")


def test_receipts_of_another_connection_mean_nothing() -> None:
    old, new = _ready(), _ready()
    frame = spell_message(1, b"q", b"", b"1")
    (lost,) = messages(fed(old.session, [frame]))
    (found,) = messages(fed(new.session, [frame]))
    new.session.acknowledge(lost)
    assert _acks(new) == []
    new.session.acknowledge(found)
    assert _acks(new) == [1]


def test_fragments_are_acknowledged_as_they_come_but_for_the_last() -> None:
    """A17: or a window of one would never see the second."""
    server = _ready()
    for number, continued in ((1, True), (2, True), (3, False)):
        frame = spell_message(number, b"q", b"", b"x" * 300, continued)
        whole = messages(fed(server.session, [frame]))
        assert _acks(server) == ([number] if continued else [])
    server.session.acknowledge(whole[0])
    assert _acks(server) == [3]


@given(
    frames=st.lists(
        st.tuples(st.sampled_from([b"q", b"topic/t"]), st.sampled_from([1, 200, 300])), min_size=1
    ),
    cuts=st.lists(st.integers(1, 5000), max_size=10),
)
def test_whatever_comes_in_whatever_reads_is_finished_with_one_by_one(
    frames: list[tuple[bytes, int]], cuts: list[int]
) -> None:
    _finish_each(_ready(), 1, frames, cuts)


def test_runs_of_a_queue_are_finished_with_across_the_wrap() -> None:
    server = _ready()
    before = [spell_message(n, b"topic/t", b"", b"x") for n in range(1, 65_531)]
    fed(server.session, [b"".join(before)])
    assert _acks(server) == [65_530]
    _finish_each(server, 65_531, [(b"q", 1)] * 10 + [(b"topic/t", 1), (b"q", 300)], [100])


def _finish_each(
    server: _Server, first: int, frames: list[tuple[bytes, int]], cuts: list[int]
) -> None:
    """Finish with all that comes: each ack says what is before the next that is not."""
    numbers = [(first - 1 + place) % 65_535 + 1 for place in range(len(frames) + 1)]
    wire = b"".join(
        spell_message(number, destination, b"", bytes(size))
        for number, (destination, size) in zip(numbers, frames, strict=False)
    )
    edges = [0, *sorted(cuts), len(wire)]
    got = messages(fed(server.session, [wire[a:b] for a, b in itertools.pairwise(edges)]))
    assert [(each.topic.encode(), len(each.payload)) for each in got] == frames
    said = _acks(server)[-1:]
    for place, message in enumerate(got):
        server.session.acknowledge(message)
        said = _acks(server) or said
        rest = [each.receipt is not None for each in got[place + 1 :]]
        covered = place + 1 + (rest.index(True) if True in rest else len(rest))
        assert said == [numbers[covered - 1]]


def _acks(server: _Server) -> list[int]:
    return [int(read_ack(each.payload)) for each in server.heard()]


def test_a_window_and_json_of_the_address() -> None:
    server = _Server(options={"window": "3", "json": "1"})
    assert isinstance(server.request, Handshake)
    required = [(each.name, each.properties) for each in server.request.required]
    assert required == [("batch-ack", (("max-count", "3"),)), ("json", ())]
    (ping,) = server.first
    assert ping.payload == b"null"  # every payload is checked
    with pytest.raises(BadArgument, match="the payload is not JSON"):
        server.session.publish(Publication("topic/t", b"x"), 1.0)
    session = _session(options={"json": "1"})
    session.begin(0.0)
    (closed,) = fed(session, [spell_error("unsupported extension: json")])
    assert isinstance(closed, Closed)
    assert "unsupported extension: json" in str(closed.error)


def test_what_sharpmessaging_s_servers_require() -> None:
    """A15, A29: those that have ``ack`` alone are told that each message is to be acknowledged;
    those that require ``dotnet`` are told that it is there."""
    session = _session(options={"ack": "1", "dotnet": "1"})
    session.begin(0.0)
    said = b"".join(session.data_to_send())
    assert b"\x00\x14ack:MessagesPerAck=1\x00\rpubsub;dotnet" in said
    required = b"ack:MessagesPerAck=10,AckExpireTime=500;dotnet"
    reply = bytes.fromhex("01010006534552564552") + bytes([0, len(required)]) + required
    assert fed(session, [reply + b"\x00\x06pubsub"]) == [Ready()]
    final = b"".join(session.data_to_send())
    assert final.endswith(b"\x00\x2dack:MessagesPerAck=1,AckExpireTime=500;dotnet\x00\x00")
    with pytest.raises(BadArgument, match="ack is 1 or 0, not 'yes'"):
        _session(options={"ack": "yes"})


def test_sharpmessaging_is_sent_no_ping_that_its_program_would_take_for_a_message() -> None:
    """R9, R29: the ack of what was sent last says the same, also of what waits for the window."""
    session = _session(options={"window": "2"})
    session.begin(0.0)
    session.data_to_send()
    said = b"batch-ack:MessagesPerAck=2"
    reply = bytes.fromhex("01010006534552564552") + bytes([0, len(said)]) + said + bytes(2)
    assert fed(session, [reply]) == [Ready()]
    session.data_to_send()
    for number in range(3):
        session.publish(Publication("topic/t", b"%d" % number), 1.0)
    session.sync(7, 1.0)
    session.ping(8, 1.0)
    assert b"".join(session.data_to_send()).count(b"topic/t") == 2
    assert fed(session, [bytes.fromhex("0201020002")]) == [Messages([])]
    assert b"topic/t\x00\x00\x012" in b"".join(session.data_to_send())
    done = fed(session, [bytes.fromhex("0201020003")])
    assert [each.operation for each in done if isinstance(each, Done)] == [7, 8]
    session.sync(9, 2.0)
    assert b"topic/motemq/echo/ping\x00\x00\x01\n" in b"".join(session.data_to_send())
    assert fed(session, [bytes.fromhex("0201020004")]) == [Done(9)]


def test_fragments_both_ways() -> None:
    """R19, R20: more than 1 MiB is cut, and joined."""
    payload = bytes(2 * MAX_FRAGMENT + 5)
    server = _ready()
    server.session.publish(Publication("topic/t", payload), 1.0)
    frames = server.heard()
    assert [each.continued for each in frames] == [True, True, False]
    assert b"".join(each.payload for each in frames) == payload
    wire = b"".join(
        spell_message(each.sequence - 1, each.destination, b"", each.payload, each.continued)
        for each in frames
    )
    (message,) = messages(fed(server.session, [wire[:100], wire[100:]]))
    assert message.payload == payload


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"n" * 256: "x"}, "256 bytes"),
        ({f"n{number}": "x" for number in range(65)}, "65 properties"),
        ({"n": "x" * 65_537}, "65537 bytes"),
        ({"n": "\N{LATIN SMALL LETTER U WITH DIAERESIS}" * 32_769}, "65538 bytes"),
    ],
)
def test_properties_that_no_broker_takes_are_the_callers_mistake(
    properties: dict[str, str], words: str
) -> None:
    """The broker's refusal would end the connection, and all that is under way."""
    server = _Server()
    with pytest.raises(BadArgument, match=words):
        server.session.publish(Publication("topic/t", b"1", properties=properties), 1.0)
    assert server.heard() == []
    most = {f"n{number}": "x" for number in range(63)} | {"n" * 255: "x"}
    server.session.publish(Publication("topic/t", b"1", properties=most), 1.0)
    (frame,) = server.heard()
    assert frame.properties.count(b";") == 63


def test_properties_both_ways() -> None:
    """R40: numbers, text, bytes and dates; one beyond the years of datetime is its seconds."""
    server = _ready()
    said = {"level": 7, "ratio": 0.25, "name": "x y;z", "raw": b"\xff", "big": 2**63 - 1}
    server.session.publish(Publication("topic/t", b"1", properties=said), 1.0)
    (frame,) = server.heard()
    assert frame.properties.split(b";")[:3] == [b"level:N7", b"ratio:N0.25", b"name:Tx%20y%3Bz"]
    wire = frame.properties + b";at:D1413198000.0;far:D9999999999999999999"
    (message,) = messages(fed(server.session, [spell_message(1, b"topic/t", wire, b"1")]))
    noon = datetime(2014, 10, 13, 11, tzinfo=UTC)
    assert message.properties == {**said, "at": noon, "far": 1e19}
    for wrong in ({"Level": 1}, {"a b": 1}, {"level": float("nan")}, {"level": 10**30}):
        with pytest.raises(BadArgument):
            server.session.publish(Publication("topic/t", b"1", properties=wrong), 1.0)


def test_filters() -> None:
    """R37: of a subscription, several with a semicolon between them; one of each destination."""
    server = _ready()
    session = server.session
    wanted = Subscription(1, ("topic/t",), filter="level>N5; name=Tx%20y")
    session.subscribe(wanted, 1.0)
    (frame,) = server.heard()
    arguments = (("destination", b"topic/t"), ("filter", b"level>N5"), ("filter", b"name=Tx%20y"))
    assert frame == CommandFrame("subscribe", arguments)
    session.subscribe(Subscription(2, ("topic/t",), filter=wanted.filter), 1.0)
    assert server.heard() == []
    with pytest.raises(BadArgument, match="another filter"):
        session.subscribe(Subscription(3, ("topic/t",)), 1.0)
    with pytest.raises(BadArgument, match="is not a property"):
        session.subscribe(Subscription(4, ("topic/u",), filter="nonsense"), 1.0)
    session.unsubscribe(wanted, 1.0)
    assert server.heard() == []  # another one still wants it
    session.unsubscribe(Subscription(2, ("topic/t",)), 1.0)
    assert server.heard() == [CommandFrame("unsubscribe", (("destination", b"topic/t"),))]


def test_a_server_without_pubsub_can_be_published_to() -> None:
    """R25: as the author's own program."""
    server = _Server(_reply(optional=""))
    server.ack(1)
    server.session.publish(Publication("q", b"x"), 1.0)
    assert [each.payload for each in server.heard()] == [b"x"]
    with pytest.raises(BadArgument, match="no extension pubsub"):
        server.session.subscribe(Subscription(1, ("q",)), 1.0)


def test_what_it_cannot() -> None:
    session = _session()
    for publication in (
        Publication("topic/t", b"", retain=True),
        Publication("topic/t", b"", will=True),
    ):
        with pytest.raises(NotSupported):
            session.publish(publication, 0.0)
    for topic in ("topic/", "$/x", "", "a\0b", "topic/" + "x" * 250):
        with pytest.raises(BadArgument, match="no destination"):
            session.publish(Publication(topic, b""), 0.0)


def test_topics_and_queues() -> None:
    """R35, R36: ``topic/`` in front makes the difference."""
    session = _session()
    assert session.matches("topic/a/*", "topic/a/b")
    assert session.matches("topic/a", "topic/*")
    assert not session.matches("topic/a", "topic/a/b")
    assert session.matches("jobs", "jobs")
    assert not session.matches("*", "jobs")
    assert session.everything(2) == ("topic/*", "topic/*/*")
    assert len(session.everything()[-1]) <= 255
    assert "is the name of a queue here; the topic is 'topic/home/*'" in session.misread("home/*")
    said = session.misread("topic/home/#")
    assert "'#' is no wildcard" in said
    assert "'topic/home/*', and below that 'topic/home/*/*'" in said
    assert "'topic/home/*', and below that" in session.misread("topic/home/**")
    assert "the topic is 'topic/*/home'" in session.misread("+/home")
    assert session.misread("topic/a") == session.misread("jobs") == ""


@given(st.binary(max_size=200), st.integers(0, 200))
def test_whatever_a_server_says_is_no_exception(data: bytes, place: int) -> None:
    """And after the end nothing is said or heard."""
    for server in (_ready(), None):
        session = _session() if server is None else server.session
        if server is None:
            session.begin(0.0)
        events = fed(session, [data[:place], data[place:]])
        if events and isinstance(events[-1], Closed):
            assert fed(session, [spell_message(9, b"q", b"", b"x")]) == []
        assert all(isinstance(each, Message) for each in messages(events))
