"""Every LightMQ vector, read whole, byte by byte and among others, and spelled."""

from collections.abc import Iterable
from typing import Any

import pytest

from host_broker.protocols.lightmq.codec import MAX_SEND, MAX_SENDRESP, Codec
from host_broker.protocols.lightmq.dialects import DIALECTS, Refusal
from host_broker.protocols.lightmq.events import (
    Connack,
    Connect,
    Event,
    Ping,
    Pong,
    Send,
    SendResp,
)
from host_broker.wire.violation import Violation
from tests.host_broker.golden import label, spelled, vectors

_ROLES = {"C>S": ["server"], "S>C": ["client"], "both": ["server", "client"]}
_CASES = [
    pytest.param(role, vector, id=f"{role}-{label(vector)}")
    for vector in vectors("lightmq")
    for role in _ROLES[vector["direction"]]
]


def _expected(vector: dict[str, Any]) -> Any:
    frame = vector["frame"]
    if frame is None:
        return vector["violation"]
    match frame["opcode"]:
        case "CONNECT":
            return Connect(frame["client_id"])
        case "CONNACK":
            return Connack(frame["code"], frame["accepted"])
        case "PING":
            return Ping(frame["id"])
        case "PONG":
            return Pong(frame["id"])
        case "SEND":
            return Send(frame["id"], frame["flags"], spelled(frame, "data_hex"))
        case _:
            return SendResp(frame["id"], spelled(frame, "data_hex"))


def _plain(events: Iterable[Event]) -> list[Any]:
    return [
        {"rule": event.rule, "fatal": event.fatal} if isinstance(event, Violation) else event
        for event in events
    ]


@pytest.mark.parametrize(("role", "vector"), _CASES)
def test_read_whole(role: Any, vector: dict[str, Any]) -> None:
    codec = Codec(role, vector["dialect"])
    assert _plain(codec.receive_data(spelled(vector))) == [_expected(vector)]


@pytest.mark.parametrize(("role", "vector"), _CASES)
def test_read_byte_by_byte(role: Any, vector: dict[str, Any]) -> None:
    codec = Codec(role, vector["dialect"])
    found: list[Any] = []
    for byte in spelled(vector):
        found += _plain(codec.receive_data(bytes([byte])))
    assert found == [_expected(vector)]


@pytest.mark.parametrize(("role", "vector"), _CASES)
def test_read_between_others(role: Any, vector: dict[str, Any]) -> None:
    """A violation is the last event, after the good ones before it; nothing after it is read."""
    codec = Codec(role, vector["dialect"])
    ping = codec.ping(7)
    found = _plain(codec.receive_data(ping + spelled(vector) + ping))
    after = [] if vector["violation"] else [Ping(7)]
    assert found == [Ping(7), _expected(vector), *after]
    assert len(codec.receive_data(ping)) == len(after)


@pytest.mark.parametrize("vector", [v for v in vectors("lightmq") if v["encodes"]], ids=label)
def test_spell(vector: dict[str, Any]) -> None:
    codec = Codec("server", vector["dialect"])
    match _expected(vector):
        case Connect(client_id):
            frame = codec.connect(client_id)
        case Connack(code, _):
            frame = codec.connack(code)
        case Ping(id):
            frame = codec.ping(id)
        case Pong(id):
            frame = codec.pong(id)
        case Send(id, _, data):
            frame = codec.send(id, data)
        case SendResp(id, data):
            frame = codec.sendresp(id, data)
    assert frame == spelled(vector)


def test_longer_data_is_never_spelled() -> None:
    """R2, R16, R17."""
    codec = Codec("client")
    with pytest.raises(ValueError, match="at most 65463"):
        codec.send(1, bytes(MAX_SEND + 1))
    with pytest.raises(ValueError, match="at most 65464"):
        codec.sendresp(1, bytes(MAX_SENDRESP + 1))
    for client_id in ("", "é" * 128):
        with pytest.raises(ValueError, match="1 to 255 bytes"):
            codec.connect(client_id)


def test_codes_of_both_dialects() -> None:
    """R11, A2."""
    codes = {name: [d.accepted, *map(d.refused, Refusal)] for name, d in DIALECTS.items()}
    assert codes == {"spec": [0, 1, 2, 3, 4], "gbaranski": [1, 2, 3, 4, 5]}
