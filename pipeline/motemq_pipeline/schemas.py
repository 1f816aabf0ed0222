"""Every table's columns and their version: docs/tables.md says what they mean.

A table is ``name -> DDL``; ``TABLES`` is in the order they are written. No Spark in here.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # Spark takes a second to import; the report needs the names only
    import pyarrow as pa
    from pyspark.sql import DataFrame

DATE: Final = "date"  # the last column of tables that have one; it partitions them
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
    "min double, max double, p50 double, p95 double, p99 double, gaps long, rate_per_s double, "
    "sketch binary, date date"
)

TABLES: Final[dict[str, str]] = {
    # What the source gives; not taken from it, because it imports Spark, and readers need none.
    "bronze_messages": (
        "partition int, seq long, time timestamp, time_ns long, protocol string, connection long, "
        "client string, path string, retained boolean, will boolean, payload binary, "
        "broker string, date date"
    ),
    "silver_telemetry": (
        "board string, sensor string, seq long, t_ms long, unit string, value double, "
        "event_time timestamp, clock string, received_at timestamp, path string, protocol string, "
        "connection long, partition int, message_seq long, last boolean, date date"
    ),
    "silver_quarantine": (
        "source string, partition int, message_seq long, received_at timestamp, path string, "
        "payload binary, reason string, date date"
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
        "hour timestamp, count long, mean double, min double, max double, p50 double, "
        "p95 double, sketch binary, date date"
    ),
    "gold_rollup_minute": _ROLLUP,
    "gold_rollup_hour": _ROLLUP,
    "gold_numbers": (
        "board string, connection long, sensor string, unit string, hour timestamp, first long, "
        "last long, minute timestamp, bits binary, date date"
    ),
    "gold_streams": (
        "board string, connection long, protocol string, path string, messages long, "
        "numbered long, first long, expected long, gaps long, duplicates long, missing string, "
        "complete boolean, first_at timestamp, last_at timestamp"
    ),
    "gold_board_health": (
        "board string, protocol string, streams long, counts long, messages long, "
        "first_at timestamp, last_at timestamp, numbers long, gaps long, duplicates long, "
        "complete boolean, rate_per_s double"
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
    "alerts": (
        "alert string, kind string, board string, sensor string, raised_at timestamp, "
        "cleared_at timestamp, value double, limit double, message string, key string, date date"
    ),
}

# The days of these tables are those (UTC) of this column; null, where that is null.
DATED_BY: Final[dict[str, str]] = {
    "bronze_messages": "time",
    "silver_telemetry": "event_time",
    "silver_quarantine": "received_at",
    "gold_sensor_rollup": "hour",
    "gold_rollup_minute": "window_start",
    "gold_rollup_hour": "window_start",
    "gold_numbers": "hour",
    "alerts": "raised_at",
}

# Of these, rows change all the time.
REWRITTEN: Final = frozenset({"gold_sensor_rollup", "gold_rollup_minute", "gold_rollup_hour"})

RIG_LINE_SCHEMAS: Final[dict[str, str]] = {
    name: TABLES[name].replace("ts timestamp", "ts string")
    for name in ("rig_events", "rig_samples")
}

# Raised with every change of a table's columns or of what they mean.
VERSIONS: Final[dict[str, int]] = {
    **dict.fromkeys(TABLES, 1),
    "bronze_messages": 3,  # date; broker
    "silver_telemetry": 4,  # clock; event_time by it; date; last
    "silver_quarantine": 2,  # date
    "gold_sensor_rollup": 3,  # sketch
    "gold_rollup_minute": 2,  # sketch, date
    "gold_rollup_hour": 2,  # sketch, date
    "gold_streams": 3,  # first, from which gaps are counted
    "gold_board_health": 4,  # counts, numbers; gaps over connections
    "gold_fleet": 3,  # likewise
    "rig_samples": 2,  # better, limit
    "gold_rtt": 2,  # better, outcome, finished_at, p95
    "alerts": 2,  # date
}
_ARROW: Final = {
    "int": "int32",
    "long": "int64",
    "double": "float64",
    "string": "string",
    "boolean": "bool",
    "binary": "binary",
    "date": "date32",
}


def columns(table: str) -> list[str]:
    """Return the column names of a table, in order."""
    return [column.split(" ")[0] for column in TABLES[table].split(", ")]


def arrow_schema(table: str) -> "pa.Schema":
    """Return the columns of a table for pyarrow."""
    import pyarrow as pa

    def arrow_type(kind: str) -> "pa.DataType":
        if kind == "timestamp":
            return pa.timestamp("us", tz="UTC")
        return pa.type_for_alias(_ARROW[kind])

    named = (column.split(" ") for column in TABLES[table].split(", "))
    return pa.schema([pa.field(name, arrow_type(kind)) for name, kind in named])


def shaped(rows: "DataFrame", table: str) -> "DataFrame":
    """Return the columns of a table, in order, but its ``date``: who writes the rows adds that."""
    return rows.select(*(name for name in columns(table) if name != DATE))
