"""Boards at a glance: what came from each, what was lost, who is silent, what runs on it."""

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from motemq_pipeline.counts import board_counts
from motemq_pipeline.rules import Registry
from motemq_pipeline.schemas import shaped


def board_health(streams: DataFrame) -> DataFrame:
    """Return ``gold_board_health`` from ``gold_streams``: a row a board, over all its streams.

    What is missing, what came twice and what is ``complete`` is of the board's counts, which go on
    over connections (``counts``); it is null of a board that numbers nothing, ``complete`` of one
    whose streams end without a message.
    """
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
            F.sum("seconds").alias("seconds"),
        )
        .withColumn(
            "rate_per_s",
            F.when(F.col("seconds") > 0, F.col("messages") / F.col("seconds")),
        )
        .join(board_counts(streams), "board")
        .transform(shaped, "gold_board_health")
        .sort("board")
    )


def fleet(
    health: DataFrame,
    streams: DataFrame,
    events: DataFrame,
    registry: Registry | None = None,
    as_of: datetime | None = None,
) -> DataFrame:
    """Return ``gold_fleet`` from ``gold_board_health``, ``gold_streams`` and ``rig_events``.

    A board is silent if it sent nothing for the ``silent_after_s`` of the rule by which it last
    sent, before ``as_of``; that is, unless given, when the broker last read any reading, so the
    same tables give the same rows. Boards that only the rig knows are there, too.
    """
    now = F.lit(as_of) if as_of is not None else F.col("newest")
    heard = streams.groupBy("board").agg(F.max_by("path", "last_at").alias("path"))
    newest = streams.agg(F.max("last_at").alias("newest"))
    last_on_rig = (
        events.where((F.col("board_id") != "") & (F.col("fw_sha") != ""))
        .groupBy(F.col("board_id").alias("board"))
        .agg(
            *[
                F.max_by(name, F.struct("ts", "mono_ns")).alias(name)
                for name in ("model", "virtual", "fw_sha", "client_sha", "run_id")
            ],
            F.max("ts").alias("checked_at"),
        )
    )
    silence_s = F.unix_micros("as_of") - F.unix_micros("last_at")
    return shaped(
        health.join(heard, "board", "left")
        .join(last_on_rig, "board", "full")
        .crossJoin(newest)
        .withColumn("as_of", now.cast("timestamp"))
        .withColumn("silent_after_s", _silent_after_s(registry))
        .withColumn(
            "silent_since",
            F.when(silence_s > F.col("silent_after_s") * F.lit(1e6), F.col("last_at")),
        )
        .withColumnsRenamed({"first_at": "first_seen", "last_at": "last_seen", "gaps": "lost"})
        .withColumn("loss", F.try_divide("lost", "numbers"))
        .withColumns({name: F.coalesce(name, F.lit(0)) for name in ("streams", "messages")}),
        "gold_fleet",
    ).sort("board")


def _silent_after_s(registry: Registry | None) -> Column:
    found = F.lit(None).cast("double")
    for rule in reversed(registry.rules if registry else ()):
        own = F.lit(rule.silent_after_s).cast("double")
        found = F.when(F.col("path").rlike(rule.pattern.java), own).otherwise(found)
    return found
