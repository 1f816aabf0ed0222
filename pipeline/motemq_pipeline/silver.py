"""Bronze messages to readings, and what could not be one to the quarantine.

All functions take batch frames and streaming frames and need no state: a message's row depends on
that message alone, so a stream and a later batch over the same journal give the same rows.
``distinct`` is the one that remembers.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from motemq_pipeline.decoding_columns import decoding_columns
from motemq_pipeline.first_arrivals import first_arrivals
from motemq_pipeline.parquet_files import Target
from motemq_pipeline.rules import CLOCK_AHEAD_S, Registry
from motemq_pipeline.schemas import shaped

# What ``telemetry_and_quarantine`` has rows of.
TARGETS = (
    Target("silver_telemetry", lacks="reason"),
    Target("silver_quarantine", has="reason"),
)
_BRONZE = ["partition", "seq", "time", "protocol", "connection", "path", "payload"]
_STREAM = ["board", "connection"]


def decoded(bronze: DataFrame, registry: Registry) -> DataFrame:
    """Return the telemetry messages of ``bronze``, with ``readings`` or a ``reason``.

    A good payload has ``readings`` (``decoding_arrow.READINGS_SCHEMA``, at least one), a bad one
    ``reason``, one sentence. The rest is bronze columns, and what ``telemetry`` needs.
    """
    columns = decoding_columns(registry)
    messages = bronze.withColumn("rule", columns.rule).where(columns.is_telemetry)
    for added in columns.steps:
        messages = messages.withColumns(added) if added else messages
    return messages.select(*_BRONZE, "max_late_us", "end", "readings", "reason")


def telemetry(messages: DataFrame) -> DataFrame:
    """Return ``silver_telemetry`` from ``decoded`` messages, duplicates included.

    ``event_time`` is the board's clock where the payload has it and it is likely: at most the
    rule's ``max_late_s`` behind the broker's and ``CLOCK_AHEAD_S`` ahead. Else it is the arrival.
    ``clock`` says which. ``last`` says whether it ends its stream, null where streams end without a
    message. Order is that of ``partition`` and ``message_seq``, never that of a clock.
    """
    good = messages.where(F.col("reason").isNull()).withColumn("reading", F.explode("readings"))
    return shaped(_with_times(good), "silver_telemetry")


def telemetry_and_quarantine(messages: DataFrame) -> DataFrame:
    """Return the rows of ``telemetry`` and of ``quarantine`` with the columns of both.

    Those of ``quarantine`` have a ``reason``, the others none: so ``TARGETS`` tells them, and both
    tables are written while the messages are looked at once.
    """
    each = messages.withColumn("reading", F.explode_outer("readings"))
    refused = F.col("reason").isNotNull()
    return _with_times(
        each,
        F.lit("journal").alias("source"),
        F.when(refused, F.col("payload")).alias("payload"),
        F.col("reason"),
    )


def _with_times(messages: DataFrame, *more: Column) -> DataFrame:
    arrival_us = F.unix_micros("time")
    likely = F.col("reading.board_us").between(
        arrival_us - F.col("max_late_us"), arrival_us + int(CLOCK_AHEAD_S * 1e6)
    )
    return messages.withColumn("of_board", F.coalesce(likely, F.lit(False))).select(
        "reading.*",
        F.col("time").alias("received_at"),
        F.col("seq").alias("message_seq"),
        *["path", "protocol", "connection", "partition"],
        F.when(F.col("of_board"), F.timestamp_micros("reading.board_us"))
        .otherwise(F.col("time"))
        .alias("event_time"),
        F.when(F.col("of_board"), "board").otherwise("broker").alias("clock"),
        (F.col("reading.sensor") == F.col("end")).alias("last"),
        *more,
    )


def distinct(readings: DataFrame) -> DataFrame:
    """Return each of ``silver_telemetry``'s readings once, by its first arrival.

    Copies are readings of one stream and sensor with the same ``seq``; without ``seq`` there are
    none. A streaming frame remembers what ``first_arrivals`` says, whatever clocks do: a copy of
    something older is a new reading, and no reading is dropped.
    """
    if readings.isStreaming:
        return first_arrivals(readings)
    alone = F.when(F.col("seq").isNull(), F.struct("partition", "message_seq"))
    key = [*_STREAM, "sensor", "seq", "alone"]
    arrival = Window.partitionBy(*key).orderBy("partition", "message_seq")
    return (
        readings.withColumn("alone", alone)
        .withColumn("arrival", F.row_number().over(arrival))
        .where(F.col("arrival") == 1)
        .drop("alone", "arrival")
    )
