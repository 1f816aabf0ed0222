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
    if hexadecimal:
        text = heard.payload.hex()
    elif heard.count is not None:
        text = str(heard.count)
    elif heard.feedback:
        text = "wanted"
    else:
        text = printable(heard.payload)
    prefix = f"{printable(heard.topic.encode())} " if topic else ""
    return f"{prefix}{text}\n".encode()


def as_json(heard: Heard) -> bytes:
    """One JSON object a line; ``encoding`` says how to read ``payload``: utf-8 or base64."""
    fields: dict[str, object] = {"ts": _utc(heard.received_ns), "topic": heard.topic}
    fields |= payload_fields(heard.payload)
    if heard.count is not None:
        fields["count"] = heard.count
    fields |= {
        "cache": heard.cache,
        "will": heard.will,
        "feedback": heard.feedback,
        "kept": heard.kept,
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def payload_fields(payload: bytes) -> dict[str, object]:
    """A payload for JSON: as text if it is UTF-8, else in base64."""
    try:
        return {"payload": payload.decode(), "encoding": "utf-8"}
    except UnicodeDecodeError:
        return {"payload": base64.b64encode(payload).decode(), "encoding": "base64"}


def _utc(monotonic_ns: int) -> str:
    wall_ns = time.time_ns() - (time.monotonic_ns() - monotonic_ns)
    moment = datetime.fromtimestamp(wall_ns / 1e9, UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
