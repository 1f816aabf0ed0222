"""Payloads to readings, one by one: the words in which a payload is refused are those of here.

``decoding_arrow`` decodes most messages in columns; what is unusual about one is left to this.
"""

import io
import math
import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from motemq_pipeline.rules import (
    CBOR,
    COLUMN_TYPES,
    JSON,
    MAX_DEPTH,
    MAX_PAYLOAD_BYTES,
    MAX_SEQ,
    MAX_TEXT,
    MSGPACK,
    NUMBER,
    STRUCT,
    TIME_UNITS,
    Field,
    Rule,
    Sensor,
    column_type,
)

# board, sensor, seq, t_ms, unit, value, µs of the board's clock
Reading = tuple[str, str, int | None, int | None, str | None, float, int | None]
Fields = Mapping[str, Any]

_ISO_8601: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)", re.ASCII
)
LAST_US: Final = 253_402_300_799_999_999  # the year 9999; later ones are no timestamps of Python
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST_LONG, _LARGEST_LONG = -(2**63), 2**63 - 1


class Refused(Exception):
    """The payload cannot be a reading; the text is the reason."""


class Reader:
    """Reads the fields of one rule; what can be known before a message comes, is."""

    def __init__(self, rule: Rule) -> None:
        self._expected = [
            (_Wanted(Field(name), "string"), value) for name, value in rule.expect.items()
        ]
        self._columns = [
            (column, _Wanted(rule.fields[column], column_type(rule, column)))
            for column in COLUMN_TYPES
            if column in rule.fields
        ]
        self._wide = [
            (sensor, _Wanted(sensor.field, "double"))
            for sensor in rule.sensors.values()
            if sensor.field is not None
        ]
        self._rule = rule

    def readings(self, captured: Mapping[str, str], fields: Fields) -> list[Reading]:
        """Return the readings; raises ``Refused``."""
        for wanted, value in self._expected:
            found = wanted.raw(fields)
            if found != value or type(found) is not type(value):
                raise Refused(f"the field '{wanted.field.name}' is not {value}")
        columns: dict[str, Any] = {**self._rule.constants, **captured}
        for column, wanted in self._columns:
            if column == "time":
                columns[column] = _board_us(self._rule, wanted, fields)
            else:
                columns[column] = wanted.value(fields)
        seq, t_ms = columns.get("seq"), columns.get("t_ms")
        if seq is not None and seq < 0:
            raise Refused("'seq' is negative")
        if seq is not None and seq > MAX_SEQ:
            raise Refused(f"'seq' is above {MAX_SEQ}")
        if t_ms is not None and t_ms < 0:
            raise Refused("'t_ms' is negative")
        values = self._wide_values(fields) if self._wide else [self._narrow_value(columns)]
        board, unit, time_us = columns["board"], columns.get("unit"), columns.get("time")
        _bounded("board", board)
        if unit is not None:
            _bounded("unit", unit)
        return [
            (board, sensor, seq, t_ms, own if unit is None else unit, value, time_us)
            for sensor, own, value in values
        ]

    def _narrow_value(self, columns: Mapping[str, Any]) -> tuple[str, str | None, float]:
        name, value = columns["sensor"], columns["value"]
        _bounded("sensor", name)
        if value is None:  # of an optional field
            raise Refused("there is no value")
        sensor = self._rule.sensors.get(name)
        if sensor is None:
            return name, None, value
        return name, sensor.unit, _scaled(self._rule.fields["value"], value, sensor)

    def _wide_values(self, fields: Fields) -> list[tuple[str, str | None, float]]:
        found = []
        for sensor, wanted in self._wide:
            value = wanted.value(fields)
            if value is not None:
                found.append((sensor.name, sensor.unit, _scaled(wanted.field, value, sensor)))
        if not found:
            raise Refused("none of the sensors' fields is there")
        return found


def _scaled(field: Field, value: float, sensor: Sensor) -> float:
    scaled = value * sensor.scale + sensor.offset
    if not math.isfinite(scaled):
        raise Refused(_wrong(field, "double"))
    return scaled


class _Wanted:
    """A field and what it must be."""

    def __init__(self, field: Field, kind: str) -> None:
        self.field = field
        self.kind = kind
        self._as = _AS[kind]
        self._first, *self._deeper = field.keys

    def raw(self, fields: Fields) -> Any:
        """Return the field as it is, None if it is not there."""
        found = fields.get(self._first)
        for key in self._deeper:
            if not isinstance(found, dict):
                return None
            found = found.get(key)
        return found

    def value(self, fields: Fields) -> Any:
        """Return the field as what it must be, None for none; a number that is not finite is none.

        Raises ``Refused`` if a required one is none, or one is of another type.
        """
        return self.typed(self.raw(fields))

    def typed(self, value: Any) -> Any:
        """Return ``value`` as ``value`` of a field does."""
        missing = value is None or (isinstance(value, float) and not math.isfinite(value))
        if not missing and (found := self._as(value)) is not None:
            return found
        if not self.field.required:
            if missing:
                return None
            raise Refused(f"the field '{self.field.name}' is not a {self.kind}")
        raise Refused(_wrong(self.field, self.kind))


def _board_us(rule: Rule, wanted: _Wanted, fields: Fields) -> int | None:
    value = wanted.raw(fields)
    if isinstance(value, datetime):
        return _microseconds(value)
    typed = wanted.typed(value)
    if typed is None:
        return None
    if not TIME_UNITS[rule.time_unit]:
        try:
            return iso_us(typed)
        except ValueError:
            raise Refused(
                f"the field '{wanted.field.name}' is not an ISO 8601 time with its zone"
            ) from None
    us = typed * (1e6 / TIME_UNITS[rule.time_unit])
    return math.floor(us) if 0 <= us <= LAST_US else None


def iso_us(text: str) -> int | None:
    """Return a time with its zone as microseconds since 1970, None if it is before that.

    Raises ``ValueError`` for what is no such time.
    """
    if not _ISO_8601.fullmatch(text):
        raise ValueError(text)
    return _microseconds(datetime.fromisoformat(text))


def _microseconds(time: datetime) -> int | None:
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    passed = aware - _EPOCH
    us = (passed.days * 86_400 + passed.seconds) * 10**6 + passed.microseconds
    return us if us >= 0 else None


def _wrong(field: Field, kind: str) -> str:
    return f"the field '{field.name}' is missing or not a {kind}"


def _as_string(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    # Boards with numbers for names are many.
    return None if _as_long(value) is None else str(value)


def _as_long(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value if _LEAST_LONG <= value <= _LARGEST_LONG else None
    return None


def _as_double(value: Any) -> float | None:
    if isinstance(value, float):
        return value
    if isinstance(value, bool) or not isinstance(value, int):
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
    if (not text and column != "unit") or len(text or "") > MAX_TEXT:
        raise Refused(f"'{column}' is empty or longer than {MAX_TEXT} characters")


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
