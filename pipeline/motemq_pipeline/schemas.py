"""Every table's columns and their version: docs/tables.md says what they mean.

A table is ``name -> DDL``; ``TABLES`` is in the order they are written.
"""

from typing import TYPE_CHECKING, Final

from pyspark_motemq.columns import SPARK_SCHEMA

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

TABLES: Final[dict[str, str]] = {
    "bronze_messages": SPARK_SCHEMA,
    "silver_telemetry": (
        "board string, sensor string, seq long, t_ms long, unit string, value double, "
        "event_time timestamp, clock string, received_at timestamp, path string, protocol string, "
        "connection long, partition int, message_seq long"
    ),
    "rig_events": _RIG_LEADING
    + (
        "event string, step string, check string, attempt int, outcome string, "
        "duration_s double, message string"
    ),
    "rig_samples": _RIG_LEADING
    + (
        "check string, attempt int, metric string, unit string, value double, seq long, "
        "outcome string"
    ),
    "silver_quarantine": (
        "source string, partition int, message_seq long, received_at timestamp, path string, "
        "payload binary, reason string"
    ),
    "gold_sensor_rollup": (
        "board string, connection long, sensor string, unit string, window_start_ms long, "
        "count long, mean double, min double, max double, p50 double, p95 double"
    ),
    "gold_board_health": (
        "board string, protocol string, streams long, messages long, first_at timestamp, "
        "last_at timestamp, gaps long, duplicates long, complete boolean, rate_per_s double"
    ),
    "gold_checks": _RIG_CHECK
    + "outcome string, attempts int, duration_s double, finished_at timestamp, message string",
    "gold_rtt": _RIG_CHECK
    + (
        "metric string, unit string, count long, min double, p50 double, p90 double, p99 double, "
        "max double"
    ),
}

RIG_LINE_SCHEMAS: Final[dict[str, str]] = {
    name: TABLES[name].replace("ts timestamp", "ts string")
    for name in ("rig_events", "rig_samples")
}

# Raised with every change of a table's columns or of what they mean.
VERSIONS: Final[dict[str, int]] = {**dict.fromkeys(TABLES, 1), "silver_telemetry": 2}
VERSION_KEY: Final = "motemq_version"  # in the metadata of a table's first column


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
