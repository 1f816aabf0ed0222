"""Silver rows to alerts, a stream to a stream; alerts to the broker: ``alerts/BOARD/KIND``."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from motemq_pipeline.alerts.limits import Registry
from motemq_pipeline.alerts.processor import OUTPUT, STILL_OPEN, FleetProcessor
from motemq_pipeline.alerts.settings import AlertSettings
from motemq_pipeline.alerts.signals import of_presence, of_readings
from pyspark_motemq.sink import publish_once

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


ROOT: Final = "alerts"
_LONGEST = 180  # characters of a board's name in a path, which has at most 255 bytes


def publications(alerts: DataFrame) -> DataFrame:
    """Return ``path`` and ``payload`` of alerts, for the sink ``motemq``; a stream or not."""
    fields = [F.col(name) for name in alerts.columns]
    how = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"}
    return alerts.select(
        F.concat_ws("/", F.lit(ROOT), _level(F.col("board")), "kind").alias("path"),
        F.to_json(F.struct(*fields), how).alias("payload"),
    )


def publish(alerts: DataFrame, number: int, options: Mapping[str, str]) -> int:
    """Publish the alerts of a ``foreachBatch``, once however often the batch is repeated.

    ``number`` is the batch's; ``options`` are the sink's (docs/source.md), ``checkpointLocation``
    of the query among them, by which the broker knows the batch. Returns how many there were.
    The batch is taken into the driver's memory. Raises ``JournalError``.
    """
    rows = publications(alerts).toArrow()
    if rows.num_rows:
        publish_once(rows.to_batches(), options, number)
    return int(rows.num_rows)


def _level(board: Column) -> Column:
    """Return a board's name as one level of a path, whatever is in it."""
    name = F.replace(F.url_encode(board), F.lit("*"), F.lit("%2A"))
    brief = F.concat(F.left(name, F.lit(_LONGEST)), F.lit("~"), F.hex(F.xxhash64(board)))
    return F.when(board == "", F.lit("-")).when(F.length(name) > _LONGEST, brief).otherwise(name)
