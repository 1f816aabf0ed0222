"""Silver rows to alerts, a stream to a stream."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from motemq_pipeline.alerts.limits import Registry
from motemq_pipeline.alerts.processor import OUTPUT, STILL_OPEN, FleetProcessor
from motemq_pipeline.alerts.settings import AlertSettings
from motemq_pipeline.alerts.signals import of_presence, of_readings

SCHEMA: Final = (
    "alert string, kind string, board string, sensor string, raised_at timestamp, "
    "cleared_at timestamp, value double, limit double, message string, key string"
)
# Timers need RocksDB; with a changelog a batch writes what changed, not all files.
_STATE: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


def alert_stream(
    silver_stream: DataFrame,
    registry: Registry,
    settings: AlertSettings | None = None,
    messages: DataFrame | None = None,
) -> DataFrame:
    """Return the alerts of a stream of ``silver_telemetry``, each change of one a row (``SCHEMA``).

    ``registry`` says the limits; ``messages``, a stream of ``bronze_messages``, is where last wills
    are looked for. Spark runs a batch at every trigger, also when nothing comes, because time
    raises alerts: give the query a trigger of a second or more. The session's state store becomes
    RocksDB, without which Spark has no timers. Executors need ``motemq_pipeline``, pandas and
    pyarrow.
    """
    settings = settings or AlertSettings()
    spark = silver_stream.sparkSession
    for name, value in _STATE.items():
        spark.conf.set(name, value)
    signals = of_readings(silver_stream, settings)
    if messages is not None and settings.presence:
        signals = signals.unionByName(of_presence(messages, settings))
    found = signals.groupBy("shard").transformWithStateInPandas(
        statefulProcessor=FleetProcessor(registry, settings),
        outputStructType=OUTPUT,
        outputMode="Append",
        timeMode="processingTime",
    )
    cleared = F.when(F.col("cleared_ms") != STILL_OPEN, F.timestamp_millis("cleared_ms"))
    return found.select(
        *("alert", "kind", "board", "sensor"),
        F.timestamp_millis("raised_ms").alias("raised_at"),
        cleared.alias("cleared_at"),
        *(F.when(~F.isnan(name), F.col(name)).alias(name) for name in ("value", "limit")),
        *("message", "key"),
    )
