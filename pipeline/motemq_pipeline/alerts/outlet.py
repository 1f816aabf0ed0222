"""Alerts to the broker: ``alerts/BOARD/KIND``, each change once."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_motemq.sink import publish_once

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
