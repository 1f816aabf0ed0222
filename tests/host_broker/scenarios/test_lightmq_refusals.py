"""Every CONNACK code and what it is for, in both dialects (R9 to R11, R19, A2, A16)."""

from hashlib import sha256

import pytest

from host_broker.protocols.lightmq.dialects import DIALECTS, DialectName, Refusal
from host_broker.protocols.lightmq.events import Connack, Ping, Pong
from tests.host_broker.desk import Desk
from tests.host_broker.lightmq_peer import Peer, board


@pytest.fixture(params=["spec", "gbaranski"])
def dialect(request: pytest.FixtureRequest) -> DialectName:
    name: DialectName = request.param
    return name


def refused(dialect: DialectName, refusal: Refusal) -> Connack:
    return Connack(DIALECTS[dialect].refused(refusal), accepted=False)


def hashed(token: str) -> str:
    return "sha256:" + sha256(token.encode()).hexdigest()


CLIENTS = {
    "kitchen": "",
    "hall": hashed("open sesame"),
    "aa:bb:cc": "",
    "aa:bb:dd": hashed("t"),
    "empty": hashed(""),
    "ö": hashed("ü"),
}


@pytest.mark.parametrize(
    ("client_id", "name"),
    [
        ("kitchen", "kitchen"),
        ("hall:open sesame", "hall"),
        ("aa:bb:cc", "aa:bb:cc"),
        ("aa:bb:dd:t", "aa:bb:dd"),
        ("empty:", "empty"),
        ("ö:ü", "ö"),
    ],
)
def test_a_client_of_the_list(client_id: str, name: str, dialect: DialectName) -> None:
    """Settings.lightmq.clients: by its name, or with a token that nobody else ever sees."""
    desk = Desk(lightmq={"clients": CLIENTS, "dialect": dialect})
    watcher = desk.open()
    desk.sub(watcher, "lightmq/*/status")
    peer = Peer(desk, dialect)
    assert peer.connect(client_id).accepted
    assert desk.messages(watcher) == [(4, f"lightmq/{name}/status", b"online")]
    peer.say(peer.codec.send(1, b"x"))
    assert [record[2] for record in desk.journal()] == ["", name]


@pytest.mark.parametrize(
    "client_id",
    [
        *("garden", "hall", "hall:", "hall:wrong", "hall:open sesame ", "HALL:open sesame"),
        *("kitchen:", "kitchen:x", ":", "::", "aa:bb", "empty", "kitchen\0"),
        CLIENTS["hall"],
        "hall:" + CLIENTS["hall"],
    ],
)
def test_whoever_is_not_in_the_list(client_id: str, dialect: DialectName) -> None:
    """R11: "unauthorized", nothing of it on the bus, and the reason holds no token."""
    expected = Refusal.UNAUTHORIZED
    desk = Desk(lightmq={"clients": CLIENTS, "dialect": dialect})
    peer = Peer(desk, dialect)
    assert peer.connect(client_id) == refused(dialect, expected)
    assert peer.closed
    assert "open sesame" not in peer.why_closed
    desk.close(peer.connection)
    assert desk.journal() == []


def test_callers_are_judged_by_their_own_name() -> None:
    desk = Desk(lightmq={"clients": CLIENTS})
    kitchen = board(desk, "kitchen")
    assert Peer(desk).connect("garden>kitchen").code == 4
    assert Peer(desk).connect("hall>kitchen").code == 4
    assert Peer(desk).connect("hall:open sesame>garden").code == 2
    caller = board(desk, "hall:open sesame>kitchen")
    caller.say(caller.codec.send(1, b"q"))
    assert [send.data for send in kitchen.sends()] == [b"q"]
    assert Peer(desk).connect("hall:open sesame>kitchen").code == 4  # R8: connected already
    assert desk.journal()[-1][2] == "hall>kitchen"


def test_a_carried_client_is_judged_too() -> None:
    desk = Desk(lightmq={"clients": CLIENTS})
    assert Peer(desk, listener="lightmq+fmqp").connect("garden").code == 4
    board(desk, "hall:open sesame", listener="lightmq+fmqp")


