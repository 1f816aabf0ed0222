"""Links to other brokers: when they are made, and what of a message is a copy; no sockets."""

from dataclasses import replace

from host_broker.bus.commands import (
    Command,
    Complain,
    Dial,
    Disconnect,
    PublishMany,
    Remember,
    Send,
    Wake,
)
from host_broker.protocol import BrokerContext
from host_broker.protocols.fq import codec
from host_broker.protocols.fq.configuration import Upstream
from host_broker.protocols.fq.events import (
    Bind,
    DataGreeting,
    HeartbeatRequest,
    MessageRun,
    StatusRequest,
    Taken,
    Unbind,
)
from host_broker.protocols.fq.pages import spell_place
from host_broker.protocols.fq.peering import (
    FIRST_PAUSE_S,
    LOGIN_S,
    LONGEST_PAUSE_S,
    MAX_COPIES,
    MAX_SAID,
    Copies,
    Link,
    Login,
    Peering,
    Tag,
    relayed_hops,
)
from host_broker.protocols.fq.settings import FqSettings
from host_broker.protocols.fq.shared import FqShared
from host_broker.settings import BusSettings
from host_broker.stats import Stats
from host_broker.wire.budget import Budget

_HOME, _COMMANDS, _MESSAGES = 1, 2, 3
_NODE = b"\xc0\0\2\1"


def _peering(remembered: dict[bytes, bytes] | None = None) -> Peering:
    """``remembered``: it has a data folder."""
    context = BrokerContext(
        BusSettings(),
        lambda: 0x4142,
        Budget(1 << 20),
        Stats(),
        stores=remembered is not None,
        remembered=remembered or {},
    )
    peering = Peering(FqShared(FqSettings(node_id="192.0.2.1"), context), lambda: 1.0)
    peering.home = _HOME
    return peering


def _row(program: bytes = b"", source: bytes = b"peer/q/mem:public") -> Upstream:
    return Upstream("other", 8765, source, b"secret", b"e", program)


def _said(commands: list[Command]) -> list[object]:
    """Return what the other broker reads of commands of a new first connection."""
    reader = codec.Codec("broker", 1 << 20)
    return list(reader.receive_data(b"".join(bytes(c.data) for c in commands if type(c) is Send)))


def test_a_link_is_dialed_again_ever_later() -> None:
    peering = _peering()
    assert peering.changed(frozenset({_row(), _row(b"prefix:a")})) == []
    (link,) = peering.links
    now, pauses = 0.0, []
    for turn in range(8):
        (dial,) = peering.tick(now)
        assert dial == Dial("other", 8765, Tag(link))
        assert peering.tick(now) == []
        complaints = peering.not_reached(link, "nobody listens", now)
        assert len(complaints) == (turn == 0)  # one line, however often it is tried
        assert all(type(each) is Complain and "secret" not in each.text for each in complaints)
        due = peering.next_deadline
        assert due is not None
        pauses.append(due - now)
        now = due
    assert pauses == [min(FIRST_PAUSE_S * 2**turn, LONGEST_PAUSE_S) for turn in range(8)]


def test_a_login_with_its_bindings() -> None:
    """R45: as a peer; what rows come and go is bound and unbound while it is connected."""
    peering = _peering()
    peering.changed(frozenset({_row(b"prefix:a")}))
    (link,) = peering.links
    peering.tick(0.0)
    session = peering.dialed(_COMMANDS, Tag(link), 0.0)
    said = [*session.opened(0.0)]
    accepted = codec.spell_login_accepted(b"key") + codec.spell_heartbeat()
    said += session.received(accepted, 0.1)
    assert said[-1] == Dial("other", 8765, Tag(link, b"key"))
    _, login, request, bind = _said(said)
    assert (login.user, login.queue, login.password) == (b"peer", b"q\0mem:public", b"secret")
    assert request == HeartbeatRequest(1000)
    assert bind == Bind(codec.PEER_FLAG, b"e", b"prefix:a")
    session.received(codec.spell_bind_answer(9), 0.2)
    data = peering.dialed(_MESSAGES, Tag(link, b"key"), 0.2)
    assert _said([*data.opened(0.2)]) == [DataGreeting(b"key", _NODE, peer=True)]
    assert peering.changed(frozenset({_row(b"prefix:b")})) == [Wake(_COMMANDS)]
    said += session.tick(0.3)
    assert _said(said)[-2:] == [Unbind(9, b"e"), Bind(codec.PEER_FLAG, b"e", b"prefix:b")]
    # The first ends: the second does, and both are due again.
    assert peering.next_deadline is None
    commands = [*session.closed(1.0)]
    assert [type(each) for each in commands] == [Disconnect, Wake]
    assert peering.next_deadline == 1.0 + FIRST_PAUSE_S


