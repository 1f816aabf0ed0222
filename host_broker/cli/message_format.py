"""The ways ``motemq sub`` writes a message."""

import base64
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime

from host_broker.cli.listening import Heard
from host_broker.cli.printable import printable

Format = Callable[[Heard], bytes]


def raw(heard: Heard) -> bytes:
    """The payload and nothing else."""
    return heard.payload


def line(heard: Heard, *, topic: bool = False, hexadecimal: bool = False) -> bytes:
    """One line, safe for a terminal; a broker's numbers are written as numbers."""
    said = heard.payload.hex() if hexadecimal else text(heard)
    prefix = f"{printable(heard.topic.encode())} " if topic else ""
    return f"{prefix}{said}\n".encode()


def text(heard: Heard) -> str:
    """What a message says, as one line that is safe for a terminal."""
    if heard.count is not None:
        return str(heard.count)
    return "wanted" if heard.feedback else printable(heard.payload)


def as_json(heard: Heard, *, pretty: bool = False) -> bytes:
    """One JSON object, one a line unless ``pretty``; ``encoding`` says how to read ``payload``:
    utf-8 or base64."""
    fields: dict[str, object] = {"ts": _utc(heard), "topic": heard.topic}
    fields |= payload_fields(heard.payload)
    if heard.count is not None:
        fields["count"] = heard.count
    fields |= {
        "cache": heard.cache,
        "will": heard.will,
        "feedback": heard.feedback,
        "kept": heard.kept,
    }
    return json.dumps(fields, ensure_ascii=False, indent=2 if pretty else None).encode() + b"\n"


def payload_fields(payload: bytes) -> dict[str, object]:
    """A payload for JSON: as text if it is UTF-8, else in base64."""
    try:
        return {"payload": payload.decode(), "encoding": "utf-8"}
    except UnicodeDecodeError:
        return {"payload": base64.b64encode(payload).decode(), "encoding": "base64"}


def arrival_ns(heard: Heard) -> int:
    """When a message arrived, in nanoseconds since 1970."""
    return time.time_ns() - (time.monotonic_ns() - heard.received_ns)


def _utc(heard: Heard) -> str:
    moment = datetime.fromtimestamp(arrival_ns(heard) / 1e9, UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
