"""Every FMQP vector, read whole, byte by byte and among others, and spelled."""

from collections.abc import Iterable
from typing import Any

import pytest

from host_broker.bus.publication import Run, pack
from host_broker.protocols.fmqp.codec import Codec
from host_broker.protocols.fmqp.events import (
    CACHE,
    FEEDBACK,
    Event,
    Publication,
    Subscription,
    publications,
)
from host_broker.protocols.fmqp.spelling import encode_publication, encode_subscription
from host_broker.wire.violation import Violation
from tests.host_broker.golden import label, spelled, vectors

_ROLES = {"C>B": ["broker"], "B>C": ["client"], "both": ["broker", "client"]}
_CASES = [
    pytest.param(role, vector, id=f"{role}-{label(vector)}")
    for vector in vectors("fmqp")
    for role in _ROLES[vector["direction"]]
]
_OTHER = bytes.fromhex("000300000002612f626869")


def _codec(role: Any) -> Codec:
    return Codec(role, max_body=1024 * 1024, hard_body_limit=64 * 1024 * 1024)


def _plain(events: Iterable[Event]) -> list[Any]:
    """Events as the vectors put them."""
    found: list[Any] = []
    for event in events:
        if isinstance(event, Run):
            assert len(list(publications(event))) == event.count
            found += _plain(publications(event))
        elif isinstance(event, Violation):
            found.append({"rule": event.rule, "fatal": event.fatal})
        else:
            kind = "subscription" if isinstance(event, Subscription) else "publication"
            body = event.body if isinstance(event, Publication) else None
            found.append((kind, event.flags, event.topic.decode(), body))
    return found


def _expected(vector: dict[str, Any]) -> list[Any]:
    packet = vector["packet"]
    if packet is None:
        return [vector["violation"]]
    bits = {"unsubscribe": 0x40, "feedback": 0x20, "debug": 0x10, "will": 8, "cache": 4}
    flags = sum(bit for name, bit in bits.items() if packet[name])
    if packet["kind"] == "subscription":
        return [("subscription", flags | 0x80, packet["topic"], None)]
    return [("publication", flags, packet["topic"], spelled(packet, "body_hex"))]


def _meaning(found: list[Any]) -> list[Any]:
    """Without the reserved bits, which mean nothing (A2)."""
    return [(e[0], e[1] & ~3, *e[2:]) if isinstance(e, tuple) else e for e in found]


@pytest.mark.parametrize(("role", "vector"), _CASES)
def test_read_whole(role: str, vector: dict[str, Any]) -> None:
    found = _plain(_codec(role).receive_data(spelled(vector)))
    assert _meaning(found) == _expected(vector)


@pytest.mark.parametrize(("role", "vector"), _CASES)
def test_read_byte_by_byte(role: str, vector: dict[str, Any]) -> None:
    codec = _codec(role)
    found: list[Any] = []
    for byte in spelled(vector):
        found += _plain(codec.receive_data(bytes([byte])))
    assert _meaning(found) == _expected(vector)


@pytest.mark.parametrize(("role", "vector"), _CASES)
def test_read_between_others(role: str, vector: dict[str, Any]) -> None:
    """R4: whatever the packet is, those before and after it are read."""
    found = _plain(_codec(role).receive_data(_OTHER + spelled(vector) + _OTHER))
    other = ("publication", 0, "a/b", b"hi")
    assert _meaning(found) == [other, *_expected(vector), other]


@pytest.mark.parametrize("vector", [v for v in vectors("fmqp") if v["encodes"]], ids=label)
def test_spell(vector: dict[str, Any]) -> None:
    packet = vector["packet"]
    if packet["kind"] == "subscription":
        names = ("unsubscribe", "feedback", "debug")
        flags = {name: packet[name] for name in names}
        assert encode_subscription(packet["topic"], **flags) == spelled(vector)
    elif packet["feedback"]:
        flag = FEEDBACK | CACHE * packet["cache"]
        body = spelled(packet, "body_hex")
        assert pack(flag, packet["topic"].encode(), body) == spelled(vector)
    else:
        flags = {name: packet[name] for name in ("will", "cache")}
        body = spelled(packet, "body_hex")
        assert encode_publication(packet["topic"], body, **flags) == spelled(vector)


@pytest.mark.parametrize(
    ("topic", "rule"),
    [("", "R9"), ("///", "R9"), ("a\0b", "R7"), ("t" * 256, "R6"), ("é" * 128, "R6")],
)
def test_no_topic_is_spelled_that_fmqp_cannot_carry(topic: str, rule: str) -> None:
    with pytest.raises(ValueError, match="topic") as caught:
        encode_publication(topic, b"x")
    assert getattr(caught.value, "rule", None) == rule
    with pytest.raises(ValueError, match="topic"):
        encode_subscription(topic)
