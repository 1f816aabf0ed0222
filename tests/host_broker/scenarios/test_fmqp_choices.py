"""What the text of FMQP leaves open, by its setting (A1, A2, A5, A6, A8, A10, A15)."""

from typing import Any

import pytest

from host_broker.bus.publication import HEADER, pack
from tests.host_broker.desk import Desk


def _turned(data: bytes) -> bytes:
    """The packets with their flags in the other bit order."""
    turned = bytearray(data)
    position = 0
    while position < len(data):
        _, topic_length, body_length = HEADER.unpack_from(data, position)
        turned[position] = int(f"{data[position]:08b}"[::-1], 2)
        position += HEADER.size + topic_length + body_length
    return bytes(turned)


def test_bit_order_lsb() -> None:
    """A1: everything that is said with flags, in both directions, is the mirror of ``msb``."""

    def outcome(order: str) -> tuple[list[bytes], Any]:
        turned = _turned if order == "lsb" else bytes
        desk = Desk(fmqp={"bit_order": order})
        client, other = desk.open(), desk.open()
        desk.send(other, turned(pack(0x80, b"a/*", b"") + pack(0xA0, b"a/b", b"")))
        desk.send(client, turned(pack(0x90, b"a/b", b"") + pack(0x08, b"a/w", b"will")))
        desk.send(client, turned(pack(0x04, b"a/b", b"kept") + pack(0, b"a/b", b"plain") * 3))
        desk.send(client, turned(pack(0xC0, b"a/b", b"") + pack(0x03, b"a/c", b"reserved")))
        desk.send(client, turned(pack(0x20, b"a/b", b"R44")))
        desk.send(client, turned(pack(0x80, b"a/b", b"")))
        got = [desk.got(client)]
        desk.close(client)
        late = desk.open()
        desk.send(late, turned(pack(0x80, b"*/*", b"") + pack(0x80, b"*/*/*", b"")))
        got += [desk.got(other), desk.got(late)]
        return [turned(each) for each in got], (desk.journal(), desk.discarded)

    assert outcome("lsb") == outcome("msb")
    got, (journal, discarded) = outcome("lsb")
    assert pack(0x04, b"a/b", b"kept") in got[1]
    assert pack(0x08, b"a/w", b"will") in got[1]
    assert discarded == {"R44": 1}
    # The journal is in stored form whatever is spoken.
    assert (0x08, "a/w", b"will") in [message for *_, found in journal for message in found]


@pytest.mark.parametrize("order", ["msb", "lsb"])
@pytest.mark.parametrize("strict", [False, True])
def test_strict_reserved(order: str, strict: bool) -> None:
    """A2: a packet with one of the two flags that mean nothing."""
    desk = Desk(fmqp={"strict_reserved": strict, "bit_order": order})
    client = desk.open()
    reserved = [1, 2, 3] if order == "msb" else [0x80, 0x40, 0xC0]
    desk.send(client, pack(0x80 if order == "msb" else 1, b"a", b""))
    desk.send(client, b"".join(pack(flags, b"a", b"x") for flags in [0, *reserved]))
    assert desk.messages(client) == [(0, "a", b"x")] * (1 if strict else 4)
    assert desk.discarded == ({"fmqp.strict_reserved": 3} if strict else {})


@pytest.mark.parametrize("collapse", [False, True])
def test_collapse_inner(collapse: bool) -> None:
    """A8: levels without a letter."""
    desk = Desk(fmqp={"collapse_inner": collapse})
    client = desk.open()
    desk.sub(client, "a/b")
    for topic in (b"a//b", b"//a////b/", b"a/b"):
        desk.send(client, pack(0, topic, b"x") * 2)
    assert desk.messages(client) == [(0, "a/b", b"x")] * (6 if collapse else 2)
    desk.sub(client, "a//b", unsubscribe=True)
    desk.pub(client, "a/b", b"y")
    assert desk.messages(client) == ([] if collapse else [(0, "a/b", b"y")])
    longest = b"a" + b"/" * 253 + b"b"
    desk.sub(client, longest.decode())
    desk.send(client, pack(0, longest, b"z"))
    assert desk.messages(client) == [(0, "a/b" if collapse else longest.decode(), b"z")]


