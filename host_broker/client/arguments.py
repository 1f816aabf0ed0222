"""What programs give a client that types alone do not check."""

import json
from collections.abc import Mapping

from host_broker.client_errors import BadArgument


class _NoJson:
    def __repr__(self) -> str:
        return "NO_JSON"


NO_JSON = _NoJson()  # None is a value


def json_or_bytes(payload: bytes, value: object) -> bytes:
    """Return a payload, or the JSON of ``value``. Raises ``BadArgument`` for both at once and for
    numbers that JSON has not; TypeError for what is no value of JSON."""
    if value is NO_JSON:
        return payload
    if payload != b"":
        raise BadArgument("give a payload, or json, not both")
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except (ValueError, RecursionError) as error:
        raise BadArgument(f"no JSON can say this: {error}") from error


def payload_bytes(payload: object) -> bytes:
    """Return a payload as bytes that its owner cannot change later; TypeError for anything else."""
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    advice = "; give text.encode()" if isinstance(payload, str) else ""
    raise TypeError(f"a payload is bytes, not {type(payload).__name__}{advice}")


def require_text(*topics: object) -> None:
    """Raise TypeError for a topic or pattern that is no text."""
    for topic in topics:
        if not isinstance(topic, str):
            raise TypeError(f"a topic is str, not {type(topic).__name__}")


def require_properties(properties: object) -> None:
    """Raise TypeError for what is no mapping with text as names; what values can be is the
    protocol's."""
    if not isinstance(properties, Mapping):
        raise TypeError(f"properties are a mapping, not {type(properties).__name__}")
    for name in properties:
        if not isinstance(name, str):
            raise TypeError(f"a property's name is str, not {type(name).__name__}")
