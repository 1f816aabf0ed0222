"""JSON payloads, and payloads that are a number, to readings by Spark's own functions.

The checks, their order and their words are those of ``reading``.
"""

from collections.abc import Mapping
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, LongType, StringType, StructField, StructType

from motemq_pipeline.decoding_arrow import READINGS_SCHEMA
from motemq_pipeline.reading import ISO_8601, LAST_US, not_a_time
from motemq_pipeline.rules import (
    COLUMN_TYPES,
    MAX_PAYLOAD_BYTES,
    MAX_TEXT,
    TIME_UNITS,
    Field,
    Rule,
    Sensor,
    column_type,
    wanted_fields,
)

_CORRUPT: Final = "_corrupt"
_TYPES: Final[dict[str, DataType]] = {
    "string": StringType(),
    "long": LongType(),
    "double": DoubleType(),
}
_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowNonNumericNumbers": "false",
}
# What JSON calls a number; Spark's own cast would take "1d" and "NaN".
_NUMBER: Final = r"\A\s*-?\d+(\.\d+)?([eE][+-]?\d+)?\s*\z"
_LARGEST: Final = 1.7976931348623157e308


def json_schema(rule: Rule) -> StructType:
    """Return what of a JSON payload the rule needs."""
    wanted: dict[str, Any] = {}
    for field, kind in wanted_fields(rule):
        inner = wanted
        for key in field.keys[:-1]:
            inner = inner.setdefault(key, {})
        inner[field.keys[-1]] = kind
    return _struct(wanted).add(StructField(_CORRUPT, StringType()))


def parse_json(schema: StructType, wanted: Column) -> Column:
    """Return the column ``text`` as ``schema`` says where ``wanted``, else null.

    Its corrupt column tells of other types.
    """
    return F.from_json(F.when(wanted, F.col("text")), schema, _OPTIONS)


def _struct(wanted: Mapping[str, Any]) -> StructType:
    return StructType(
        [
            StructField(key, _struct(kind) if isinstance(kind, dict) else _TYPES[kind])
            for key, kind in wanted.items()
        ]
    )


