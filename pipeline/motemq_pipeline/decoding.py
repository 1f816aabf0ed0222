"""Payloads to readings, one by one: the words in which a payload is refused are those of here.

``decoding_arrow`` decodes most messages in columns; what is unusual about one is left to this.
"""

import io
import math
import re
import struct
from collections.abc import Callable
from typing import Any, Final

import msgspec

from motemq_pipeline.reading import Fields, Reader, Reading, Refused
from motemq_pipeline.rules import (
    CBOR,
    JSON,
    MAX_DEPTH,
    MAX_PAYLOAD_BYTES,
    MSGPACK,
    NUMBER,
    STRUCT,
    Rule,
)

_REMEMBERED: Final = 1000  # paths; a limit, because boards choose them
_NUMBER: Final = re.compile(r"\s*-?\d+(\.\d+)?([eE][+-]?\d+)?\s*", re.ASCII)
# 1e999 is JSON, and no number for us: the field is refused, not the payload.
_ANY_JSON: Final = msgspec.json.Decoder(float_hook=float)
_ANY_MSGPACK: Final = msgspec.msgpack.Decoder()


def decode(rule: Rule) -> Callable[[str, bytes], list[Reading]]:
    """Return the decoder of a rule.

    It takes a path that the rule matches and a payload, and returns at least one reading. It
    raises ``Refused``, and nothing else, whatever the bytes are.
    """
    fields_of, readings_of = fields_decoder(rule), Reader(rule).readings
    captured: dict[str, dict[str, str]] = {}

    def decoded(path: str, payload: bytes) -> list[Reading]:
        if not payload:
            raise Refused("the payload is empty")
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise Refused(f"the payload is longer than {MAX_PAYLOAD_BYTES} bytes")
        if (given := captured.get(path)) is None:
            if len(captured) >= _REMEMBERED:
                captured.clear()
            given = captured[path] = rule.pattern.match(path) or {}
        return readings_of(given, fields_of(payload))

    return decoded


def fields_decoder(rule: Rule) -> Callable[[bytes], Fields]:
    """Return what makes the fields of a payload, of any type each; it raises ``Refused``."""
    return _FIELDS_OF[rule.encoding](rule)


def _from_json(rule: Rule) -> Callable[[bytes], Fields]:
    def fields(payload: bytes) -> Fields:
        _text(payload)
        try:
            found = _ANY_JSON.decode(payload)
        except (msgspec.DecodeError, ValueError, RecursionError):
            found = None
        return _map(found, "a JSON object")

    return fields


def _from_number(rule: Rule) -> Callable[[bytes], Fields]:
    def fields(payload: bytes) -> Fields:
        text = _text(payload)
        value = float(text) if _NUMBER.fullmatch(text) else math.inf
        if not math.isfinite(value):
            raise Refused("the payload is not a number")
        return {"": value}

    return fields


def _from_cbor(rule: Rule) -> Callable[[bytes], Fields]:
    import cbor2  # executors need it for this encoding only

    def fields(payload: bytes) -> Fields:
        stream = io.BytesIO(payload)
        try:
            found = cbor2.CBORDecoder(
                stream, max_depth=MAX_DEPTH, allow_duplicate_keys=False, strict_hashable_types=True
            ).decode()
        except Exception as error:  # tags are decoded, too: dates, numbers, whatever they raise
            raise Refused("the payload is not CBOR") from error
        if stream.tell() != len(payload):
            raise Refused("the payload is not CBOR")
        return _map(found, "a CBOR map")

    return fields


def _from_msgpack(rule: Rule) -> Callable[[bytes], Fields]:
    def fields(payload: bytes) -> Fields:
        try:
            # Timestamps become times. Its own bounds are those of the payload's length.
            found = _ANY_MSGPACK.decode(payload)
        except Exception as error:  # keys that are no keys, times beyond the year 9999, depth
            raise Refused("the payload is not MessagePack") from error
        return _map(found, "a MessagePack map")

    return fields


def _from_layout(rule: Rule) -> Callable[[bytes], Fields]:
    layout = struct.Struct(rule.layout)

    def fields(payload: bytes) -> Fields:
        if len(payload) != layout.size:
            raise Refused(
                f"the payload has {len(payload)} bytes, the layout {rule.layout} {layout.size}"
            )
        found = dict(zip(rule.names, layout.unpack(payload), strict=True))
        for name, value in found.items():
            if isinstance(value, bytes):
                found[name] = _padded_text(name, value)
        return found

    return fields


_FIELDS_OF: Final[dict[str, Callable[[Rule], Callable[[bytes], Fields]]]] = {
    JSON: _from_json,
    NUMBER: _from_number,
    CBOR: _from_cbor,
    MSGPACK: _from_msgpack,
    STRUCT: _from_layout,
}


def _text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise Refused("the payload is not UTF-8") from None


def _padded_text(name: str, value: bytes) -> str:
    try:
        return value.rstrip(b"\0").decode()
    except UnicodeDecodeError:
        raise Refused(f"the field '{name}' is not UTF-8") from None


def _map(found: Any, what: str) -> Fields:
    if not isinstance(found, dict):
        raise Refused(f"the payload is not {what}")
    return found