def test_no_rows_no_link() -> None:
    peering = _peering()
    peering.changed(frozenset({_row()}))
    (link,) = peering.links
    peering.tick(0.0)
    session = peering.dialed(_COMMANDS, Tag(link), 0.0)
    (end,) = peering.changed(frozenset())
    assert isinstance(end, Disconnect)
    assert end.connection == _COMMANDS
    session.closed(1.0)
    assert peering.next_deadline is None
    assert peering.not_reached(link, "late", 2.0) == []


def test_a_silent_broker_ends() -> None:
    peering = _peering()
    peering.changed(frozenset({_row()}))
    (link,) = peering.links
    session = peering.dialed(_COMMANDS, Tag(link), 0.0)
    session.opened(0.0)
    session.received(codec.spell_login_accepted(b"key"), 0.0)
    for beat in (1.0, 2.0, 3.0):
        (said,) = session.tick(beat)
        assert isinstance(said, Send)
    (end,) = session.tick(4.0)
    assert isinstance(end, Disconnect)
    assert "no heartbeat" in end.reason


def test_a_source_that_cannot_be() -> None:
    peering = _peering()
    peering.changed(frozenset({_row(source=b"u" * 128)}))
    (link,) = peering.links
    complaint, end = peering.dialed(_COMMANDS, Tag(link), 0.0).opened(0.0)
    assert isinstance(complaint, Complain)
    assert isinstance(end, Disconnect)


def test_what_is_wrong_is_said_once_until_the_link_is_there() -> None:
    """Each reason has its line; when it was there, and goes again, that is news."""
    peering = _peering()
    peering.changed(frozenset({_row()}))
    (link,) = peering.links

    def fails(reason: str, now: float) -> list[str]:
        return [
            each.text for each in peering.not_reached(link, reason, now) if type(each) is Complain
        ]

    assert [len(fails(reason, 0.0)) for reason in ("a", "b", "a", "b")] == [1, 1, 0, 0]
    for number in range(2 * MAX_SAID):
        fails(f"reason {number}", 0.0)
    assert len(link.said) == MAX_SAID
    _ends(peering, 100.0, 1.5)
    assert len(fails("a", 200.0)) == 1


def test_by_tls() -> None:
    """Both connections, and another login than without."""
    peering = _peering()
    rows = {_row(), replace(_row(), tls=""), replace(_row(), tls="/ca.pem")}
    peering.changed(frozenset(rows))
    dialed = [each for each in peering.tick(0.0) if isinstance(each, Dial)]
    assert {each.tls for each in dialed} == {None, "", "/ca.pem"}
    for dial in dialed:
        assert isinstance(dial.tag, Tag)
        session = peering.dialed(_COMMANDS, dial.tag, 0.0)
        session.opened(0.0)
        *_, second = session.received(codec.spell_login_accepted(b"key"), 0.1)
        assert isinstance(second, Dial)
        assert second.tls == dial.tls
        assert ("fqs://" in str(dial.tag.link.login)) == (dial.tls is not None)


def test_hops() -> None:
    """R24, R46: ours in front; one that is there already is where it has been; 32 at most."""
    other = b"\xc0\0\2\2"
    assert relayed_hops(other + b"\x7f\0\0\1", _NODE) == _NODE + other + b"\x7f\0\0\1"
    assert relayed_hops(other + _NODE, _NODE) is None
    many = other * 32
    found = relayed_hops(many, _NODE)
    assert found == _NODE + other * 31
    assert relayed_hops(b"", _NODE) == _NODE


def _run(*payloads: bytes, hops: bytes = b"") -> MessageRun:
    count = len(payloads)
    head, origin = codec.spell_head(b"e", b"r"), codec.spell_origin(b"s", hops)
    return MessageRun([head] * count, [origin] * count, [b"i" * 16] * count, list(payloads))