class JsonRule:
    """The columns of one rule over messages with ``path``, ``payload`` and ``text``.

    ``text`` is the payload as text, null if it is none; ``parsed`` is it by ``json_schema``, None
    for a rule whose payloads are numbers.
    """

    def __init__(self, rule: Rule, parsed: Column | None) -> None:
        self._rule = rule
        self._is_number = parsed is None
        self._parsed = F.lit(None) if parsed is None else parsed
        self._text = F.col("text")

    def reason(self) -> Column:
        """Return why a payload is refused, null for a good one."""
        told = [*self._not_read(), *self._expected(), *self._columns(), *self._values()]
        told += [self._bounded(column) for column in ("board", "unit") if self._has(column)]
        first, *others = told
        chain = F.when(first[0], F.lit(first[1]))
        return reduce(lambda chain, check: chain.when(check[0], F.lit(check[1])), others, chain)

    def readings(self) -> Column:
        """Return the readings of a payload that has no reason, as ``READINGS_SCHEMA``."""
        sensors = self._rule.sensors
        if self._rule.wide:
            each = [self._of_sensor(sensor) for sensor in sensors.values()]
            found = F.array_compact(F.array(*each))
        else:
            name = self._column("sensor")
            unit = self._by_sensor({sensor.name: sensor.unit for sensor in sensors.values()}, None)
            found = F.array(self._reading(name, self._narrow_value(), unit))
        return found.cast(READINGS_SCHEMA)

    def _not_read(self) -> list["_Check"]:
        """What hinders reading any field."""
        checks = [
            (F.length("payload") == 0, "the payload is empty"),
            (F.length("payload") > MAX_PAYLOAD_BYTES, _TOO_LONG),
            (self._text.isNull(), "the payload is not UTF-8"),
        ]
        if self._is_number:
            return [*checks, (self._column("value").isNull(), "the payload is not a number")]
        # Spark's parsers read the first value only; in a list, what follows it shows.
        listed = F.try_parse_json(F.concat(F.lit("["), self._text, F.lit("]")))
        is_one = listed.isNotNull() & F.try_variant_get(listed, "$[1]", "variant").isNull()
        is_object = self._text.rlike(r"(?s)\A\s*\{.*\}\s*\z")
        return [*checks, (~(is_one & is_object), "the payload is not a JSON object")]

    def _expected(self) -> list["_Check"]:
        return [
            (
                ~self._field(Field(name)).eqNullSafe(F.lit(value)),
                f"the field '{name}' is not {value}",
            )
            for name, value in self._rule.expect.items()
        ]

    def _columns(self) -> list["_Check"]:
        checks: list[_Check] = []
        for column in COLUMN_TYPES:
            if column in self._rule.fields and not self._is_number:
                field = self._rule.fields[column]
                checks.append(self._typed(field, column_type(self._rule, column)))
                if column == "time" and self._rule.time_unit == "iso8601":
                    given = self._field(field)
                    bad = given.isNotNull() & self._iso_us(given).isNull()
                    checks.append((bad, not_a_time(field)))
        return checks + [
            (self._column(column) < 0, f"'{column}' is negative")
            for column in ("seq", "t_ms")
            if self._has(column)
        ]

    def _values(self) -> list["_Check"]:
        if not self._rule.wide:
            value = self._rule.fields["value"]
            return [
                self._bounded("sensor"),
                (self._column("value").isNull(), "there is no value"),
                (
                    ~_finite(self._narrow_value()),
                    f"the field '{value.name}' is missing or not a double",
                ),
            ]
        checks: list[_Check] = []
        values = []
        for sensor in self._rule.sensors.values():
            if sensor.field is not None:
                checks.append(self._typed(sensor.field, "double"))
                scaled = _scaled(self._double(sensor.field), sensor)
                wrong = f"the field '{sensor.field.name}' is missing or not a double"
                checks.append((~_finite(scaled), wrong))
                values.append(scaled)
        return [*checks, (F.coalesce(*values).isNull(), "none of the sensors' fields is there")]

    def _typed(self, field: Field, kind: str) -> "_Check":
        found = self._double(field) if kind == "double" else self._field(field)
        if field.required:
            return found.isNull(), f"the field '{field.name}' is missing or not a {kind}"
        # Spark gives null for what is missing and for what is of another type.
        raw = F.get_json_object(self._text, _json_path(field))
        there = self._parsed.getField(_CORRUPT).isNotNull() & raw.isNotNull()
        return found.isNull() & there, f"the field '{field.name}' is not a {kind}"

    def _bounded(self, column: str) -> "_Check":
        length = F.length(self._column(column))
        wrong = length > MAX_TEXT
        if column != "unit":
            wrong = wrong | (length == 0)
        return wrong, f"'{column}' is empty or longer than {MAX_TEXT} characters"

    def _has(self, column: str) -> bool:
        rule = self._rule
        return column in rule.fields or column in rule.constants or column in rule.pattern.names

    def _column(self, column: str) -> Column:
        rule = self._rule
        if column in rule.constants:
            return F.lit(rule.constants[column])
        if column in rule.pattern.names:
            group = rule.pattern.names.index(column) + 1
            return F.regexp_extract("path", rule.pattern.java, group)
        if column not in rule.fields:
            return F.lit(None)
        if self._is_number:
            number = F.when(self._text.rlike(_NUMBER), F.trim(self._text).try_cast("double"))
            return F.when(_finite(number), number)
        if column == "value":
            return self._double(rule.fields[column])
        return self._field(rule.fields[column])

    def _field(self, field: Field) -> Column:
        return reduce(Column.getField, field.keys, self._parsed)

    def _double(self, field: Field) -> Column:
        return F.when(_finite(self._field(field)), self._field(field))

    def _narrow_value(self) -> Column:
        sensors = self._rule.sensors.values()
        value = self._column("value")
        scale = self._by_sensor({sensor.name: sensor.scale for sensor in sensors}, 1.0)
        offset = self._by_sensor({sensor.name: sensor.offset for sensor in sensors}, 0.0)
        return value * scale + offset if sensors else value

    def _by_sensor(self, values: Mapping[str, Any], otherwise: Any) -> Column:
        found = F.lit(otherwise)
        for name, value in values.items():
            found = F.when(self._column("sensor") == name, F.lit(value)).otherwise(found)
        return found

    def _of_sensor(self, sensor: Sensor) -> Column:
        value = _scaled(self._double(sensor.field or Field("")), sensor)
        return F.when(
            value.isNotNull(), self._reading(F.lit(sensor.name), value, F.lit(sensor.unit))
        )

    def _reading(self, sensor: Column, value: Column, own_unit: Column) -> Column:
        return F.struct(
            self._column("board").cast("string").alias("board"),
            sensor.cast("string").alias("sensor"),
            self._column("seq").cast("long").alias("seq"),
            self._column("t_ms").cast("long").alias("t_ms"),
            F.coalesce(self._column("unit").cast("string"), own_unit).alias("unit"),
            value.cast("double").alias("value"),
            self._board_us().alias("board_us"),
        )

    def _board_us(self) -> Column:
        rule = self._rule
        if "time" not in rule.fields:
            return F.lit(None).cast("long")
        given = self._field(rule.fields["time"])
        if rule.time_unit == "iso8601":
            us = self._iso_us(given)
            return F.when(us >= 0, us)
        us = given * F.lit(1e6 / TIME_UNITS[rule.time_unit])
        return F.when(us.between(0, LAST_US), F.floor(us))

    def _iso_us(self, text: Column) -> Column:
        return F.when(text.rlike(rf"\A{ISO_8601}\z"), F.unix_micros(F.try_to_timestamp(text)))


_Check = tuple[Column, str]  # it holds for what is wrong, and the reason
_TOO_LONG: Final = f"the payload is longer than {MAX_PAYLOAD_BYTES} bytes"


def _finite(value: Column) -> Column:
    return F.abs(value) <= F.lit(_LARGEST)  # null for null, false for NaN: Spark's is the largest


def _scaled(value: Column, sensor: Sensor) -> Column:
    if (sensor.scale, sensor.offset) == (1.0, 0.0):
        return value
    return value * F.lit(sensor.scale) + F.lit(sensor.offset)


def _json_path(field: Field) -> str:
    return "$" + "".join(f"['{key}']" for key in field.keys)
