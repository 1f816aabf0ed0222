"""The columns that decode messages by a registry: built once, used for every batch of a stream.

A column is many calls into Java; of a registry with forty rules, a second of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StructType

from motemq_pipeline.decoding_arrow import DECODED_SCHEMA, READINGS_SCHEMA, decode_columns
from motemq_pipeline.decoding_json import JsonRule, json_schema, parse_json
from motemq_pipeline.rules import JSON, MAX_PAYLOAD_BYTES, NUMBER, TELEMETRY, Registry, Rule


@dataclass(frozen=True, slots=True)
class DecodingColumns:
    """``rule``, the number of a message's rule; ``is_telemetry``, which messages go on; and the
    columns to add to these, in few steps, because Spark analyses the whole frame at each:
    ``readings``, ``reason``, ``max_late_us`` and ``end`` among them."""

    java: object  # columns live in one Java process
    rule: Column
    is_telemetry: Column
    steps: tuple[dict[str, Column], ...]


_BUILT: Final[WeakKeyDictionary[Registry, DecodingColumns]] = WeakKeyDictionary()


def decoding_columns(registry: Registry) -> DecodingColumns:
    """Return the columns of a registry; needs a Spark session."""
    built = _BUILT.get(registry)
    if built is None or built.java is not SparkContext._gateway:
        built = _BUILT[registry] = _build(registry.rules)
    return built


def _build(rules: tuple[Rule, ...]) -> DecodingColumns:
    telemetry = [number for number, rule in enumerate(rules) if rule.kind == TELEMETRY]
    native = [number for number in telemetry if rules[number].encoding in (JSON, NUMBER)]
    binary = [number for number in telemetry if number not in native]
    late = {number: int(rules[number].max_late_s * 1e6) for number in telemetry}
    columns, parsed = _native(rules, native)
    reasons, readings = F.lit(None).cast("string"), F.lit(None).cast(READINGS_SCHEMA)
    if binary:
        # PySpark's stubs ask for an argument of which PySpark itself warns.
        udf = arrow_udf(  # type: ignore[call-overload]
            decode_columns(rules, frozenset(binary)), DECODED_SCHEMA
        )
        payload = F.when(_is_one_of(binary), F.col("payload"))
        parsed["decoded"] = udf("rule", "path", payload)
        reasons = F.col("decoded.reason")
        readings = F.when(reasons.isNull(), F.col("decoded.readings"))
    for number, rule in columns.items():
        of_rule = F.col("rule") == number
        reasons = F.when(of_rule, rule.reason()).otherwise(reasons)
        of_good = F.when(F.col("reason").isNull(), rule.readings())
        readings = F.when(of_rule, of_good).otherwise(readings)
    steps = (
        {
            "max_late_us": _by_rule(late, "long"),
            "end": _by_rule({number: rules[number].end for number in telemetry}, "string"),
            "text": _text(native),
        },
        parsed,
        {"reason": reasons},
        {"readings": readings},
    )
    is_telemetry = _is_one_of(telemetry)
    return DecodingColumns(SparkContext._gateway, _rule_number(rules), is_telemetry, steps)


def _rule_number(rules: tuple[Rule, ...]) -> Column:
    """Return the number of the first rule that matches ``path``, null where none does."""
    found = F.lit(None).cast("int")
    for number, rule in reversed(list(enumerate(rules))):
        found = F.when(F.col("path").rlike(rule.pattern.java), F.lit(number)).otherwise(found)
    return found


def _text(native: list[int]) -> Column:
    text = F.col("payload").cast("string")
    short = (F.length("payload") <= MAX_PAYLOAD_BYTES) & F.is_valid_utf8(text)
    return F.when(_is_one_of(native) & short, text)


def _native(
    rules: tuple[Rule, ...], native: list[int]
) -> tuple[dict[int, JsonRule], dict[str, Column]]:
    """Return the rules that Spark decodes itself, and the columns with what it parses for them.

    Rules that read the same share a column.
    """
    schemas: list[tuple[StructType, list[int]]] = []
    columns = {}
    for number in native:
        parsed = None
        if rules[number].encoding == JSON:
            parsed = F.col(f"json_{_shared(schemas, json_schema(rules[number]), number)}")
        columns[number] = JsonRule(rules[number], parsed)
    return columns, {
        f"json_{at}": parse_json(schema, _is_one_of(users))
        for at, (schema, users) in enumerate(schemas)
    }


def _shared(schemas: list[tuple[StructType, list[int]]], schema: StructType, number: int) -> int:
    """Note that rule ``number`` reads ``schema``; return the place of that schema."""
    for at, (known, users) in enumerate(schemas):
        if known == schema:
            users.append(number)
            return at
    schemas.append((schema, [number]))
    return len(schemas) - 1


def _by_rule(values: Mapping[int, int | str | None], kind: str) -> Column:
    found = F.lit(None).cast(kind)
    for number, value in values.items():
        if value is not None:
            found = F.when(F.col("rule") == number, F.lit(value)).otherwise(found)
    return found


def _is_one_of(numbers: list[int]) -> Column:
    return F.col("rule").isin(numbers) if numbers else F.lit(False)
