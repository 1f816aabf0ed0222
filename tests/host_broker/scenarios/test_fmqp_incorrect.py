"""Incorrect packets by the thousand: counted, cheap, and their sender is read more slowly (R4)."""

import pytest

from host_broker.bus.publication import pack
from host_broker.protocols.fmqp.codec import Codec
from tests.host_broker.desk import Desk

_READ = 256 * 1024
_GOOD = pack(0, b"a", b"good")
_MANY = 10_000

_ENDLESS = {
    "R9": pack(0, b"", b""),
    "R5": pack(0, b"\xff", b"x"),
    "R7": pack(4, b"a\0b", b"x"),
    "R44": pack(0x20, b"a", b"x"),
}


def _different(count: int) -> bytes:
    """So many incorrect packets, no two neighbours of which are equal."""
    return b"".join(pack(0, b"/", b"%d" % (number % 10)) for number in range(count))


@pytest.mark.parametrize("rule", _ENDLESS)
@pytest.mark.parametrize("cut", [7, 1000, _READ])
def test_a_repeated_packet_is_read_once(rule: str, cut: int) -> None:
    """R4: all are discarded and counted; what follows is read. Each read makes one event of them,
    whatever ends it."""
    packet = _ENDLESS[rule]
    data = packet * _MANY + _GOOD
    desk = Desk()
    client, other = desk.open(), desk.open()
    desk.sub(other, "a")
    for start in range(0, len(data), cut):
        desk.send(client, data[start : start + cut])
    assert desk.discarded == {rule: _MANY}
    assert desk.messages(other) == [(0, "a", b"good")]
    assert desk.closes == []
    codec = Codec("broker", 1000, 1000)
    (event,) = codec.receive_data(packet * _MANY)
    assert (event.count, event.distinct, event.offset) == (_MANY, 1, 0)  # type: ignore[union-attr]


def test_different_packets_that_break_one_rule_are_one_event() -> None:
    """What the broker makes of a read does not grow with the packets in it."""
    codec = Codec("broker", 1000, 1000)
    (event,) = codec.receive_data(_different(_MANY))
    assert (event.count, event.distinct) == (_MANY, _MANY)  # type: ignore[union-attr]


def test_signs_of_life_are_read_once() -> None:
    """R18, A22: an empty publication does nothing, however often; each is a message (A20)."""
    desk = Desk()
    client, other = desk.open(), desk.open()
    desk.sub(other, "$/info/messages/second")
    desk.sub(other, "a")
    desk.got(other)
    desk.send(client, pack(0, b"a", b"") * _MANY + _GOOD)
    assert desk.messages(other) == [(0, "a", b"good")]
    desk.advance(1.0)
    ((_, _, count),) = desk.messages(other)
    assert int.from_bytes(count, "big") == _MANY + 2  # and the subscription to "a"
    (event,) = Codec("broker", 1000, 1000).receive_data(pack(0, b"a", b"") * _MANY)
    assert event.count == _MANY  # type: ignore[union-attr]


def test_a_signal_is_never_a_mere_sign_of_life() -> None:
    """R31: any message, an empty one too."""
    desk = Desk()
    assert desk.send(desk.open(), pack(0, b"$/signals/terminate", b"") * 3).signal == "terminate"


def test_a_client_is_told_of_every_empty_message() -> None:
    """A4: a broker may send them, and none is another."""
    events = Codec("client", 1000, 1000).receive_data(pack(0, b"a", b"") * 3)
    assert [event.count for event in events] == [1, 1, 1]  # type: ignore[union-attr]


def test_whoever_sends_too_many_rests() -> None:
    """Settings.bus.max_discards_per_s: as long as they are worth; nobody is disconnected."""
    desk = Desk(bus={"max_discards_per_s": 1000})
    client, other = desk.open(), desk.open()
    assert desk.send(client, _different(100)).rest_s == 0
    assert desk.send(client, _different(400)).rest_s == pytest.approx(0.5)
    assert desk.send(other, _different(100)).rest_s == 0  # each for itself
    desk.advance(0.5)
    assert desk.send(client, _different(100)).rest_s == 0  # it has rested
    desk.advance(0.1)
    assert desk.send(client, _ENDLESS["R9"] * _MANY).rest_s == 0  # said again, it costs nothing
    assert desk.send(client, _GOOD * _MANY).rest_s == 0
    for _ in range(100):  # many small reads are not a way round
        rest_s = desk.send(client, _different(10)).rest_s
    assert rest_s == pytest.approx(1.0, abs=0.01)
    assert desk.closes == []


def test_what_the_broker_refuses_counts_too() -> None:
    """R30: service topics, whose packets are correct."""
    desk = Desk(bus={"max_discards_per_s": 1000})
    client = desk.open()
    assert desk.send(client, pack(0, b"$/a", b"x") * 500).rest_s == pytest.approx(0.5)
