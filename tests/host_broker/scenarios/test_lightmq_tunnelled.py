"""FMQP inside LightMQ: topics, cache and wills of one; name, PING, SENDRESP of the other."""

from typing import Any

import pytest

from host_broker.bus.publication import pack
from host_broker.protocols.fmqp.dialect import REVERSED
from host_broker.protocols.fmqp.spelling import encode_publication, encode_subscription
from host_broker.protocols.lightmq.codec import MAX_SEND
from host_broker.protocols.lightmq.events import Ping, Pong, SendResp
from tests.host_broker.desk import Desk, Message, packets
from tests.host_broker.lightmq_peer import Peer, board


def carried(desk: Desk, client_id: str) -> Peer:
    peer = board(desk, client_id, listener="lightmq+fmqp")
    assert peer.heard() == []
    return peer


def pub(topic: str, body: bytes, **flags: bool) -> bytes:
    return encode_publication(topic, body, **flags)


def sub(topic: str, **flags: bool) -> bytes:
    return encode_subscription(topic, **flags)


def say(peer: Peer, id: int, data: bytes) -> list[Any]:
    return peer.say(peer.codec.send(id, data))


def messages(peer: Peer) -> list[Message]:
    """The publications that came; nothing else may have come."""
    return packets(b"".join(send.data for send in peer.sends()))


def test_who_calls_no_one_is_seen_by_nobody() -> None:
    """``NAME>``: no presence, before and after."""
    desk = Desk()
    watcher = desk.open()
    desk.sub(watcher, "lightmq/*/status")
    desk.sub(watcher, "home/one")
    unseen = carried(desk, "a>")
    assert say(unseen, 7, pub("home/one", b"1")) == [SendResp(7, b"")]
    desk.close(unseen.connection)
    assert [topic for _, topic, _ in desk.messages(watcher)] == ["home/one"]


def test_topics_both_ways() -> None:
    """R14, R17: a SEND of several packets is acknowledged once all have taken effect."""
    desk = Desk()
    board_a, fmqp = carried(desk, "a"), desk.open()
    desk.sub(fmqp, "home/*")
    assert say(board_a, 7, pub("home/one", b"1") + pub("home/two", b"2") + sub("lamp")) == [
        SendResp(7, b"")
    ]
    assert desk.messages(fmqp) == [(0, "home/one", b"1"), (0, "home/two", b"2")]
    desk.pub(fmqp, "lamp", b"on")
    assert messages(board_a) == [(0, "lamp", b"on")]


def test_what_is_kept_comes_before_the_acknowledgement() -> None:
    """FMQP R21."""
    desk = Desk()
    fmqp = desk.open()
    desk.pub(fmqp, "lamp/1", b"on", cache=True)
    board_a = carried(desk, "a")
    send, acknowledged = say(board_a, 1, sub("lamp/*"))
    assert packets(send.data) == [(4, "lamp/1", b"on")]
    assert acknowledged == SendResp(1, b"")


def test_a_will_is_published_when_the_pong_is_missing() -> None:
    """R12, R13, A17, FMQP R25: a silent death, which FMQP alone cannot see."""
    desk = Desk(lightmq={"ping_interval_s": 15, "ping_timeout_s": 10})
    watcher = desk.open()
    desk.sub(watcher, "status")
    desk.sub(watcher, "lightmq/a/status")
    board_a = carried(desk, "a")
    say(board_a, 1, pub("status", b"died", will=True, cache=True) + sub("lamp"))
    desk.messages(watcher)
    for _ in range(3):
        desk.advance(15.1)
        (ping,) = board_a.heard()
        assert isinstance(ping, Ping)
        desk.advance(9)
        assert board_a.say(board_a.codec.pong(ping.id)) == []
    assert desk.messages(watcher) == []
    desk.advance(25.2)
    assert "no PONG" in board_a.why_closed
    assert desk.messages(watcher) == []  # the connection is not closed yet
    desk.close(board_a.connection)
    expected = [(0x0C, "status", b"died"), (4, "lightmq/a/status", b"offline")]
    assert desk.messages(watcher) == expected
    desk.pub(watcher, "lamp", b"on")
    assert [type(event) for event in board_a.heard()] == [Ping]
    desk.close(board_a.connection)
    assert desk.messages(watcher) == []


