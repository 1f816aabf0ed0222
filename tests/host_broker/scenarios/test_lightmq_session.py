"""LightMQ on the server's side: phases, names, ids, in both dialects."""

from typing import Any

import pytest

from host_broker.protocols.lightmq.dialects import DIALECTS, DialectName, Refusal
from host_broker.protocols.lightmq.events import Connack, Ping, Pong, Send, SendResp
from tests.host_broker.desk import Desk
from tests.host_broker.golden import label, spelled, vectors
from tests.host_broker.lightmq_peer import Peer


@pytest.fixture(params=["spec", "gbaranski"])
def dialect(request: pytest.FixtureRequest) -> DialectName:
    name: DialectName = request.param
    return name


def test_a_conversation(dialect: DialectName) -> None:
    """R5, R9, R10, R11, R12, R13, R14, R17, R18: one of everything, in one read."""
    desk = Desk(lightmq={"dialect": dialect})
    peer = Peer(desk, dialect)
    accepted = DIALECTS[dialect].accepted
    codec = peer.codec
    heard = peer.say(
        codec.connect("vpico-1")
        + codec.ping(0xFFFF)
        + codec.send(0x1234, b"Hi")
        + codec.send(0, b"")
    )
    assert heard == [
        Connack(accepted, accepted=True),
        Pong(0xFFFF),
        SendResp(0x1234, b""),
        SendResp(0, b""),
    ]
    assert not peer.closed


def test_a_malformed_connect_is_refused_by_its_code(dialect: DialectName) -> None:
    """R19, A11, A12: CONNACK "malformed", then close; nothing of it on the bus."""
    bad = [v for v in vectors("lightmq") if v["dialect"] == dialect]
    bad = [v for v in bad if (v["violation"] or {}).get("rule") == "R19"]
    assert len(bad) >= 6
    for vector in bad:
        desk = Desk(lightmq={"dialect": dialect})
        peer = Peer(desk, dialect)
        code = DIALECTS[dialect].refused(Refusal.MALFORMED)
        assert peer.say(spelled(vector)) == [Connack(code, accepted=False)], vector["name"]
        assert [(close.connection, close.abort) for close in desk.closes] == [(1, False)]
        desk.close(peer.connection)
        assert desk.journal() == []


@pytest.mark.parametrize("first", ["ping", "pong", "send", "sendresp"])
def test_another_first_frame_closes_without_a_word(first: str, dialect: DialectName) -> None:
    """R5, A13."""
    desk = Desk(lightmq={"dialect": dialect})
    peer = Peer(desk, dialect)
    frames = {
        "ping": peer.codec.ping(1),
        "pong": peer.codec.pong(1),
        "send": peer.codec.send(1, b"x"),
        "sendresp": peer.codec.sendresp(1, b"x"),
    }
    assert peer.say(frames[first] + frames["ping"] + peer.codec.connect("late")) == []
    assert peer.closed
    assert "R5" in desk.closes[0].reason
    assert desk.journal() == []


_FATAL = [
    vector
    for vector in vectors("lightmq")
    if vector["violation"] and vector["dialect"] == "spec" and vector["direction"] != "S>C"
]


@pytest.mark.parametrize("vector", _FATAL, ids=label)
def test_a_violation_closes_that_connection_only(vector: dict[str, Any]) -> None:
    """R4, R6, R12 to R14, R17, R21, A14: after the good frames before it, without CONNACK."""
    desk = Desk()
    other = Peer(desk)
    other.say(other.codec.connect("other"))
    peer = Peer(desk)
    peer.say(peer.codec.connect("bad"))
    assert peer.say(peer.codec.ping(1) + spelled(vector) + peer.codec.ping(2)) == [Pong(1)]
    assert [close.connection for close in desk.closes] == [peer.connection]
    assert vector["violation"]["rule"] in desk.closes[0].reason
    assert peer.say(peer.codec.ping(3)) == []
    assert other.say(other.codec.ping(4)) == [Pong(4)]


def test_a_second_connect_closes() -> None:
    """R6: even with the same ClientID."""
    desk = Desk()
    peer = Peer(desk)
    peer.say(peer.codec.connect("a"))
    assert peer.say(peer.codec.connect("a")) == []
    assert "R6" in desk.closes[0].reason


def test_a_violation_before_connect_closes_without_connack() -> None:
    """R4, R21."""
    for first in (b"\x07\x00\x00", b"\x02\x00\x01\x00", b"\x03\x00\x00"):
        desk = Desk()
        peer = Peer(desk)
        assert peer.say(first) == []
        assert peer.closed


def test_a_name_is_unique(dialect: DialectName) -> None:
    """R8, A10: the newcomer is refused, the older one asked; free again after it has gone."""
    desk = Desk(lightmq={"dialect": dialect})
    older, newcomer = Peer(desk, dialect), Peer(desk, dialect)
    older.say(older.codec.connect("same"))
    code = DIALECTS[dialect].refused(Refusal.UNAUTHORIZED)
    assert newcomer.say(newcomer.codec.connect("same")) == [Connack(code, accepted=False)]
    assert [close.connection for close in desk.closes] == [newcomer.connection]
    desk.journal()
    desk.close(newcomer.connection)
    assert desk.journal() == []
    ping, pong = older.say(older.codec.ping(1))
    assert (type(ping), pong) == (Ping, Pong(1))
    desk.close(older.connection)
    third = Peer(desk, dialect)
    assert third.say(third.codec.connect("same"))[0].accepted


