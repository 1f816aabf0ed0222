"""Payloads to readings in plain Python: CBOR, MessagePack, fixed layouts.

JSON and numbers are decoded by Spark itself (``decoding_json``), by the same checks and in the same
order (``reading``): a payload's reason does not depend on how it was encoded.
"""

import io
import struct
from collections.abc import Callable
from typing import Any, Final

import cbor2
import msgpack

from motemq_pipeline.reading import Fields, Reader, Reading, Refused
from motemq_pipeline.rules import CBOR, MAX_DEPTH, MAX_PAYLOAD_BYTES, MSGPACK, STRUCT, Rule

_REMEMBERED: Final = 1000  # paths; a limit, because boards choose them


def decode(rule: Rule) -> Callable[[str, bytes], list[Reading]]:
    """Return the decoder of a rule whose encoding is CBOR, MessagePack or a layout.

    It takes a path that the rule matches and a payload, and returns at least one reading. It
    raises ``Refused``, and nothing else, whatever the bytes are.
    """
    fields_of, readings_of = _FIELDS_OF[rule.encoding](rule), Reader(rule).readings
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


def _from_cbor(rule: Rule) -> Callable[[bytes], Fields]:
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
            # 3: timestamps as times. Its own bounds are those of the payload's length.
            found = msgpack.unpackb(payload, timestamp=3, strict_map_key=True)
        except Exception as error:  # ValueError, StackError, OverflowError of a timestamp, …
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


_FIELDS_OF: Final = {CBOR: _from_cbor, MSGPACK: _from_msgpack, STRUCT: _from_layout}


def _padded_text(name: str, value: bytes) -> str:
    try:
        return value.rstrip(b"\0").decode()
    except UnicodeDecodeError:
        raise Refused(f"the field '{name}' is not UTF-8") from None


def _map(found: Any, what: str) -> Fields:
    if not isinstance(found, dict):
        raise Refused(f"the payload is not {what}")
    return found
