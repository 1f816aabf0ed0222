"""Readings to what a person looks at: per board and sensor, per board."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from motemq_pipeline.schemas import shaped
from motemq_pipeline.silver import distinct

WINDOW_MS = 10_000  # of simulated time
END = "end"  # the sensor of a stream's last message, docs/node.md
_STREAM = ["board", "connection"]


def sensor_rollup(silver: DataFrame) -> DataFrame:
    """Return ``gold_sensor_rollup``: each reading counts once, however often it arrived."""
    window_ms = (F.floor(F.col("t_ms") / WINDOW_MS) * WINDOW_MS).cast("long")
    return (
        distinct(silver.where(F.col("sensor") != END))
        .withColumn("window_start_ms", window_ms)
        .groupBy(*_STREAM, "sensor", "unit", "window_start_ms")
        .agg(
            F.count("*").alias("count"),
            F.avg("value").alias("mean"),
            F.min("value").alias("min"),
            F.max("value").alias("max"),
            F.percentile("value", 0.5).alias("p50"),
            F.percentile("value", 0.95).alias("p95"),
        )
        .transform(shaped, "gold_sensor_rollup")
        .sort(*_STREAM, "sensor", "unit", "window_start_ms")
    )


def board_health(silver: DataFrame) -> DataFrame:
    """Return ``gold_board_health``.

    Gaps are the numbers below a stream's highest that never arrived; duplicates are arrivals of a
    number beyond its first. The end message has the number after the last reading, so a stream
    that is ``complete`` has no unseen loss at its end.
    """
    streams = silver.groupBy(*_STREAM, "protocol").agg(
        F.count("*").alias("messages"),
        F.countDistinct("seq").alias("numbers"),
        (F.max("seq") + 1).alias("expected"),
        F.bool_or(F.col("sensor") == END).alias("complete"),
        F.min("received_at").alias("first_at"),
        F.max("received_at").alias("last_at"),
    )
    seconds = (F.unix_micros("last_at") - F.unix_micros("first_at")) / F.lit(1e6)
    # Over the time that streams were there, not over the pauses between them.
    return (
        streams.withColumn("seconds", seconds)
        .groupBy("board")
        .agg(
            F.concat_ws(", ", F.sort_array(F.collect_set("protocol"))).alias("protocol"),
            F.count("*").alias("streams"),
            F.sum("messages").alias("messages"),
            F.min("first_at").alias("first_at"),
            F.max("last_at").alias("last_at"),
            F.sum(F.col("expected") - F.col("numbers")).alias("gaps"),
            F.sum(F.col("messages") - F.col("numbers")).alias("duplicates"),
            F.bool_and("complete").alias("complete"),
            F.sum("seconds").alias("seconds"),
        )
        .withColumn(
            "rate_per_s",
            F.when(F.col("seconds") > 0, F.col("messages") / F.col("seconds")),
        )
        .transform(shaped, "gold_board_health")
        .sort("board")
    )
