"""Payloads to readings in plain Python: CBOR, MessagePack, fixed layouts.

JSON and numbers are decoded by Spark itself (``decoding_json``), by the same laws and in the same
order: a payload's reason does not depend on how it was encoded.
"""

import io
import math
import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import cbor2
import msgpack

from motemq_pipeline.rules import (
    CBOR,
    COLUMN_TYPES,
    MAX_DEPTH,
    MAX_PAYLOAD_BYTES,
    MAX_TEXT,
    MSGPACK,
    STRUCT,
    TIME_UNITS,
    Field,
    Rule,
)

# board, sensor, seq, t_ms, unit, value, µs of the board's clock
Reading = tuple[str, str, int | None, int | None, str | None, float, int | None]
Fields = Mapping[str, Any]

ISO_8601: Final = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)"
LAST_US: Final = 253_402_300_799_999_999  # the year 9999; later ones are no timestamps of Python
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONGS: Final = range(-(2**63), 2**63)


class Refused(Exception):
    """The payload cannot be a reading; the text is the reason."""


def decode(rule: Rule) -> Callable[[str, bytes], list[Reading]]:
    """Return the decoder of a rule whose encoding is CBOR, MessagePack or a layout.

    It takes a path that the rule matches and a payload, and returns at least one reading. It
    raises ``Refused``, and nothing else, whatever the bytes are.
    """
    fields_of = _FIELDS_OF[rule.encoding](rule)

    def decoded(path: str, payload: bytes) -> list[Reading]:
        if not payload:
            raise Refused("the payload is empty")
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise Refused(f"the payload is longer than {MAX_PAYLOAD_BYTES} bytes")
        return _readings(rule, rule.pattern.match(path) or {}, fields_of(payload))

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


def _readings(rule: Rule, captured: Mapping[str, str], fields: Fields) -> list[Reading]:
    for name, wanted in rule.expect.items():
        found = _get(fields, Field(name))
        if found != wanted or type(found) is not type(wanted):
            raise Refused(f"the field '{name}' is not {wanted}")
    columns: dict[str, Any] = {**rule.constants, **captured}
    for column, kind in COLUMN_TYPES.items():
        if column in rule.fields:
            columns[column] = _column(rule, column, kind, _get(fields, rule.fields[column]))
    for column in ("seq", "t_ms"):
        if (columns.get(column) or 0) < 0:
            raise Refused(f"'{column}' is negative")
    values = _wide(rule, fields) if rule.wide else [_narrow(rule, columns)]
    for column in ("board", "unit"):
        _bounded(column, columns.get(column))
    unit = columns.get("unit")
    about = columns["board"], columns.get("seq"), columns.get("t_ms"), columns.get("time")
    board, seq, t_ms, time_us = about
    return [
        (board, sensor, seq, t_ms, own if unit is None else unit, value, time_us)
        for sensor, own, value in values
    ]


def _narrow(rule: Rule, columns: Mapping[str, Any]) -> tuple[str, str | None, float]:
    name, value = columns["sensor"], columns["value"]
    _bounded("sensor", name)
    if value is None:  # of an optional field
        raise Refused("there is no value")
    sensor = rule.sensors.get(name)
    if sensor is None:
        return name, None, value
    return name, sensor.unit, _scaled(rule.fields["value"], value, sensor.scale, sensor.offset)


def _wide(rule: Rule, fields: Fields) -> list[tuple[str, str | None, float]]:
    found = []
    for name, sensor in rule.sensors.items():
        field = sensor.field or Field("")
        value = _typed(field, "double", _get(fields, field))
        if value is not None:
            found.append((name, sensor.unit, _scaled(field, value, sensor.scale, sensor.offset)))
    if not found:
        raise Refused("none of the sensors' fields is there")
    return found


def _scaled(field: Field, value: float, scale: float, offset: float) -> float:
    scaled = value * scale + offset
    if not math.isfinite(scaled):
        raise Refused(_wrong(field, "double"))
    return scaled


def _get(fields: Any, field: Field) -> Any:
    for key in field.keys:
        if not isinstance(fields, dict):
            return None
        fields = fields.get(key)
    return fields


def _column(rule: Rule, column: str, kind: str, value: Any) -> Any:
    field = rule.fields[column]
    if column != "time":
        return _typed(field, kind, value)
    if isinstance(value, datetime):
        return _microseconds(value)
    if rule.time_unit == "iso8601":
        text = _typed(field, "string", value)
        if text is None:
            return None
        if not re.fullmatch(ISO_8601, text):
            raise Refused(not_a_time(field))
        try:
            return _microseconds(datetime.fromisoformat(text))
        except ValueError:
            raise Refused(not_a_time(field)) from None
    number = _typed(field, "double", value)
    if number is None:
        return None
    us = number * (1e6 / TIME_UNITS[rule.time_unit])
    return math.floor(us) if 0 <= us <= LAST_US else None


def _microseconds(time: datetime) -> int | None:
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    passed = aware - _EPOCH
    us = (passed.days * 86_400 + passed.seconds) * 10**6 + passed.microseconds
    return us if us >= 0 else None


def not_a_time(field: Field) -> str:
    """Return the reason for a text that is no time."""
    return f"the field '{field.name}' is not an ISO 8601 time with its zone"


def _typed(field: Field, kind: str, value: Any) -> Any:
    """Return a value as what it must be, None for none; a number that is not finite is none."""
    missing = value is None or (isinstance(value, float) and not math.isfinite(value))
    if not missing and (found := _AS[kind](value)) is not None:
        return found
    if missing and not field.required:
        return None
    raise Refused(
        _wrong(field, kind) if field.required else f"the field '{field.name}' is not a {kind}"
    )


def _wrong(field: Field, kind: str) -> str:
    return f"the field '{field.name}' is missing or not a {kind}"


def _as_string(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    # Boards with numbers for names are many.
    return str(value) if _as_long(value) is not None else None


def _as_long(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and value in _LONGS
    return value if whole else None


def _as_double(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer of a thousand digits
        return None


_AS: Final[dict[str, Callable[[Any], Any]]] = {
    "string": _as_string,
    "long": _as_long,
    "double": _as_double,
}


def _bounded(column: str, text: str | None) -> None:
    if text is not None and (len(text) > MAX_TEXT or (not text and column != "unit")):
        raise Refused(f"'{column}' is empty or longer than {MAX_TEXT} characters")
