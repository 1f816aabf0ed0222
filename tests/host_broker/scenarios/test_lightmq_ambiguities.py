"""Where the document is silent or contradicts itself, and no other file shows our answer."""

import pytest

from host_broker.protocols.lightmq.codec import Codec
from host_broker.protocols.lightmq.dialects import DialectName
from host_broker.protocols.lightmq.events import Pong, SendResp
from tests.host_broker.desk import Desk
from tests.host_broker.lightmq_peer import Peer, board


def frame(opcode: int, payload: bytes) -> bytes:
    return bytes([opcode]) + len(payload).to_bytes(2, "big") + payload


@pytest.mark.parametrize(
    ("dialect", "accepted", "send", "sendresp", "ping", "pong"),
    [("spec", 0, 5, 6, 3, 4), ("gbaranski", 1, 3, 4, 5, 6)],
)
def test_the_numbers_of_a_dialect(
    dialect: DialectName, accepted: int, send: int, sendresp: int, ping: int, pong: int
) -> None:
    """A1, A2: opcodes and codes on the wire, of the document and of its author's program."""
    desk = Desk(lightmq={"dialect": dialect, "ping_interval_s": 5}, random_u16=lambda: 0x5555)
    client, publisher = desk.open("lightmq"), desk.open()
    desk.send(client, frame(1, b"\x01a"))
    assert desk.got(client) == frame(2, bytes([accepted]))
    desk.send(client, frame(send, b"\x12\x34\x00Hi"))
    assert desk.got(client) == frame(sendresp, b"\x12\x34")
    desk.pub(publisher, "lightmq/a/down", b"Hi")
    assert desk.got(client) == frame(send, b"\x55\x55\x00Hi")
    desk.send(client, frame(ping, b"\xab\xcd"))
    assert desk.got(client) == frame(pong, b"\xab\xcd")
    desk.advance(5)
    assert desk.got(client) == frame(ping, b"\x55\x55")


@pytest.mark.parametrize(("ours", "theirs"), [("spec", "gbaranski"), ("gbaranski", "spec")])
def test_a_dialect_is_never_guessed(ours: DialectName, theirs: DialectName) -> None:
    """A3: CONNECT is the same in both; the first frame that is wrong in ours closes."""
    other = Codec("client", theirs)
    for wrong in (other.ping(1), other.send(1, b"data")):
        desk = Desk(lightmq={"dialect": ours})
        peer = Peer(desk, ours)
        assert peer.connect("a").accepted
        assert peer.say(wrong) == []
        assert peer.closed


@pytest.mark.parametrize("example", ["0500004869", "0500024869"])
def test_the_example_of_the_document_is_an_illustration(example: str) -> None:
    """A4, R14: a SEND that has no room for its id and flags closes."""
    desk = Desk()
    peer = board(desk, "a")
    assert peer.say(bytes.fromhex(example)) == []
    assert "R14" in peer.why_closed


def test_a_pong_without_an_id_and_one_with_half_an_id() -> None:
    """A5: the one is an answer, the other is malformed."""
    desk = Desk(lightmq={"ping_interval_s": 5, "ping_timeout_s": 5})
    without, half = board(desk, "a"), board(desk, "b")
    desk.advance(5)
    for peer, pong in ((without, b"\x04\0\0"), (half, b"\x04\0\1\0")):
        assert len(peer.heard()) == 1
        peer.say(pong)
    assert (without.closed, "R13" in half.why_closed) == (False, True)
    desk.advance(4.9)
    assert not without.closed


def test_what_fits_a_frame_is_accepted() -> None:
    """A6, R16, R17: 65532 and 65533 bytes; what is sent is never above 65463 and 65464."""
    desk = Desk()
    peer, other = board(desk, "a"), desk.open()
    desk.sub(other, "lightmq/a/*")
    desk.pub(other, "lightmq/a/down", bytes(65464))  # too long for a SEND
    desk.pub(other, "lightmq/a/down", bytes(65463))
    (send,) = peer.sends()
    desk.got(other)
    assert peer.say(frame(5, b"\0\1\0" + b"u" * 65532)) == [SendResp(1, b"")]
    peer.say(frame(6, send.id.to_bytes(2, "big") + b"r" * 65533))
    assert desk.messages(other) == [
        (0, "lightmq/a/up", b"u" * 65532),
        (0, "lightmq/a/reply", b"r" * 65533),
    ]


def test_the_frame_table_reserves_no_lengths() -> None:
    """A7: "0x7 to 0xFF" there is the opcode table's row; lengths of 7 and more are usual, opcodes
    close."""
    desk = Desk()
    peer = board(desk, "a")
    for length in (7, 8, 255):
        assert peer.say(peer.codec.send(length, bytes(length - 3))) == [SendResp(length, b"")]
    peer.say(b"\x07\0\0")
    assert "R4" in peer.why_closed


def test_a_sendresp_has_no_flags() -> None:
    """A8, R17: its data begins right after the id, both ways."""
    desk = Desk()
    peer, other = board(desk, "a"), desk.open()
    desk.sub(other, "lightmq/a/reply")
    desk.sub(other, "lightmq/*/up/*")
    desk.pub(other, "lightmq/a/down", b"q")
    (send,) = peer.sends()
    desk.send(peer.connection, frame(6, send.id.to_bytes(2, "big") + b"\0ok"))
    assert desk.messages(other) == [(0, "lightmq/a/reply", b"\0ok")]
    desk.send(peer.connection, frame(5, b"\0\1\0q"))
    desk.pub(other, "lightmq/a/answer/1", b"\0ok")
    assert desk.got(peer.connection) == frame(6, b"\0\1\0ok")


def test_reserved_flags_are_ignored() -> None:
    """A15, R15: and not passed on."""
    desk = Desk()
    peer, other = board(desk, "a"), desk.open()
    desk.sub(other, "lightmq/a/up")
    for flags in (0x80, 0x01, 0xFF):
        assert peer.say(frame(5, bytes([0, 1, flags]) + b"Hi")) == [SendResp(1, b"")]
    assert desk.messages(other) == [(0, "lightmq/a/up", b"Hi")] * 3
    assert peer.say(peer.codec.ping(1)) == [Pong(1)]
