"""What comes from peers, and what they are given: hops, and no cycles."""

from typing import Any

from host_broker.protocols.fq.codec import PEER_FLAG, spell_head, spell_origin, spell_run
from host_broker.protocols.fq.session import MAX_ORIGINS, FqSession
from tests.host_broker.protocols.fq.peer import ID, NODE, Peer, fq_desk

_PEER, _OTHER = b"\x0a\0\0\1", b"\x0a\0\0\2"


def _peer(desk: Any, name: bytes, node: bytes = _PEER) -> Peer:
    peer = Peer(desk, name, data=False)
    peer.open_data(node, is_peer=True)
    return peer


def _send(peer: Peer, sender: bytes, hops: bytes, payload: bytes = b"body") -> None:
    data = spell_run(spell_head(b"ex", b"r"), spell_origin(sender, hops), [ID], [payload])
    peer.desk.send(peer.data, data)


def test_a_peer_is_given_what_has_not_been_there() -> None:
    """R45, R46: by its id among the hops; the flag of a binding makes no difference."""
    desk = fq_desk()
    peer, other = _peer(desk, b"one"), _peer(desk, b"two", _OTHER)
    publisher = Peer(desk, b"p", b"alice")
    for each in (peer, other):
        each.bind(b"ex", b"prefix:", PEER_FLAG)
    publisher.publish(b"ex", b"r", b"1")
    assert [(each.sender, each.hops) for each in peer.heard()] == [(b"alice", NODE + NODE)]
    assert other.payloads() == [b"1"]
    _send(peer, b"bob", _PEER)
    assert peer.heard() == []
    assert [(each.sender, each.hops) for each in other.heard()] == [(b"bob", NODE + _PEER)]


def test_what_has_been_here_is_dropped() -> None:
    """R46."""
    desk = fq_desk({"node_id": "10.0.0.9"})
    peer, consumer = _peer(desk, b"one"), Peer(desk, b"c")
    consumer.bind(b"ex", b"prefix:")
    _send(peer, b"bob", _OTHER + b"\x0a\0\0\x09" + _PEER)
    assert consumer.heard() == []
    _send(peer, b"bob", _OTHER)
    assert [each.hops for each in consumer.heard()] == [b"\x0a\0\0\x09" + _OTHER]


def test_a_peer_of_our_own_name_is_told_of() -> None:
    """R46: it would be given nothing, and nobody would know why."""
    desk = fq_desk({"node_id": "10.0.0.9"})
    one, two = Peer(desk, b"one", data=False), Peer(desk, b"two", data=False)
    (said,) = one.open_data(b"\x0a\0\0\x09", is_peer=True).complaints
    assert "fq.node_id of this broker, 10.0.0.9," in said
    assert two.open_data(_PEER, is_peer=True).complaints == []


def test_the_oldest_hop_falls_off() -> None:
    """R24: there are 32 of them at most."""
    desk = fq_desk()
    peer, consumer = _peer(desk, b"one"), Peer(desk, b"c")
    consumer.bind(b"ex", b"prefix:")
    hops = b"".join(bytes([10, 1, 0, number]) for number in range(32))
    _send(peer, b"bob", hops)
    assert [each.hops for each in consumer.heard()] == [NODE + hops[:-4]]


def test_as_fqd_reads_what_peers_publish() -> None:
    """A3: without sender and hops; clients hear ours."""
    desk = fq_desk({"peer_publish": "plain"})
    peer, consumer = _peer(desk, b"one"), Peer(desk, b"c")
    consumer.bind(b"ex", b"prefix:")
    peer.publish(b"ex", b"r", b"1", b"2")
    assert [(each.payload, each.sender, each.hops) for each in consumer.heard()] == [
        (b"1", b"_motemq", NODE),
        (b"2", b"_motemq", NODE),
    ]


def test_an_old_peer_says_no_id() -> None:
    """A2: nothing is held back from it."""
    desk = fq_desk()
    peer, consumer = _peer(desk, b"one", b""), Peer(desk, b"c")
    for each in (peer, consumer):
        each.bind(b"ex", b"prefix:")
    _send(peer, b"bob", _PEER)
    assert [each.sender for each in consumer.heard()] == [b"bob"]
    assert len(peer.heard()) == 1


def test_of_senders_and_hops_only_so_many_are_remembered() -> None:
    """R22, R46: however many a peer has, what each consumer hears is right."""
    desk = fq_desk()
    peer, consumer = _peer(desk, b"one"), Peer(desk, b"c")
    consumer.bind(b"ex", b"prefix:")
    sessions = [desk.broker._clients[each.data].session for each in (peer, consumer)]
    for first in range(0, MAX_ORIGINS + 100, 100):
        numbers = range(first, first + 100)
        data = b"".join(
            spell_run(
                spell_head(b"ex", b"r"),
                spell_origin(b"%d" % number, _OTHER + number.to_bytes(4, "big")),
                [ID],
                [b"body"],
            )
            for number in numbers
        )
        desk.send(peer.data, data)
        assert [(each.sender, each.hops) for each in consumer.heard()] == [
            (b"%d" % number, NODE + _OTHER + number.to_bytes(4, "big")) for number in numbers
        ]
    for session in sessions:
        assert isinstance(session, FqSession)
        assert len(session._relayed) <= MAX_ORIGINS
        assert len(session._origins) <= MAX_ORIGINS
