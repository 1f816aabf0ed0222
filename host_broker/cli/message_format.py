"""The ways ``motemq sub`` writes a message."""

import base64
import struct
import time
from collections.abc import Callable
from datetime import UTC, datetime

from host_broker.cli.property_option import properties_json
from host_broker.client import Message
from host_broker.printable import json_text, printable

Format = Callable[[Message], bytes]
_COUNT = struct.Struct(">Q")


def number(message: Message) -> int | None:
    """Return the number a broker says: of subscribers (feedback), or a ``$/info/…`` value.

    None for everything else, and for feedback of brokers that do not count.
    """
    if message.feedback and not message.payload:
        return 0
    counts = message.feedback or message.topic.startswith("$/info/")
    if counts and len(message.payload) == _COUNT.size:
        return int(_COUNT.unpack(message.payload)[0])
    return None


def raw(message: Message) -> bytes:
    """The payload and nothing else."""
    return message.payload


def line(message: Message, *, topic: bool = False, hexadecimal: bool = False) -> bytes:
    """One line, safe for a terminal; a broker's numbers are written as numbers."""
    said = message.payload.hex() if hexadecimal else text(message)
    prefix = f"{printable(message.topic.encode())} " if topic else ""
    return f"{prefix}{said}\n".encode()


def text(message: Message) -> str:
    """What a message says, as one line that is safe for a terminal."""
    if number(message) is not None:
        return str(number(message))
    return "wanted" if message.feedback else printable(message.payload)


def as_json(message: Message, *, pretty: bool = False) -> bytes:
    """One JSON object, one a line unless ``pretty``; ``encoding`` says how to read ``payload``:
    utf-8 or base64."""
    fields: dict[str, object] = {"ts": _utc(message), "topic": message.topic}
    fields |= payload_fields(message.payload)
    if number(message) is not None:
        fields["count"] = number(message)
    fields |= {
        "cache": message.retain,
        "will": message.will,
        "feedback": message.feedback,
        "kept": message.kept,
    }
    if message.properties:
        fields["properties"] = properties_json(message)
    return json_text(fields, indent=2 if pretty else None).encode() + b"\n"


def payload_fields(payload: bytes) -> dict[str, object]:
    """A payload for JSON: as text if it is UTF-8, else in base64."""
    try:
        return {"payload": payload.decode(), "encoding": "utf-8"}
    except UnicodeDecodeError:
        return {"payload": base64.b64encode(payload).decode(), "encoding": "base64"}


def arrival_ns(message: Message) -> int:
    """When a message arrived, in nanoseconds since 1970."""
    return time.time_ns() - (time.monotonic_ns() - message.received_ns)


def _utc(message: Message) -> str:
    moment = datetime.fromtimestamp(arrival_ns(message) / 1e9, UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
