"""Every board at a glance: when it was last heard, what was lost, what runs on it."""

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from motemq_pipeline.rules import Registry
from motemq_pipeline.schemas import shaped


def fleet(
    health: DataFrame,
    silver: DataFrame,
    events: DataFrame,
    registry: Registry | None = None,
    as_of: datetime | None = None,
) -> DataFrame:
    """Return ``gold_fleet`` from ``gold_board_health``, ``silver_telemetry`` and ``rig_events``.

    A board is silent if it sent nothing for the ``silent_after_s`` of the rule by which it last
    sent, before ``as_of``; that is, unless given, when the broker last read any reading, so the
    same tables give the same rows. Boards that only the rig knows are there, too.
    """
    now = F.lit(as_of) if as_of is not None else F.col("newest")
    heard = silver.groupBy("board").agg(F.max_by("path", "received_at").alias("path"))
    newest = silver.agg(F.max("received_at").alias("newest"))
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
        .withColumn(
            "loss",
            F.try_divide(F.col("lost"), F.col("lost") + F.col("messages") - F.col("duplicates")),
        )
        .withColumns({name: F.coalesce(name, F.lit(0)) for name in ("streams", "messages")}),
        "gold_fleet",
    ).sort("board")


def _silent_after_s(registry: Registry | None) -> Column:
    found = F.lit(None).cast("double")
    for rule in reversed(registry.rules if registry else ()):
        own = F.lit(rule.silent_after_s).cast("double")
        found = F.when(F.col("path").rlike(rule.pattern.java), own).otherwise(found)
    return found