def test_copies_come_by_two_links() -> None:
    """The same bytes twice by one link are two messages; by the other link they are none."""
    copies = Copies()
    one, two = (Link(Login("h", port, b"u", b""), frozenset()) for port in (1, 2))
    assert copies.without(_run(b"a", b"a", b"b"), one).payloads == [b"a", b"a", b"b"]
    assert copies.without(_run(b"a", b"b", b"a", b"a"), two).payloads == [b"a"]
    assert copies.without(_run(b"a"), one).payloads == []
    for number in range(MAX_COPIES):
        copies.without(_run(b"%d" % number), one)
    assert copies.without(_run(b"b"), two).payloads == [b"b"]  # forgotten


def test_what_begins_elsewhere_is_no_copy() -> None:
    """R46: programs that count from 1, at two brokers, say the same; both are heard, once each."""
    a, b, here, client = b"\xc0\0\2\7", b"\xc0\0\2\x08", b"\x7f\0\0\1", b"\x0a\0\0\5"
    from_a, from_b = (Link(Login("h", port, b"u", b""), frozenset()) for port in (1, 2))
    for first, second in (
        (a + here, b + here),  # clients on the machines of their brokers
        (a + client, b + b"\x0a\0\0\6"),
        (a, b),  # by HTTP
    ):
        copies = Copies()
        assert copies.without(_run(b"on", hops=first), from_a).ids
        assert copies.without(_run(b"on", hops=second), from_b).ids
        assert not copies.without(_run(b"on", hops=b + first), from_b).ids
        assert not copies.without(_run(b"on", hops=a + second), from_a).ids


def _ends(peering: Peering, now: float, lasts_s: float) -> float:
    """Have the link be let in, and end after a time; returns the pause after that."""
    (link,) = peering.links
    peering.tick(now)
    session = peering.dialed(_COMMANDS, Tag(link), now)
    session.opened(now)
    session.received(codec.spell_login_accepted(b"key") + codec.spell_heartbeat(), now)
    data = peering.dialed(_MESSAGES, Tag(link, b"key"), now)
    data.opened(now)
    ends = now + lasts_s
    while session.deadline is not None and session.deadline <= ends:
        session.tick(session.deadline)
    data.closed(ends)
    session.closed(ends)
    due = peering.next_deadline
    assert due is not None
    return due - ends


def test_a_broker_that_lets_us_in_and_ends_it_at_once_is_left_alone() -> None:
    """Or both would do nothing else, several times a second."""
    peering = _peering()
    peering.changed(frozenset({_row()}))
    pauses = [_ends(peering, 100.0 * turn, 0.5) for turn in range(8)]
    assert pauses == [min(FIRST_PAUSE_S * 2**turn, LONGEST_PAUSE_S) for turn in range(8)]
    assert _ends(peering, 1000.0, 1.5) == FIRST_PAUSE_S


# ---- what is acknowledged ----


def _second(peering: Peering, status: tuple[tuple[bytes, int], ...]) -> Tag:
    """Have the link be let in; returns what is dialed when the status is answered."""
    (link,) = peering.links
    session = peering.dialed(_COMMANDS, Tag(link), 0.0)
    said = [*session.opened(0.0)]
    said += session.received(codec.spell_login_accepted(b"key") + codec.spell_heartbeat(), 0.1)
    *_, asked, bind = _said(said)
    assert asked == StatusRequest()
    assert isinstance(bind, Bind)
    assert not any(type(each) is Dial for each in said)
    (dial,) = session.received(codec.spell_status(status), 0.2)
    assert isinstance(dial, Dial)
    assert isinstance(dial.tag, Tag)
    assert [*session.received(codec.spell_status(status), 0.3)] == []
    return dial.tag


def _frames(*numbers: int, payload: bytes = b"x") -> bytes:
    head, origin = codec.spell_head(b"e", b"r"), codec.spell_origin(b"s", b"\xc0\0\2\2")
    ids = [bytes(8) + spell_place(number) for number in numbers]
    return codec.spell_run(head, origin, ids, [payload] * len(ids))


def _taken(commands: list[Command]) -> list[object]:
    """Return what the other broker reads of a second connection that has begun."""
    reader = codec.Codec("broker", 1 << 20)
    reader.receive_data(codec.spell_greeting(DataGreeting(b"k", _NODE, True, b"t" * 8)))
    return list(reader.receive_data(b"".join(bytes(c.data) for c in commands if type(c) is Send)))