@pytest.mark.parametrize("only", [False, True])
def test_ascii_topics(only: bool) -> None:
    """A10."""
    desk = Desk(fmqp={"ascii_topics": only})
    client = desk.open()
    desk.sub(client, "*")
    desk.send(
        client, pack(0, "ü".encode(), b"x") * 2 + pack(0, b"u", b"x") + pack(0, b"\xff", b"x")
    )
    expected = [(0, "u", b"x")] if only else [(0, "ü", b"x")] * 2 + [(0, "u", b"x")]
    assert desk.messages(client) == expected
    discarded = {"fmqp.ascii_topics": 3} if only else {"R5": 1}
    assert desk.discarded == discarded


@pytest.mark.parametrize("empty", ["keep", "drop"])
def test_feedback_cache_empty(empty: str) -> None:
    """A5: what is kept when the last subscriber has gone; those there are told in any case."""
    desk = Desk(fmqp={"feedback_cache_empty": empty})
    listener, client, late = desk.open(), desk.open(), desk.open()
    desk.sub(listener, "a", feedback=True)
    desk.sub(client, "a")
    kept = desk.broker.retained_count
    desk.got(listener)
    desk.sub(client, "a", unsubscribe=True)
    gone = (0x24, "a", b"")
    assert desk.messages(listener) == [gone]
    assert desk.broker.retained_count == kept - (empty == "drop")
    desk.sub(late, "a", feedback=True)
    assert desk.messages(late) == ([gone] if empty == "keep" else [])


@pytest.mark.parametrize("will", [False, True])
@pytest.mark.parametrize("clears", [False, True])
def test_empty_clears_cache(clears: bool, will: bool) -> None:
    """A6: an empty publication with the cache flag, at once or as a last will."""
    desk = Desk(fmqp={"empty_clears_cache": clears})
    client, late = desk.open(), desk.open()
    desk.pub(client, "a", b"kept", cache=True)
    desk.pub(client, "a", b"", cache=True, will=will)
    desk.close(client)
    desk.sub(late, "a")
    assert desk.messages(late) == ([] if clears else [(4, "a", b"kept")])


@pytest.mark.parametrize("matches", [False, True])
def test_wildcard_matches_service(matches: bool) -> None:
    """A15: whether ``*`` hears the broker; other topics, and the literal ``$``, are as ever."""
    desk = Desk(bus={"wildcard_matches_service": matches})
    client, named = desk.open(), desk.open()
    for topic in ("*/*/*", "*/info/messages/second", "*/x/y"):
        desk.sub(client, topic)
    desk.sub(named, "$/*/*")
    desk.sub(named, "$/info/messages/second")
    told = {topic for _, topic, _ in desk.messages(client)}
    assert told == ({"$/info/clients"} if matches else set())
    assert [topic for _, topic, _ in desk.messages(named)] == ["$/info/clients"]
    desk.close(desk.open())
    count = 2 if matches else 0
    assert [topic for _, topic, _ in desk.messages(client)] == ["$/info/clients"] * count
    assert [topic for _, topic, _ in desk.messages(named)] == ["$/info/clients"] * 2
    desk.advance(1.0)
    assert len(desk.messages(client)) == matches
    assert len(desk.messages(named)) == 1
    desk.pub(named, "a/x/y", b"1")
    desk.pub(named, "*/x/y", b"2")
    assert desk.messages(client) == [(0, "a/x/y", b"1"), (0, "*/x/y", b"2")]
    # A "*" that is said is not the "$" that is subscribed to, either.
    assert desk.messages(named) == ([(0, "*/x/y", b"2")] if matches else [])


@pytest.mark.parametrize("matches", [False, True])
def test_wildcard_matches_service_in_feedback(matches: bool) -> None:
    """A15, R49: in the feedback system as in the other."""
    desk = Desk(bus={"wildcard_matches_service": matches})
    client, watcher = desk.open(), desk.open()
    desk.sub(watcher, "*/info/clients", feedback=True)
    desk.sub(client, "$/info/clients")
    desk.sub(client, "a/info/clients")
    topics = [topic for _, topic, _ in desk.messages(watcher)]
    assert topics == ["$/info/clients"] * matches + ["a/info/clients"]
