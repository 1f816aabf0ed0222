"""fq clients on a desk: login, keys, bindings, heartbeats, status, the end of a pair."""

import pytest

from host_broker.protocols.fq.codec import (
    PEER_FLAG,
    PERMANENT,
    REFUSED,
    TRANSIENT,
    spell_bind,
    spell_greeting,
    spell_heartbeat,
    spell_heartbeat_request,
    spell_login,
    spell_message,
    spell_status_request,
)
from host_broker.protocols.fq.events import (
    BindAnswer,
    CommandGreeting,
    DataGreeting,
    ErrorText,
    Heartbeat,
    LoginAccepted,
    Status,
)
from host_broker.protocols.fq.session import LINGER_S, LONGEST_LINGER_S
from tests.host_broker.protocols.fq.peer import ID, NODE, Peer, fq_desk


def test_two_clients_meet() -> None:
    """R1, R4, R16, R20, R22 to R24, R26, R27: sender and hops are the broker's word, the id the
    publisher's; A4: towards a client always with both."""
    desk = fq_desk()
    publisher, consumer = Peer(desk, b"p\0mem", b"alice"), Peer(desk, b"c\0mem", b"bob")
    accepted, beat = consumer.answers
    assert type(accepted) is LoginAccepted
    assert type(beat) is Heartbeat
    assert 1 <= len(accepted.key) <= 127
    assert accepted.key != publisher.key
    first = consumer.bind(b"ex", b'prefix:"r."')
    second = consumer.bind(b"ex", b'prefix:"s."')
    assert first != second
    publisher.publish(b"ex", b"r.1", b"hello", b"")
    publisher.publish(b"ex", b"x", b"no")
    one, two = consumer.heard()
    assert (one.exchange, one.route, one.payload, one.id) == (b"ex", b"r.1", b"hello", ID)
    assert (one.sender, one.hops) == (b"alice", NODE + NODE)
    assert two.payload == b""
    assert publisher.heard() == []
    assert desk.failures == []


def test_byte_by_byte() -> None:
    """A20: nothing depends on how the bytes arrive."""
    desk = fq_desk()
    command, consumer = desk.open("fq"), Peer(desk, b"c\0mem")
    consumer.bind(b"ex", b"prefix:")
    for byte in spell_greeting(CommandGreeting()) + spell_login(b"u", b"p\0mem", b"p"):
        desk.send(command, bytes([byte]))
    accepted, _ = consumer.codec.__class__("command", 1).receive_data(desk.got(command))
    assert isinstance(accepted, LoginAccepted)
    data = desk.open("fq")
    said = spell_greeting(DataGreeting(accepted.key)) + 2 * spell_message(b"ex", b"r", ID, b"body")
    for byte in said:
        desk.send(data, bytes([byte]))
    assert consumer.payloads() == [b"body"] * 2


@pytest.mark.parametrize(
    ("queue", "text"),
    [
        (b"q\0foo", b"invalid queue type: foo"),
        (b"q\0mem:bogus", b"invalid queue param: bogus"),
        (b"q" * 128, b"queue name is too long"),
        (b"q" * 128 + b"\0mem", b"queue name is too long"),
    ],
)
def test_a_login_that_is_refused(queue: bytes, text: bytes) -> None:
    """R8, A9, A18: ERROR in fqd's words, then the connection is closed."""
    assert Peer(fq_desk(), queue).error == text


def test_other_methods_and_no_login() -> None:
    """R7, A1: there is one method; nothing comes before it."""
    desk = fq_desk()
    for said, text in (
        (b"\xaa\xaa\0\1", b"unsupported auth method"),
        (b"\xb1\x70", b"auth command expected"),
        (b"\xaa\xaa\0\0\0\x80", b"user name is too long"),
    ):
        peer = Peer.__new__(Peer)
        command = desk.open("fq")
        peer = Peer(desk, b"other")
        desk.send(command, spell_greeting(CommandGreeting()) + said)
        (error,) = peer.codec.__class__("command", 1).receive_data(desk.got(command))
        assert error == ErrorText(text)
        assert any(close.connection == command for close in desk.closes)
        peer.close()


def test_keys() -> None:
    """R5, R6, A8: without a word for an unknown key, and for a second connection with one."""
    desk = fq_desk()
    client = Peer(desk)
    for key in (b"x", b"x" * 127, client.key):
        data = desk.open("fq")
        desk.send(data, spell_greeting(DataGreeting(key)))
        assert desk.got(data) == b""
        assert any(close.connection == data for close in desk.closes)
    assert not client.data_is_closed
    assert not client.is_closed


def test_unknown_magics() -> None:
    """R3."""
    desk = fq_desk()
    connection = desk.open("fq")
    desk.send(connection, b"\xcc\x50\xbe\xef")
    assert [close.connection for close in desk.closes] == [connection]


