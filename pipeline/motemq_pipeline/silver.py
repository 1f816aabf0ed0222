"""Bronze messages to readings, and what could not be one to the quarantine.

All functions take batch frames and streaming frames and need no state: a message's rows depend on
that message alone, so a stream and a later batch over the same journal give the same rows.
``distinct`` is the one that remembers.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from motemq_pipeline.decoding_arrow import MESSAGE_COLUMNS, SILVER_SCHEMA, silver_rows
from motemq_pipeline.first_arrivals import first_arrivals
from motemq_pipeline.parquet_files import Target
from motemq_pipeline.rules import Registry
from motemq_pipeline.schemas import shaped

# What ``decoded`` has rows of.
TARGETS = (
    Target("silver_telemetry", lacks="reason"),
    Target("silver_quarantine", has="reason"),
)
_STREAM = ["board", "connection"]


def decoded(bronze: DataFrame, registry: Registry) -> DataFrame:
    """Return what the telemetry messages of ``bronze`` say (``decoding_arrow.SILVER_SCHEMA``).

    A good message has a row for each of its readings, a bad one a row with the ``reason``, one
    sentence. So ``TARGETS`` tells them, and both tables are written while messages are looked at
    once. ``event_time`` is the board's clock where the payload has it and it is likely: at most
    the rule's ``max_late_s`` behind the broker's and ``CLOCK_AHEAD_S`` ahead. Else it is the
    arrival. ``clock`` says which. ``last`` says whether it ends its stream, null where streams end
    without a message. Order is that of ``partition`` and ``message_seq``, never that of a clock.
    """
    return bronze.select(*MESSAGE_COLUMNS).mapInArrow(silver_rows(registry.rules), SILVER_SCHEMA)


def telemetry(rows: DataFrame) -> DataFrame:
    """Return ``silver_telemetry`` from what ``decoded`` returned, duplicates included."""
    return shaped(rows.where(F.col("reason").isNull()), "silver_telemetry")


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