@pytest.mark.parametrize("ending", ["closed", "violation", "takeover", "stop", "incorrect"])
def test_every_ending_publishes_the_wills_once(ending: str) -> None:
    """FMQP R25 to R28, A17."""
    desk = Desk(lightmq={"duplicate_client": "takeover"}, fmqp={"hard_body_limit": 1000})
    watcher, board_a = desk.open(), carried(desk, "a")
    desk.sub(watcher, "w/*")
    say(board_a, 1, pub("w/1", b"x", will=True) + pub("w/2", b"y", will=True))
    match ending:
        case "violation":
            board_a.say(b"\xff\0\0")
        case "incorrect":
            say(board_a, 2, b"\0\1\xff\xff\xff\xffa")
        case "takeover":
            carried(desk, "a")
        case "stop":
            desk.done(desk.broker.stop(desk.now))
    assert board_a.closed == (ending in ("violation", "takeover", "incorrect"))
    desk.close(board_a.connection)
    desk.close(board_a.connection)
    assert desk.messages(watcher) == [(8, "w/1", b"x"), (8, "w/2", b"y")]


def test_packets_may_be_cut_anywhere() -> None:
    """FMQP R51: SENDs are an ordered stream; each piece is acknowledged."""
    desk = Desk()
    board_a, fmqp = carried(desk, "a"), desk.open()
    desk.sub(fmqp, "*/*")
    stream = pub("a/b", b"1") + pub("c/d", b"22", cache=True)
    for id in range(len(stream)):
        assert say(board_a, id, stream[id : id + 1]) == [SendResp(id, b"")]
    assert desk.messages(fmqp) == [(0, "a/b", b"1"), (4, "c/d", b"22")]
    assert say(board_a, 99, b"") == [SendResp(99, b"")]


def test_sends_hold_whole_packets_up_to_a_length() -> None:
    """Settings.lightmq.tunnel_bytes: a board's buffer holds a SEND, and a longer packet takes
    several."""
    desk = Desk(lightmq={"tunnel_bytes": 50})
    board_a, fmqp = carried(desk, "a"), desk.open()
    say(board_a, 1, sub("t"))
    bodies = [b"x" * length for length in (10, 20, 43, 44, 1, 200, 3, 93, 1, 1, 1)]
    stream = b"".join(pack(0, b"t", body) for body in bodies)
    desk.send(fmqp, stream)
    sends = board_a.sends()
    assert b"".join(send.data for send in sends) == stream
    assert [len(send.data) for send in sends] == [
        *(44, 50, 50, 1, 8, 50, 50, 50, 50, 7, 10, 50, 50, 24)
    ]
    assert len({send.id for send in sends}) == len(sends)
    assert {send.flags for send in sends} == {0}


def test_the_default_length_fits_the_default_buffer_of_boards() -> None:
    """1024 bytes in client_upy: header, id and flags are 6 of them."""
    desk = Desk()
    board_a, fmqp = carried(desk, "a"), desk.open()
    say(board_a, 1, sub("t"))
    desk.pub(fmqp, "t", bytes(100_000))
    desk.send(fmqp, pack(0, b"t", b"1") * 5000)
    frames = desk.got(board_a.connection)
    position = longest = 0
    while position < len(frames):
        length = 3 + int.from_bytes(frames[position + 1 : position + 3], "big")
        longest = max(longest, length)
        position += length
    assert (position, longest) == (len(frames), 1024)


def test_the_longest_send_is_as_long_as_it_may_be() -> None:
    """R16."""
    desk = Desk(lightmq={"tunnel_bytes": MAX_SEND})
    board_a, fmqp = carried(desk, "a"), desk.open()
    say(board_a, 1, sub("t"))
    desk.pub(fmqp, "t", bytes(MAX_SEND))
    assert [len(send.data) for send in board_a.sends()] == [MAX_SEND, 7]


def test_the_statistics_of_a_second_are_carried_too() -> None:
    """FMQP R42; and neither clock keeps the other from its time."""
    desk = Desk(lightmq={"ping_interval_s": 2.5, "ping_timeout_s": 10})
    board_a = carried(desk, "a")
    say(board_a, 1, sub("$/info/messages/second"))
    kinds = []
    for _ in range(3):
        desk.advance(1)
        heard = board_a.heard()
        kinds += [type(event).__name__ for event in heard]
        for event in heard:
            if isinstance(event, Ping):
                board_a.say(board_a.codec.pong(event.id))
            else:
                ((_, topic, _),) = packets(event.data)
                assert topic == "$/info/messages/second"
    assert kinds == ["Send", "Send", "Ping", "Send"]