def test_answers_keep_the_order_of_requests() -> None:
    """R11 to R13, R17: a refused program is answered, and the connection stays."""
    peer = Peer(fq_desk())
    answers = peer.say(
        spell_bind(TRANSIENT, b"ex", b"prefix:")
        + spell_bind(TRANSIENT, b"ex", b'foo:"x"')
        + spell_heartbeat()
        + spell_status_request()
        + spell_bind(TRANSIENT, b"ey", b"prefix:")
    )
    one, refused, status, two = answers
    assert isinstance(one, BindAnswer) and isinstance(two, BindAnswer)
    assert refused == BindAnswer(REFUSED)
    assert isinstance(status, Status)
    assert one.route != two.route
    assert not peer.is_closed


def test_the_same_binding_again_is_the_same() -> None:
    """R18, R20, A6: the flags say how long it lasts; others leave it as it is."""
    peer = Peer(fq_desk())
    route = peer.bind(b"ex", b"prefix:a")
    assert peer.bind(b"ex", b"prefix:a", 0) == route
    assert peer.bind(b"ex", b"prefix:a", PERMANENT | PEER_FLAG) == route
    assert peer.bind(b"ey", b"prefix:a") != route
    assert peer.unbind(route, b"ey") == REFUSED
    assert peer.unbind(route, b"ex") == route
    assert peer.unbind(route, b"ex") == REFUSED


def test_another_queues_binding_is_not_ended() -> None:
    """R18."""
    desk = fq_desk()
    one, two = Peer(desk, b"one"), Peer(desk, b"two")
    route = one.bind(b"ex", b"prefix:")
    assert two.unbind(route, b"ex") == REFUSED
    two.publish(b"ex", b"r", b"still")
    assert one.payloads() == [b"still"]
    assert one.unbind(route, b"ex") == route
    two.publish(b"ex", b"r", b"gone")
    assert one.payloads() == []


def test_heartbeats() -> None:
    """R13 to R15: the broker beats at the interval, and ends a client that is silent for three."""
    desk = fq_desk()
    peer = Peer(desk)
    assert peer.say(spell_heartbeat_request(1000)) == []
    for _ in range(5):
        desk.advance(1.0)
        assert peer.told() == [Heartbeat()]
        assert peer.say(spell_heartbeat()) == []
    desk.advance(1.0)
    desk.advance(1.0)
    assert not peer.is_closed
    desk.advance(1.0)
    assert peer.told()[-1] == ErrorText(b"client heartbeat failed")
    assert peer.is_closed


@pytest.mark.parametrize("milliseconds", [1, 3, 7, 333, 65_535])
def test_silence_ends_at_its_deadline(milliseconds: int) -> None:
    """R15: however the interval is rounded, a look at the deadline is enough."""
    desk = fq_desk()
    peer = Peer(desk)
    peer.say(spell_heartbeat_request(milliseconds))
    desk.advance(200.0)
    assert peer.told()[-1] == ErrorText(b"client heartbeat failed")
    assert peer.is_closed


def test_no_heartbeats() -> None:
    """R14, R15: 0 is off, as it is before anything is asked for."""
    desk = fq_desk()
    peer = Peer(desk)
    peer.say(spell_heartbeat_request(50) + spell_heartbeat_request(0))
    desk.advance(1000.0)
    assert peer.told() == []
    assert not peer.is_closed


def test_the_npm_clients_stray_bytes() -> None:
    """A17: 0000 directly behind a request for the status means nothing."""
    peer = Peer(fq_desk())
    for _ in range(2):
        (status,) = peer.say(spell_status_request() + b"\0\0")
        assert isinstance(status, Status)
    assert peer.say(b"\0\0") == []
    assert peer.is_closed


def test_without_that_they_are_no_command() -> None:
    """A17."""
    peer = Peer(fq_desk({"npm_quirk": False}))
    (status,) = peer.say(spell_status_request() + b"\0\0")
    assert isinstance(status, Status)
    assert peer.is_closed


