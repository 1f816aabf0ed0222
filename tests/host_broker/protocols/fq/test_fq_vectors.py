"""The golden vectors of fq, both ways."""

from typing import Any

import pytest

from host_broker.protocols.fq.codec import (
    Codec,
    spell_greeting,
    spell_head,
    spell_login,
    spell_origin,
    spell_run,
)
from host_broker.protocols.fq.events import (
    Bind,
    BindAnswer,
    CommandGreeting,
    DataGreeting,
    ErrorText,
    Heartbeat,
    HeartbeatRequest,
    Login,
    LoginAccepted,
    MessageRun,
    Status,
    StatusRequest,
    Unbind,
    UnbindAnswer,
)
from host_broker.wire.violation import Violation
from tests.host_broker.golden import label, spelled, vectors
from tests.host_broker.protocols.fq.peer import Heard, spell_event, taken_apart

_MAX = 1 << 20
_KINDS = {
    "command_greeting": CommandGreeting,
    "data_greeting": DataGreeting,
    "login": Login,
    "login_accepted": LoginAccepted,
    "heartbeat": Heartbeat,
    "heartbeat_request": HeartbeatRequest,
    "bind": Bind,
    "bind_answer": BindAnswer,
    "unbind": Unbind,
    "unbind_answer": UnbindAnswer,
    "status_request": StatusRequest,
    "status": Status,
    "error": ErrorText,
    "messages": lambda ids, payloads, **more: [
        Heard(payload=payload, id=id, **more) for id, payload in zip(ids, payloads, strict=True)
    ],
}
_COMMANDS = spell_greeting(CommandGreeting())
_BEFORE = {
    "login": _COMMANDS,
    "commands": _COMMANDS + spell_login(b"u", b"q", b"p"),
    "messages": spell_greeting(DataGreeting(b"key")),
    "peer": spell_greeting(DataGreeting(b"key", b"\x0a\0\0\1", peer=True)),
}
_VECTORS = vectors("fq")


def _codec(phase: str) -> Codec:
    if phase == "answers":
        return Codec("command", _MAX)
    if phase == "delivered":
        return Codec("data", _MAX)
    codec = Codec("broker", _MAX)
    codec.receive_data(_BEFORE.get(phase, b""))
    return codec


def _event(event: dict[str, Any]) -> Any:
    fields = {}
    for name, value in event.items():
        if name == "counters":
            fields[name] = tuple((bytes.fromhex(key), count) for key, count in value)
        elif isinstance(value, list):
            fields[name] = [bytes.fromhex(each) for each in value]
        elif isinstance(value, str) and name != "type":
            fields[name] = bytes.fromhex(value)
        elif name != "type":
            fields[name] = value
    return _KINDS[event["type"]](**fields)


def _comparable(event: Any) -> Any:
    return taken_apart(event) if isinstance(event, MessageRun) else event


def _spell(event: Any, phase: str) -> bytes:
    match event:
        case [Heard(exchange, route, _, _, sender, hops), *_] as said:
            origin = b"" if phase == "messages" else spell_origin(sender, hops)
            ids, payloads = [each.id for each in said], [each.payload for each in said]
            return spell_run(spell_head(exchange, route), origin, ids, payloads)
    return spell_event(event)


@pytest.mark.parametrize("vector", _VECTORS, ids=label)
def test_read(vector: dict[str, Any]) -> None:
    """At once, and nothing more is read after a violation."""
    codec = _codec(vector["phase"])
    (event,) = codec.receive_data(spelled(vector))
    if vector["violation"] is None:
        assert _comparable(event) == _event(vector["event"])
    else:
        assert isinstance(event, Violation)
        assert {"rule": event.rule, "fatal": event.fatal} == vector["violation"]
        assert codec.receive_data(spelled(vector)) == []


@pytest.mark.parametrize(
    "vector", [each for each in _VECTORS if each["violation"] is None], ids=label
)
def test_read_byte_by_byte(vector: dict[str, Any]) -> None:
    """A20."""
    codec = _codec(vector["phase"])
    events = [each for byte in spelled(vector) for each in codec.receive_data(bytes([byte]))]
    expected = _event(vector["event"])
    if not isinstance(expected, list):
        assert events == [expected]
        return
    assert [each for event in events for each in taken_apart(event)] == expected


@pytest.mark.parametrize("vector", [each for each in _VECTORS if each["encodes"]], ids=label)
def test_spell(vector: dict[str, Any]) -> None:
    assert _spell(_event(vector["event"]), vector["phase"]) == spelled(vector)