def test_the_clock_of_a_subscriber_to_statistics_is_no_sign_of_its_life() -> None:
    desk = Desk(lightmq={"ping_interval_s": 5, "ping_timeout_s": 5})
    board_a = carried(desk, "a")
    say(board_a, 1, sub("$/info/messages/second"))
    desk.advance(10.1)
    assert "no PONG" in board_a.why_closed


def test_another_order_of_flags() -> None:
    """FMQP A1: the carried session is the same as any."""
    desk = Desk(fmqp={"bit_order": "lsb"})
    board_a, other = carried(desk, "a"), carried(desk, "b")
    turned = bytearray(sub("t"))
    turned[0] = REVERSED[turned[0]]
    say(board_a, 1, bytes(turned))
    kept = bytearray(pub("t", b"x", cache=True))
    kept[0] = REVERSED[kept[0]]
    say(other, 1, bytes(kept))
    assert [send.data for send in board_a.sends()] == [bytes(kept)]


def test_it_is_present_but_has_no_mailbox() -> None:
    """Its name is on the bus; what it does there is FMQP's."""
    desk = Desk()
    watcher = desk.open()
    desk.sub(watcher, "lightmq/*/status")
    desk.sub(watcher, "lightmq/*/down", feedback=True)
    board_a = carried(desk, "a")
    desk.pub(watcher, "lightmq/a/down", b"x")
    assert board_a.sends() == []
    say(board_a, 1, pub("t", b"x"))
    desk.close(board_a.connection)
    states = [(4, "lightmq/a/status", state) for state in (b"online", b"offline")]
    assert desk.messages(watcher) == states
    assert (board_a.connection, 2, "a", [(0, "t", b"x")]) in desk.journal()


def test_each_connection_is_one_client() -> None:
    """FMQP R40, R45: its subscriptions are interest like others'."""
    desk = Desk()
    watcher = desk.open()
    desk.sub(watcher, "$/info/clients")
    desk.sub(watcher, "lamp", feedback=True)
    desk.messages(watcher)
    board_a = carried(desk, "a")
    say(board_a, 1, sub("lamp"))
    desk.close(board_a.connection)
    count = [number.to_bytes(8, "big") for number in range(3)]
    assert desk.messages(watcher) == [
        (4, "$/info/clients", count[2]),
        (0x24, "lamp", count[1]),
        (0x24, "lamp", b""),
        (4, "$/info/clients", count[1]),
    ]


def test_it_can_answer_calls_of_others() -> None:
    """A carried client is an FMQP program: it asks boards and answers them."""
    desk = Desk()
    kitchen, program = board(desk, "kitchen"), carried(desk, "program")
    say(program, 1, sub("lightmq/*/up/*"))
    assert kitchen.say(kitchen.codec.send(9, b"q")) == []
    assert messages(program) == [(0, "lightmq/kitchen/up/9", b"q")]
    say(program, 2, pub("lightmq/kitchen/answer/9", b"a"))
    assert kitchen.heard() == [SendResp(9, b"a")]


def test_wrong_packets_are_discarded_and_acknowledged() -> None:
    """FMQP R4: the connection is kept."""
    desk = Desk()
    board_a = carried(desk, "a")
    assert say(board_a, 1, pack(0, b"\0", b"x") + pack(0, b"", b"x")) == [SendResp(1, b"")]
    assert board_a.say(board_a.codec.ping(5)) == [Pong(5)]
    assert sum(desk.discarded.values()) == 2


def test_its_signals_end_the_broker() -> None:
    """FMQP R32: nothing after it has an effect; the SEND that held it is not acknowledged."""
    desk = Desk()
    board_a = carried(desk, "a")
    outputs = desk.send(
        board_a.connection, board_a.codec.send(1, pub("$/signals/stop", b"x") + pub("t", b"x"))
    )
    assert outputs.signal == "stop"
    assert board_a.heard() == []


def test_before_connect_nothing_is_carried() -> None:
    """R5, A13."""
    desk = Desk()
    peer = Peer(desk, listener="lightmq+fmqp")
    assert peer.say(peer.codec.send(1, pub("t", b"x"))) == []
    assert peer.closed
    desk.close(peer.connection)
    assert desk.journal() == []


def test_its_responses_are_taken_without_a_word() -> None:
    """R18: acknowledgements of the client, also of ids we never used."""
    desk = Desk()
    board_a = carried(desk, "a")
    assert board_a.say(board_a.codec.sendresp(1, b"") + board_a.codec.sendresp(1, b"x")) == []
    assert not board_a.closed
    assert not desk.discarded
