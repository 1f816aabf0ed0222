"""Bronze messages to readings, and what could not be one to the quarantine.

All functions take batch frames and streaming frames and need no state: a message's row depends on
that message alone, so a stream and a later batch over the same journal give the same rows.
``distinct`` is the one that remembers.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StructType

from motemq_pipeline.decoding_arrow import DECODED_SCHEMA, READINGS_SCHEMA, decode_columns
from motemq_pipeline.decoding_json import JsonRule, json_schema, parse_json
from motemq_pipeline.rules import (
    CLOCK_AHEAD_S,
    JSON,
    MAX_PAYLOAD_BYTES,
    NUMBER,
    TELEMETRY,
    Registry,
)
from motemq_pipeline.schemas import shaped

_BRONZE = ["partition", "seq", "time", "protocol", "connection", "path", "payload"]
_STREAM = ["board", "connection"]


def decoded(bronze: DataFrame, registry: Registry) -> DataFrame:
    """Return the telemetry messages of ``bronze``, with ``readings`` or a ``reason``.

    A good payload has ``readings`` (``decoding_arrow.READINGS_SCHEMA``, at least one), a bad one
    ``reason``, one sentence. The rest is bronze columns, and what ``telemetry`` needs.
    """
    rules = registry.rules
    telemetry = [number for number, rule in enumerate(rules) if rule.kind == TELEMETRY]
    native = [number for number in telemetry if rules[number].encoding in (JSON, NUMBER)]
    binary = [number for number in telemetry if number not in native]
    text = F.col("payload").cast("string")
    short = (F.length("payload") <= MAX_PAYLOAD_BYTES) & F.is_valid_utf8(text)
    messages = (
        bronze.withColumn("rule", _rule_number(registry))
        .where(F.col("rule").isin(telemetry))
        .withColumn("text", F.when(_is_one_of(native) & short, text))
    )
    schemas: list[tuple[StructType, list[int]]] = []  # rules that read the same share a column
    reasons, readings = F.lit(None).cast("string"), F.lit(None).cast(READINGS_SCHEMA)
    columns = {}
    for number in native:
        parsed = None
        if rules[number].encoding == JSON:
            parsed = F.col(f"json_{_shared(schemas, json_schema(rules[number]), number)}")
        columns[number] = JsonRule(rules[number], parsed)
    for at, (schema, users) in enumerate(schemas):
        messages = messages.withColumn(f"json_{at}", parse_json(schema, _is_one_of(users)))
    if binary:
        # PySpark's stubs ask for an argument of which PySpark itself warns.
        udf = arrow_udf(  # type: ignore[call-overload]
            decode_columns(rules, frozenset(binary)), DECODED_SCHEMA
        )
        payload = F.when(_is_one_of(binary), F.col("payload"))
        messages = messages.withColumn("decoded", udf("rule", "path", payload))
        reasons = F.col("decoded.reason")
        readings = F.when(reasons.isNull(), F.col("decoded.readings"))
    for number, native_rule in columns.items():
        of_rule = F.col("rule") == number
        reasons = F.when(of_rule, native_rule.reason()).otherwise(reasons)
        of_good = F.col("reason").isNull()
        readings = F.when(of_rule, F.when(of_good, native_rule.readings())).otherwise(readings)
    messages = messages.withColumn("reason", reasons).withColumn("readings", readings)
    late = {number: int(rules[number].max_late_s * 1e6) for number in telemetry}
    messages = messages.withColumn("max_late_us", _by_rule(late))
    return messages.select(*_BRONZE, "max_late_us", "readings", "reason")


def _by_rule(values: dict[int, int]) -> Column:
    found = F.lit(None).cast("long")
    for number, value in values.items():
        found = F.when(F.col("rule") == number, F.lit(value)).otherwise(found)
    return found


def _shared(schemas: list[tuple[StructType, list[int]]], schema: StructType, number: int) -> int:
    """Note that rule ``number`` reads ``schema``; return the place of that schema."""
    for at, (known, users) in enumerate(schemas):
        if known == schema:
            users.append(number)
            return at
    schemas.append((schema, [number]))
    return len(schemas) - 1


def _rule_number(registry: Registry) -> Column:
    """Return the number of the first rule that matches ``path``, null where none does."""
    found = F.lit(None).cast("int")
    for number, rule in reversed(list(enumerate(registry.rules))):
        found = F.when(F.col("path").rlike(rule.pattern.java), F.lit(number)).otherwise(found)
    return found


def _is_one_of(numbers: list[int]) -> Column:
    return F.col("rule").isin(numbers) if numbers else F.lit(False)


def telemetry(messages: DataFrame) -> DataFrame:
    """Return ``silver_telemetry`` from ``decoded`` messages, duplicates included.

    ``event_time`` is the board's clock where the payload has it and it is likely: at most the
    rule's ``max_late_s`` behind the broker's and ``CLOCK_AHEAD_S`` ahead. Else it is the arrival.
    ``clock`` says which. Order is that of ``partition`` and ``message_seq``, never that of a clock.
    """
    arrival_us = F.unix_micros("time")
    likely = F.col("reading.board_us").between(
        arrival_us - F.col("max_late_us"), arrival_us + int(CLOCK_AHEAD_S * 1e6)
    )
    good = messages.where(F.col("reason").isNull()).withColumn("reading", F.explode("readings"))
    return shaped(
        good.withColumn("of_board", F.coalesce(likely, F.lit(False))).select(
            "reading.*",
            F.col("time").alias("received_at"),
            F.col("seq").alias("message_seq"),
            *["path", "protocol", "connection", "partition"],
            F.when(F.col("of_board"), F.timestamp_micros("reading.board_us"))
            .otherwise(F.col("time"))
            .alias("event_time"),
            F.when(F.col("of_board"), "board").otherwise("broker").alias("clock"),
        ),
        "silver_telemetry",
    )


def distinct(readings: DataFrame, within: str = "10 minutes") -> DataFrame:
    """Return each of ``silver_telemetry``'s readings once, by its first arrival.

    Copies are readings of one stream and sensor with the same ``seq``; without ``seq`` there are
    none. A streaming frame forgets a reading some time after ``within`` (by ``received_at``), and
    drops what the broker stamped earlier than that: a copy that comes later is a new reading, and
    a broker's clock that was set back by more makes Spark drop readings
    (``numRowsDroppedByWatermark``). So tables are made from all arrivals, not from this.
    """
    alone = F.when(F.col("seq").isNull(), F.struct("partition", "message_seq"))
    marked = readings.withColumn("alone", alone)
    key = [*_STREAM, "sensor", "seq", "alone"]
    if readings.isStreaming:
        kept = marked.withWatermark("received_at", within).dropDuplicatesWithinWatermark(key)
        return kept.drop("alone")
    arrival = Window.partitionBy(*key).orderBy("partition", "message_seq")
    return (
        marked.withColumn("arrival", F.row_number().over(arrival))
        .where(F.col("arrival") == 1)
        .drop("alone", "arrival")
    )


def quarantine(messages: DataFrame) -> DataFrame:
    """Return the ``silver_quarantine`` rows of ``decoded`` messages."""
    return shaped(
        messages.where(F.col("reason").isNotNull()).select(
            F.lit("journal").alias("source"),
            "partition",
            F.col("seq").alias("message_seq"),
            F.col("time").alias("received_at"),
            "path",
            "payload",
            "reason",
        ),
        "silver_quarantine",
    )