def test_what_comes_is_remembered_with_what_is_published_and_then_acknowledged() -> None:
    peering = _peering({})
    peering.changed(frozenset({_row()}))
    tag = _second(peering, ((b"dropped_in", 0), (b"acks", 1)))
    name = tag.link.login.remembered
    data = peering.dialed(_MESSAGES, tag, 0.3)
    first, greeting = data.opened(0.3)
    nobody, taker = bytes(8), b"somebody"
    assert first == Remember(name, nobody + bytes(8))  # before this is kept, nothing is said
    assert _said([greeting]) == [DataGreeting(b"key", _NODE, True, nobody, 0)]
    number = 3 << 32
    welcome = taker + bytes(8)
    assert [*data.received(welcome[:5], 0.4)] == []
    said = [*data.received(welcome[5:] + _frames(7, 8, number), 0.4)]
    assert [type(each) for each in said] == [Remember, Remember, PublishMany, Send]
    assert said[0] == Remember(name, welcome)
    assert said[1] == Remember(name, taker + number.to_bytes(8, "big"))
    assert _taken(said) == [Taken(number)]


def test_what_is_not_published_is_acknowledged_too() -> None:
    """Or it would come again and again: what has been here, and what is too long."""
    peering = _peering({})
    peering.changed(frozenset({_row()}))
    data = peering.dialed(_MESSAGES, _second(peering, ((b"acks", 1),)), 0.3)
    data.opened(0.3)
    data.received(b"somebody" + bytes(8), 0.3)
    been = codec.spell_origin(b"s", b"\xc0\0\2\2" + _NODE)
    head, id = codec.spell_head(b"e", b"r"), bytes(8) + spell_place(5)
    said = [*data.received(codec.spell_run(head, been, [id], [b"x"]), 0.4)]
    assert not any(type(each) is PublishMany for each in said)
    assert _taken(said) == [Taken(5)]
    long = bytes(peering.server.max_payload + 1)
    assert _taken([*data.received(_frames(6, payload=long), 0.5)]) == [Taken(6)]


def test_a_link_says_what_it_has() -> None:
    """After a restart as before it. Of links that no row is for any more nothing is remembered."""
    login = Login("other", 8765, b"peer/q/mem:public", b"")
    known = {login.remembered: b"somebody" + (9).to_bytes(8, "big"), b"fq/upstream/old": b""}
    peering = _peering(known)
    assert peering.changed(frozenset({_row()})) == [Remember(b"fq/upstream/old", None)]
    tag = _second(peering, ((b"acks", 1),))
    (_, greeting) = peering.dialed(_MESSAGES, tag, 0.3).opened(0.3)
    assert _said([greeting]) == [DataGreeting(b"key", _NODE, True, b"somebody", 9)]


def test_fqd_knows_no_acknowledgement() -> None:
    """It is a peer as always."""
    peering = _peering({})
    peering.changed(frozenset({_row()}))
    data = peering.dialed(_MESSAGES, _second(peering, ((b"dropped_in", 0),)), 0.3)
    assert _said([*data.opened(0.3)]) == [DataGreeting(b"key", _NODE, peer=True)]
    assert [type(each) for each in data.received(_frames(7), 0.4)] == [PublishMany]


def test_an_old_fqd_has_no_status_to_begin_with() -> None:
    """R12: it answers what it is asked then. Who answers both is dialed once."""
    for answers, acknowledges in (
        (codec.spell_bind_answer(9), False),
        (codec.spell_status([(b"acks", 1)]) + codec.spell_bind_answer(9), True),
    ):
        peering = _peering({})
        peering.changed(frozenset({_row()}))
        (link,) = peering.links
        session = peering.dialed(_COMMANDS, Tag(link), 0.0)
        session.opened(0.0)
        session.received(codec.spell_login_accepted(b"key"), 0.1)
        (dial,) = session.received(answers, 0.2)
        assert isinstance(dial, Dial)
        assert dial.tag == Tag(link, b"key", acknowledges)


def test_a_broker_that_says_no_status_ends() -> None:
    peering = _peering({})
    peering.changed(frozenset({_row()}))
    (link,) = peering.links
    session = peering.dialed(_COMMANDS, Tag(link), 0.0)
    session.opened(0.0)
    session.received(codec.spell_login_accepted(b"key"), 0.0)
    for beat in range(1, round(LOGIN_S)):
        session.received(codec.spell_heartbeat(), float(beat))
        assert all(isinstance(each, Send) for each in session.tick(float(beat)))
    (end,) = session.tick(LOGIN_S)
    assert isinstance(end, Disconnect)
    assert "the status" in end.reason
