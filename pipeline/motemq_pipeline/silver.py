"""Bronze messages to readings, and what could not be one to the quarantine."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from motemq_pipeline.registry import TELEMETRY, Rule, kind_of
from motemq_pipeline.schemas import READING_SCHEMA, columns

_VERSION = 1  # of the payload, docs/node.md
_CORRUPT = "_corrupt"
_TYPES = dict(field.strip().split(" ") for field in READING_SCHEMA.split(","))


def decoded(bronze: DataFrame, rules: list[Rule]) -> DataFrame:
    """Return the telemetry messages of ``bronze`` with a struct ``reading`` and a ``reason``.

    ``reason`` is null for a good payload, else one sentence.
    """
    text = F.col("payload").cast("string")
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _CORRUPT,
        "allowNonNumericNumbers": "false",
    }
    readable = F.is_valid_utf8(text)
    return (
        bronze.where(kind_of(F.col("path"), rules) == TELEMETRY)
        .withColumn("text", F.when(readable, text))
        .withColumn(
            "reading",
            F.from_json(F.col("text"), f"{READING_SCHEMA}, {_CORRUPT} string", options),
        )
        .withColumn("reason", _reason())
    )


def _reason() -> Column:
    reading = F.col("reading")
    is_json = F.try_parse_json(F.col("text")).isNotNull()
    is_object = F.trim(F.col("text")).startswith("{")
    reason = (
        F.when(F.length("payload") == 0, F.lit("the payload is empty"))
        .when(F.col("text").isNull(), F.lit("the payload is not UTF-8"))
        .when(~(is_json & is_object), F.lit("the payload is not a JSON object"))
    )
    for name, kind in _TYPES.items():
        missing = f"the field '{name}' is missing or not a {kind}"
        reason = reason.when(reading[name].isNull(), F.lit(missing))
    unknown = f"the version 'v' of the payload is not {_VERSION}"
    return (
        reason.when(reading["v"] != _VERSION, F.lit(unknown))
        .when((reading["seq"] < 0) | (reading["t_ms"] < 0), F.lit("'seq' or 't_ms' is negative"))
        .when(reading[_CORRUPT].isNotNull(), F.lit("the payload is not one JSON object"))
    )


def telemetry(messages: DataFrame) -> DataFrame:
    """Return ``silver_telemetry`` from ``decoded`` messages, duplicates included.

    A stream is what one connection sent for one board. ``event_time`` is the arrival of the
    stream's first message plus the board's simulated time.
    """
    stream = Window.partitionBy("reading.board", "connection").rowsBetween(
        Window.unboundedPreceding, Window.unboundedFollowing
    )
    start_us = F.unix_micros(F.min("time").over(stream))
    return (
        messages.where(F.col("reason").isNull())
        .withColumn("event_time", F.timestamp_micros(start_us + F.col("reading.t_ms") * 1000))
        .select(
            *[f"reading.{name}" for name in _TYPES if name != "v"],
            F.col("time").alias("received_at"),
            F.col("seq").alias("message_seq"),
            *["event_time", "path", "protocol", "connection", "partition"],
        )
        .select(columns("silver_telemetry"))
        .sort("board", "connection", "partition", "message_seq")
    )


def quarantine(messages: DataFrame) -> DataFrame:
    """Return the ``silver_quarantine`` rows of ``decoded`` messages."""
    return messages.where(F.col("reason").isNotNull()).select(
        F.lit("journal").alias("source"),
        "partition",
        F.col("seq").alias("message_seq"),
        F.col("time").alias("received_at"),
        "path",
        "payload",
        "reason",
    )
