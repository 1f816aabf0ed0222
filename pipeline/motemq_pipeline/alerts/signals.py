"""DataFrames to rows of events: what ``processor`` takes."""

import math
import re
from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from motemq_pipeline.alerts.events import Event, Gone, Reading, Returned
from motemq_pipeline.alerts.settings import BOARD, AlertSettings

_READING, _GONE, _RETURNED, _LAST = 0, 1, 2, 3
_UNNUMBERED = -1
_COLUMNS = (
    *("shard", "board", "kind", "at_ms", "path", "sensor", "number", "value", "connection"),
    *("partition", "message_seq"),
)


def of_readings(silver: DataFrame, settings: AlertSettings) -> DataFrame:
    """Return the signals of rows of ``silver_telemetry``, duplicates or not."""
    return silver.select(
        _shard(settings),
        "board",
        F.when(F.col("last"), _LAST).otherwise(_READING).alias("kind"),
        F.unix_millis("received_at").alias("at_ms"),
        "path",
        "sensor",
        # No nulls: pandas would make floats of the numbers.
        F.coalesce(F.col("seq"), F.lit(_UNNUMBERED)).alias("number"),
        F.coalesce(F.col("value"), F.lit(math.nan)).alias("value"),
        "connection",
        "partition",
        "message_seq",
    ).where(F.col("board").isNotNull() & F.col("sensor").isNotNull())


def of_presence(bronze: DataFrame, settings: AlertSettings) -> DataFrame:
    """Return the signals of rows of ``bronze_messages``: last wills, and what says who is there."""
    boards = [
        F.nullif(F.regexp_extract("path", _regex(pattern), 1), F.lit(""))
        for pattern in settings.presence
    ]
    gone = F.col("will") | F.col("payload").cast("string").isin(list(settings.gone))
    return (
        bronze.withColumn("board", F.coalesce(*boards))
        .where(F.col("board").isNotNull())
        .select(
            _shard(settings),
            "board",
            F.when(gone, _GONE).otherwise(_RETURNED).alias("kind"),
            F.unix_millis("time").alias("at_ms"),
            "path",
            F.lit("").alias("sensor"),
            F.lit(_UNNUMBERED).cast("long").alias("number"),
            F.lit(math.nan).alias("value"),
            "connection",
            "partition",
            F.col("seq").alias("message_seq"),
        )
    )


def _shard(settings: AlertSettings) -> Column:
    return F.pmod(F.xxhash64("board"), F.lit(settings.shards)).cast("int").alias("shard")


def _regex(pattern: str) -> str:
    """Return a presence pattern as a regular expression; a level ``*`` is any level."""
    meaning = {BOARD: "([^/]+)", "*": "[^/]+"}
    levels = [meaning.get(level) or _literal(level) for level in pattern.strip("/").split("/")]
    return r"(?s)\A" + "/".join(levels) + r"\z"


def _literal(text: str) -> str:
    # Not re.escape: what it escapes and what Java's regular expressions accept differ.
    return re.sub(r"([\\.\[\]{}()+?^$|*])", r"\\\1", text)


def events(frames: Iterable[pd.DataFrame]) -> Iterator[Event]:
    """Yield the events of signals in the order in which the broker read them.

    Within a partition of the journal that is the order of their numbers, also where the broker's
    clock went back. A reading without a number has None.
    """
    batches = [frame[list(_COLUMNS)] for frame in frames]
    if not batches:
        return
    rows = pd.concat(batches, ignore_index=True)
    rows = rows.sort_values(["partition", "message_seq"], kind="stable", ignore_index=True)
    never_back = rows.groupby("partition")["at_ms"].cummax().to_numpy()
    rows = rows.take(np.argsort(never_back, kind="stable"))
    for _, board, kind, at_ms, path, sensor, number, value, connection, _, _ in rows.itertuples(
        index=False, name=None
    ):
        if kind in (_READING, _LAST):
            counted = None if number < 0 else number
            yield Reading(
                board, at_ms, path, sensor, counted, value, connection, last=kind == _LAST
            )
        elif kind == _GONE:
            yield Gone(board, at_ms, path)
        else:
            yield Returned(board, at_ms, path)
