"""Every MicroMsg2 vector, read whole, byte by byte and among others, and spelled."""

from collections.abc import Iterable
from typing import Any

import pytest

from host_broker.protocols.micromsg2.codec import (
    MAX_FRAGMENT,
    Codec,
    spell_command_frame,
    spell_error,
    spell_extension,
    spell_handshake,
    spell_message,
)
from host_broker.protocols.micromsg2.events import (
    CommandFrame,
    ErrorFrame,
    Event,
    Extension,
    ExtensionFrame,
    Handshake,
    MessageFrame,
)
from host_broker.wire.violation import Violation
from tests.host_broker.golden import label, spelled, vectors

_ROLES = {"C>S": ["server"], "S>C": ["client"], "both": ["server", "client"]}
_CASES = [
    pytest.param(role, vector, id=f"{role}-{label(vector)}")
    for vector in vectors("micromsg2")
    for role in _ROLES[vector["direction"]]
]
_HANDSHAKE = bytes.fromhex("0100000000000000")
_PING = bytes.fromhex("010470696e67")


def _extensions(listed: list[dict[str, Any]]) -> tuple[Extension, ...]:
    return tuple(
        Extension(each["name"], tuple((key, value) for key, value in each["properties"]))
        for each in listed
    )


def _event(event: dict[str, Any]) -> Event:
    match event["type"]:
        case "handshake":
            return Handshake(
                event["major"],
                event["minor"],
                event["identity"],
                _extensions(event["required"]),
                _extensions(event["optional"]),
                event["flags"],
            )
        case "message":
            return MessageFrame(
                event["sequence"],
                event["destination"].encode(),
                event["properties"].encode(),
                spelled(event, "payload_hex"),
                event["continued"],
            )
        case "command":
            arguments = tuple((key, value.encode()) for key, value in event["arguments"])
            return CommandFrame(event["name"], arguments)
        case "extension":
            return ExtensionFrame(event["index"], spelled(event, "payload_hex"))
        case _:
            return ErrorFrame(event["reason"])


def _expected(vector: dict[str, Any]) -> list[Any]:
    if vector["violation"]:
        return [vector["violation"]]
    return [_event(vector["event"])] if vector["event"] else []


def _codec(role: Any, vector: dict[str, Any]) -> Codec:
    """In the vector's phase."""
    codec = Codec(role, extension_flag_4=vector.get("extension_flag_4", False))
    if vector["phase"] == "frames":
        count = 2 if role == "server" else 1
        assert len(codec.receive_data(_HANDSHAKE * count)) == count
    return codec


def _plain(events: Iterable[Event]) -> list[Any]:
    return [
        {"rule": event.rule, "fatal": event.fatal} if isinstance(event, Violation) else event
        for event in events
    ]


@pytest.mark.parametrize(("role", "vector"), _CASES)
def test_read_whole(role: Any, vector: dict[str, Any]) -> None:
    assert _plain(_codec(role, vector).receive_data(spelled(vector))) == _expected(vector)


@pytest.mark.parametrize(("role", "vector"), _CASES)
def test_read_in_small_pieces(role: Any, vector: dict[str, Any]) -> None:
    """Byte by byte; long ones with the first and last bytes so."""
    codec = _codec(role, vector)
    data = spelled(vector)
    reads = [bytes([byte]) for byte in data]
    if len(data) > 1000:
        reads = [*reads[:300], data[300:-300], *reads[-300:]]
    found: list[Any] = []
    for read in reads:
        found += _plain(codec.receive_data(read))
    assert found == _expected(vector)


@pytest.mark.parametrize(
    ("role", "vector"), [case for case in _CASES if case.values[1]["phase"] == "frames"]
)
def test_read_between_others(role: Any, vector: dict[str, Any]) -> None:
    """A25: an ERROR or a violation is the last event, after the good ones before it."""
    codec = _codec(role, vector)
    ping = CommandFrame("ping")
    expected = _expected(vector)
    last = vector["violation"] is not None or isinstance(expected[0], ErrorFrame)
    found = _plain(codec.receive_data(_PING + spelled(vector) + _PING))
    assert found == [ping, *expected, *([] if last else [ping])]
    assert codec.receive_data(_PING) == ([] if last else [ping])


@pytest.mark.parametrize("vector", [v for v in vectors("micromsg2") if v["encodes"]], ids=label)
def test_spell(vector: dict[str, Any]) -> None:
    match _event(vector["event"]):
        case Handshake() as handshake:
            data = spell_handshake(handshake)
        case MessageFrame(sequence, destination, properties, payload, continued):
            data = spell_message(sequence, destination, properties, payload, continued)
        case CommandFrame(name, arguments):
            data = spell_command_frame(name, arguments)
        case ExtensionFrame(index, payload):
            data = spell_extension(index, payload)
        case ErrorFrame(reason):
            data = spell_error(reason)
    assert data == spelled(vector)


def test_examples_of_the_document() -> None:
    """A2, A3, A6: with the lengths and the indexes that its examples lack."""
    ack, dotnet, request = (
        spelled(vector)
        for name in ("ext_batch_ack", "ext_dotnet", "hs_client_request")
        for vector in vectors("micromsg2")
        if vector["name"] == name
    )
    assert ack == bytes([2, 3, 2, 0, 4])
    assert dotnet[:3] == bytes([2, 2, 50])
    assert request[8:10] == bytes([0, len(b"json;dotnet")])


def test_a_mebibyte() -> None:
    """A30."""
    assert MAX_FRAGMENT == 1024 * 1024
