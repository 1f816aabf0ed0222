"""Every table's columns and their version: docs/tables.md says what they mean.

A table is ``name -> DDL``; ``TABLES`` is in the order they are written.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # Spark takes a second to import; the report needs the names only
    from pyspark.sql import DataFrame

_RIG_LEADING: Final = (
    "schema_version int, run_id string, rig string, ts timestamp, mono_ns long, board_id string, "
    "model string, port string, virtual boolean, fw_sha string, client_sha string, "
)
_RIG_CHECK: Final = (
    "run_id string, rig string, board_id string, model string, virtual boolean, fw_sha string, "
    "client_sha string, check string, "
)
_ROLLUP: Final = (
    "board string, sensor string, unit string, window_start timestamp, count long, mean double, "
    "min double, max double, p50 double, p95 double, p99 double, gaps long, rate_per_s double"
)

TABLES: Final[dict[str, str]] = {
    # What the source gives; not taken from it, because it imports Spark, and readers need none.
    "bronze_messages": (
        "partition int, seq long, time timestamp, time_ns long, protocol string, connection long, "
        "client string, path string, retained boolean, will boolean, payload binary"
    ),
    "silver_telemetry": (
        "board string, sensor string, seq long, t_ms long, unit string, value double, "
        "event_time timestamp, clock string, received_at timestamp, path string, protocol string, "
        "connection long, partition int, message_seq long"
    ),
    "silver_quarantine": (
        "source string, partition int, message_seq long, received_at timestamp, path string, "
        "payload binary, reason string"
    ),
    "rig_events": _RIG_LEADING
    + (
        "event string, step string, check string, attempt int, outcome string, "
        "duration_s double, message string"
    ),
    "rig_samples": _RIG_LEADING
    + (
        "check string, attempt int, metric string, unit string, value double, seq long, "
        "outcome string, better string, limit double"
    ),
    "gold_sensor_rollup": (
        "board string, connection long, sensor string, unit string, window_start_ms long, "
        "count long, mean double, min double, max double, p50 double, p95 double"
    ),
    "gold_rollup_minute": _ROLLUP,
    "gold_rollup_hour": _ROLLUP,
    "gold_board_health": (
        "board string, protocol string, streams long, messages long, first_at timestamp, "
        "last_at timestamp, gaps long, duplicates long, complete boolean, rate_per_s double"
    ),
    "gold_fleet": (
        "board string, protocol string, first_seen timestamp, last_seen timestamp, "
        "as_of timestamp, silent_after_s double, silent_since timestamp, streams long, "
        "messages long, lost long, loss double, duplicates long, model string, virtual boolean, "
        "fw_sha string, client_sha string, run_id string, checked_at timestamp"
    ),
    "gold_checks": _RIG_CHECK
    + "outcome string, attempts int, duration_s double, finished_at timestamp, message string",
    "gold_rtt": _RIG_CHECK
    + (
        "metric string, unit string, better string, outcome string, finished_at timestamp, "
        "count long, min double, p50 double, p90 double, p95 double, p99 double, max double"
    ),
    "gold_latency": (
        "board_id string, model string, virtual boolean, fw_sha string, client_sha string, "
        "check string, metric string, unit string, runs long, first_at timestamp, "
        "last_at timestamp, count long, min double, p50 double, p90 double, p95 double, "
        "p99 double, max double"
    ),
    "gold_flakes": (
        "rig string, board_id string, model string, virtual boolean, check string, "
        "fw_sha string, client_sha string, runs long, passed long, retried long, failed long, "
        "quarantined long, flaky long, flake_rate double, last_at timestamp"
    ),
    "gold_regressions": (
        "rig string, board_id string, model string, virtual boolean, check string, "
        "metric string, unit string, better string, statistic string, run_id string, "
        "finished_at timestamp, fw_sha string, client_sha string, changed string, value double, "
        "runs_before int, center double, spread double, change double, verdict string"
    ),
}

RIG_LINE_SCHEMAS: Final[dict[str, str]] = {
    name: TABLES[name].replace("ts timestamp", "ts string")
    for name in ("rig_events", "rig_samples")
}

# Raised with every change of a table's columns or of what they mean.
VERSIONS: Final[dict[str, int]] = {
    **dict.fromkeys(TABLES, 1),
    "silver_telemetry": 2,  # clock; event_time by it
    "rig_samples": 2,  # better, limit
    "gold_rtt": 2,  # better, outcome, finished_at, p95
}
VERSION_KEY: Final = "motemq_version"  # in the metadata of a table's first column
SPARK_SCHEMA_KEY: Final = b"org.apache.spark.sql.parquet.row.metadata"


def columns(table: str) -> list[str]:
    """Return the column names of a table, in order."""
    return [column.split(" ")[0] for column in TABLES[table].split(", ")]


def shaped(rows: "DataFrame", table: str) -> "DataFrame":
    """Return the columns of a table, in order, with its version in their metadata.

    Parquet files keep it, so each file of a table says by itself which version it is.
    """
    from pyspark.sql import functions as F

    first, *others = columns(table)
    version = {VERSION_KEY: VERSIONS[table]}
    return rows.select(F.col(first).alias(first, metadata=version), *others)


def version_of(file: Path) -> int | None:
    """Return the version that wrote a Parquet file of a table; None if it does not say."""
    import pyarrow.parquet as pq

    found = (pq.read_schema(file).metadata or {}).get(SPARK_SCHEMA_KEY)
    if found is None:
        return None
    (first, *_) = json.loads(found)["fields"]
    version: int | None = first["metadata"].get(VERSION_KEY)
    return version