def test_takeover_closes_the_older() -> None:
    """R8, A10, ``duplicate_client=takeover``: presence never says offline in between."""
    desk = Desk(lightmq={"duplicate_client": "takeover"})
    older, newcomer, publisher = Peer(desk), Peer(desk), desk.open()
    older.say(older.codec.connect("same"))
    desk.journal()
    assert newcomer.say(newcomer.codec.connect("same"))[0].accepted
    assert [close.connection for close in desk.closes] == [older.connection]
    desk.close(older.connection)
    assert [m for *_, found in desk.journal() for m in found] == [
        (4, "lightmq/same/status", b"online")
    ]
    desk.pub(publisher, "lightmq/same/down", b"x")
    assert older.heard() == []
    assert [event.data for event in newcomer.heard()] == [b"x"]
    desk.close(newcomer.connection)
    assert desk.journal()[-1][3] == [(4, "lightmq/same/status", b"offline")]


def test_sends_to_a_client_get_fresh_ids() -> None:
    """R12, R14, R15: flags 0, an id that is not still waiting, from the injected source."""
    given = iter([5, 5, 5, 0x1FFFF, 0xFFFF])
    desk = Desk(random_u16=lambda: next(given))
    peer, publisher = Peer(desk), desk.open()
    peer.say(peer.codec.connect("a"))
    for body in (b"1", b"2", b"3", b"4", b"5"):
        desk.pub(publisher, "lightmq/a/down", body)
    heard = peer.heard()
    assert [event.data for event in heard] == [b"1", b"2", b"3", b"4", b"5"]
    assert [event.id for event in heard] == [5, 6, 7, 0xFFFF, 0]
    assert {event.flags for event in heard} == {0}


def test_a_response_is_known_by_its_id() -> None:
    """R17, R18: an unknown or repeated id is ignored, the connection goes on."""
    desk = Desk()
    peer, caller = Peer(desk), desk.open()
    peer.say(peer.codec.connect("a"))
    desk.sub(caller, "lightmq/a/reply")
    desk.pub(caller, "lightmq/a/down", b"question")
    (send,) = peer.heard()
    assert isinstance(send, Send)
    peer.say(peer.codec.sendresp(send.id ^ 1, b"unknown"))
    peer.say(peer.codec.sendresp(send.id, b"answer"))
    peer.say(peer.codec.sendresp(send.id, b"again"))
    assert desk.messages(caller) == [(0, "lightmq/a/reply", b"answer")]
    assert not peer.closed


def test_max_pending() -> None:
    """Settings.lightmq.max_pending: every message is sent; the oldest ids are forgotten."""
    desk = Desk(lightmq={"max_pending": 2})
    peer, caller = Peer(desk), desk.open()
    peer.say(peer.codec.connect("a"))
    desk.sub(caller, "lightmq/a/reply")
    for number in range(5):
        desk.pub(caller, "lightmq/a/down", b"%d" % number)
    sends = peer.heard()
    assert [send.data for send in sends] == [b"0", b"1", b"2", b"3", b"4"]
    for send in sends:
        peer.say(peer.codec.sendresp(send.id, b"re " + send.data))
    assert [body for *_, body in desk.messages(caller)] == [b"re 3", b"re 4"]


def test_a_message_too_long_for_a_send_is_discarded() -> None:
    """R16: 65463 bytes go, one more does not, and the rest of the run does."""
    desk = Desk()
    peer, publisher = Peer(desk), desk.open()
    peer.say(peer.codec.connect("a"))
    for body in (bytes(65463), bytes(65464), b"next"):
        desk.pub(publisher, "lightmq/a/down", body)
    assert [len(event.data) for event in peer.heard()] == [65463, 4]
    assert desk.discarded == {"R16": 1}


def test_pings_are_answered_in_order() -> None:
    """R12, R13."""
    desk = Desk()
    peer = Peer(desk)
    peer.say(peer.codec.connect("a"))
    ids = [0, 1, 0xFF00, 0xFFFF, 0x1234]
    assert peer.say(b"".join(peer.codec.ping(id) for id in ids)) == [Pong(id) for id in ids]
    assert Ping not in map(type, peer.heard())


@pytest.mark.parametrize("count", [5, 8, 9, 500])
@pytest.mark.parametrize("other", ["none", "empty", "ping", "responder", "violation"])
def test_many_sends_in_one_read_are_the_same_as_one_by_one(count: int, other: str) -> None:
    """R14, R17, R18: what others and the client get, what is journalled and counted."""

    def outcome(whole: bool) -> Any:
        desk = Desk()
        peer, watcher = Peer(desk), desk.open()
        peer.connect("a")
        desk.sub(watcher, "lightmq/*/up")
        if other == "responder":
            desk.sub(watcher, "lightmq/*/up/*")
        frames = [peer.codec.send(id, b"%d" % id) for id in range(count)]
        if other == "empty":
            frames[count // 2] = peer.codec.send(count // 2, b"")
        elif other == "ping":
            frames.insert(count // 2, peer.codec.ping(7))
        elif other == "violation":
            frames.insert(count // 2, b"\xff\0\0")
        desk.journal()
        reads = [b"".join(frames)] if whole else frames
        heard = [event for read in reads for event in peer.say(read)]
        journal = [m for *source, found in desk.journal() for m in found if source[0]]
        return heard, desk.messages(watcher), journal, desk.broker.stats.publications, peer.closed

    assert outcome(whole=True) == outcome(whole=False)