def test_names_are_unique_across_both_listeners(dialect: DialectName) -> None:
    """R8: one broker, one set of names."""
    desk = Desk(lightmq={"dialect": dialect})
    carried, plain = Peer(desk, dialect, listener="lightmq+fmqp"), Peer(desk, dialect)
    assert carried.connect("same").accepted
    assert plain.connect("same") == refused(dialect, Refusal.UNAUTHORIZED)


def test_a_dead_holder_of_a_name_does_not_keep_it_long() -> None:
    """A10, A17: a board that restarts is refused, but its former self has to prove itself now."""
    desk = Desk(lightmq={"ping_interval_s": 15, "ping_timeout_s": 10})
    dead = board(desk, "kitchen")
    desk.advance(1)
    again = Peer(desk)
    assert again.connect("kitchen").code == 4
    (ping,) = dead.heard()
    assert isinstance(ping, Ping)
    assert Peer(desk).connect("kitchen").code == 4
    assert dead.heard() == []  # asked once, however many claim it
    desk.advance(10.1)
    assert "no PONG" in dead.why_closed
    desk.close(dead.connection)
    assert Peer(desk).connect("kitchen").accepted


def test_a_living_holder_of_a_name_keeps_it() -> None:
    """A10: and whoever claims it again and again costs one PING a PONG."""
    desk = Desk()
    alive = board(desk, "kitchen")
    for _ in range(3):
        assert Peer(desk).connect("kitchen").code == 4
        (ping,) = alive.heard()
        assert alive.say(alive.codec.pong(ping.id)) == []
    desk.advance(14)
    assert alive.say(alive.codec.ping(1)) == [Pong(1)]
    assert not alive.closed


def test_without_pings_nobody_is_doubted() -> None:
    """Settings.lightmq.ping_interval_s = 0."""
    desk = Desk(lightmq={"ping_interval_s": 0})
    older = board(desk, "kitchen")
    assert Peer(desk).connect("kitchen").code == 4
    assert older.heard() == []


@pytest.mark.parametrize("listener", ["lightmq", "lightmq+fmqp"])
def test_a_stopping_broker_is_unavailable(listener: str, dialect: DialectName) -> None:
    """R9, R10, R11: code 2 for whoever comes after the stop began, 3 if it is malformed; those
    who were there are read no more (FMQP R34), and nobody is a client any more (FMQP R40)."""
    desk = Desk(lightmq={"dialect": dialect})
    older, signaller = Peer(desk, dialect), desk.open()
    older.connect("older")
    desk.pub(signaller, "$/signals/stop", b"x")
    desk.messages(signaller)
    late, bad, wrong = (Peer(desk, dialect, listener=listener) for _ in range(3))
    hello = late.codec.connect("late")
    assert late.say(hello[:3]) == []
    assert late.say(hello[3:]) == [refused(dialect, Refusal.UNAVAILABLE)]
    assert late.closed
    assert bad.say(b"\x01\0\0") == [refused(dialect, Refusal.MALFORMED)]
    assert wrong.say(wrong.codec.ping(1)) == []
    assert wrong.closed
    assert older.say(older.codec.ping(1)) == []
    desk.done(desk.broker.stop(desk.now))
    after = Peer(desk, dialect, listener=listener)
    assert after.connect("older") == refused(dialect, Refusal.UNAVAILABLE)
    assert desk.messages(signaller) == []
    assert after.say(hello) == []  # it is being closed
    for peer in (late, bad, wrong, after, older):
        desk.close(peer.connection)
    assert [m for *_, found in desk.journal() for m in found if b"late" in m[1].encode()] == []


def test_fmqp_has_no_word_for_stopping() -> None:
    """FMQP R33."""
    desk = Desk()
    signaller = desk.open()
    desk.pub(signaller, "$/signals/stop", b"x")
    late = desk.open()
    assert [close.connection for close in desk.closes] == [late]


def test_the_version_code_is_never_sent(dialect: DialectName) -> None:
    """A16: CONNECT says no version."""
    codes = set()
    for client_id in ("a", "a", "a>b", "x" * 255):
        desk = Desk(lightmq={"dialect": dialect, "clients": {"a": "", "x" * 255: hashed("y")}})
        peers = [Peer(desk, dialect) for _ in range(2)]
        codes |= {peer.connect(client_id).code for peer in peers}
    accepted = DIALECTS[dialect].accepted
    assert codes == {accepted, accepted + 2, accepted + 4}