def test_status() -> None:
    """R19, A22, A23: the counters in their order; without a data connection one of them."""
    desk = fq_desk()
    publisher, consumer = Peer(desk, b"p"), Peer(desk, b"c\0mem:drop,backlog=2", data=False)
    assert list(consumer.status()) == ["dropped_in"]
    consumer.bind(b"ex", b'prefix:"r"')
    publisher.publish(b"ex", b"r", b"1", b"22", b"333")
    publisher.publish(b"ex", b"x", b"4")
    publisher.publish(b"unknown", b"x", b"5")
    status = publisher.status()
    assert list(status) == [
        "dropped_in",
        "no_exchange",
        "no_route",
        "routed",
        "dropped",
        "size_dropped",
        "msgs_in",
        "msgs_out",
        "octets_in",
        "octets_out",
    ]
    # 22 bytes, exchange and route are around each payload: fqd counts them, too.
    octets = 3 * (22 + 2 + 1) + 1 + 2 + 3 + (22 + 2 + 1 + 1) + (22 + 7 + 1 + 1)
    assert list(status.values()) == [0, 1, 2, 3, 1, 0, 5, 0, octets, 0]
    assert consumer.status() == {"dropped_in": 1}
    consumer.open_data()
    assert consumer.payloads() == [b"1", b"22"]
    # Towards a client a frame has the sender and two hops, too.
    octets = 2 * (22 + 2 + 1 + len(b"\x01p") + len(b"\x02") + 8) + 1 + 2
    assert (consumer.status()["msgs_out"], consumer.status()["octets_out"]) == (2, octets)


def test_a_pair_ends_together() -> None:
    """A19: whichever connection ends."""
    for first in ("command", "data"):
        desk = fq_desk()
        peer = Peer(desk, b"q\0mem:private")
        desk.close(getattr(peer, first))
        assert peer.is_closed == (first == "data")
        assert not peer.data_is_closed
        desk.advance(LINGER_S + 0.1)
        assert peer.data_is_closed == (first == "command")
        assert Peer(desk, b"q\0mem:private").key  # it is free again
        assert desk.failures == []


def test_what_was_said_before_the_end_is_read() -> None:
    """A19: programs publish, and close both; nothing is delivered to them any more."""
    desk = fq_desk()
    peer, consumer = Peer(desk, b"q\0mem:public,permanent"), Peer(desk, b"c\0mem")
    for each in (peer, consumer):
        each.bind(b"e", b"prefix:")
    desk.close(peer.command)
    peer.publish(b"e", b"r", b"last words")
    assert consumer.payloads() == [b"last words"]
    assert peer.payloads() == []
    desk.close(peer.data)
    assert Peer(desk, b"q\0mem:public").payloads() == [b"last words"]
    assert desk.failures == []


def test_who_leaves_a_full_queue_is_not_waited_for_for_ever() -> None:
    """A19, A24, A25: or each that comes and goes would leave a connection that nobody reads."""
    desk = fq_desk()
    full, peer = Peer(desk, b"f\0mem:block,backlog=0"), Peer(desk, b"p")
    full.bind(b"e", b"prefix:")
    peer.publish(b"e", b"r", b"1")
    assert (peer.data, "queue") in desk.held
    desk.close(peer.command)
    began = desk.now
    while desk.now < began + LONGEST_LINGER_S + 2 and not peer.data_is_closed:
        desk.now += 0.5
        desk.broker.tick(desk.now, lambda connection: connection == peer.data)
        desk.done()
    assert LONGEST_LINGER_S <= desk.now - began <= LONGEST_LINGER_S + 1.5


def test_a_handshake_takes_no_longer_than_allowed() -> None:
    desk = fq_desk({"handshake_timeout_s": 3.0})
    silent, greeted = desk.open("fq"), desk.open("fq")
    desk.send(greeted, spell_greeting(CommandGreeting()))
    in_time = Peer(desk, data=False)
    desk.advance(2.9)
    assert desk.closes == []
    desk.advance(0.2)
    assert {close.connection for close in desk.closes} == {silent, greeted}
    assert not in_time.is_closed


def test_too_long_a_message_is_dropped_and_counted() -> None:
    """A7: it is read, so that what follows it is heard."""
    desk = fq_desk({"max_payload": 131_072})
    publisher, consumer = Peer(desk, b"p"), Peer(desk, b"c")
    consumer.bind(b"ex", b"prefix:")
    publisher.publish(b"ex", b"r", b"x" * 131_073, b"after", b"y" * 131_072)
    assert consumer.payloads() == [b"after", b"y" * 131_072]
    assert publisher.status()["size_dropped"] == 1
    assert publisher.status()["msgs_in"] == 2


def test_names_that_are_too_long_end_the_connection() -> None:
    """R25."""
    desk = fq_desk()
    peer = Peer(desk)
    desk.send(peer.data, bytes([128]) + b"e" * 128 + b"\1r" + ID + bytes(4))
    assert peer.data_is_closed
    peer = Peer(desk, b"other")
    assert peer.say(b"\xb1\x70\0\0\0\x80") == []
    assert peer.is_closed


def test_long_programs() -> None:
    """A10: a program may have 65,535 bytes, or as many as fqd takes."""
    text = b'prefix:"' + b"a" * 127 + b'" (true() && true())'
    assert Peer(fq_desk()).bind(b"ex", text) != REFUSED
    peer = Peer(fq_desk({"max_program": 127}))
    assert peer.say(spell_bind(0, b"ex", text)) == []
    assert peer.is_closed
