"""What the report says: plain values, read from the tables."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from motemq_pipeline.about import read_about
from motemq_pipeline.delta import Table
from motemq_pipeline.schemas import TABLES
from motemq_pipeline.sql import by_duckdb, literal
from motemq_pipeline.storage import Storage

Row = dict[str, Any]
_CHECK_ORDER = ["pubsub_up", "pubsub_down", "ping", "will_clean", "will_abrupt"]
_SHOWN_FAILURES = 50
_SHOWN_QUARANTINE = 20
_SHOWN_PAYLOAD = 120  # bytes
_SHOWN_READINGS = 5000
_SHOWN_ALERTS = 50
_ALERTS = f"""
select alert, any_value(kind) as kind, any_value(board) as board, any_value(sensor) as sensor,
  min(raised_at) as raised_at, max(cleared_at) as cleared_at,
  arg_min(message, cleared_at is not null) as message
from alerts group by alert order by raised_at desc limit {_SHOWN_ALERTS}
"""
_LATEST = f"""
select board, sensor, unit, value, event_time from silver_telemetry
where date >= date '{{since}}' and last is not true and value is not null
order by received_at desc limit {_SHOWN_READINGS}
"""


@dataclass(frozen=True, slots=True)
class Run:
    """The latest run of a rig."""

    run_id: str
    rig: str
    started_at: datetime
    outcome: str  # "passed", "failed", "error", or "unfinished" for a run that was killed
    duration_s: float | None


@dataclass(frozen=True, slots=True)
class Cell:
    """How one check ended on one board, and what it measured."""

    outcome: str
    attempts: int
    message: str
    measured: list[Row]  # gold_rtt rows


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything on the page."""

    about: dict[str, str]
    run: Run | None
    boards: list[Row]  # board_id, model, virtual, fw_sha, client_sha
    checks: list[str]
    cells: dict[tuple[str, str], Cell]
    failures: list[Row]
    round_trips: dict[str, list[float]]  # board -> microseconds
    rollup: list[Row]
    latest: list[Row]  # readings of a continuous run, the last few thousand
    health: list[Row]
    alerts: list[Row]  # the latest, with their end where they have one
    quarantine: list[Row]
    counts: dict[str, int]


def read_facts(place: Storage) -> Facts:
    """Return the facts of the latest run of a rig in the tables of ``place``.

    Raises ``PipelineError`` if a table is missing.
    """
    events = _rows(place, "select * from rig_events order by mono_ns")
    run = _latest_run(events)
    events = [event for event in events if run and event["run_id"] == run.run_id]
    boards = _boards(events)
    cells = _cells(place, run.run_id) if run else {}
    found = {check for _, check in cells}
    return Facts(
        about=read_about(place),
        run=run,
        boards=boards,
        checks=[name for name in _CHECK_ORDER if name in found] + sorted(found - set(_CHECK_ORDER)),
        cells=cells,
        failures=_failures(events),
        round_trips=_round_trips(place, run.run_id) if run else {},
        rollup=_latest_streams(_rows(place, "select * exclude (sketch) from gold_sensor_rollup")),
        latest=_latest_readings(place),
        health=_rows(place, "select * from gold_board_health order by board"),
        alerts=_rows(place, _ALERTS),
        quarantine=_quarantine(place),
        counts={table: Table(place, table).count() for table in TABLES},
    )


def _rows(place: Storage, sql: str) -> list[Row]:
    names, rows = by_duckdb(sql, place)
    return [dict(zip(names, row, strict=True)) for row in rows]


def _latest_run(events: list[Row]) -> Run | None:
    if not events:
        return None
    begun: dict[str, datetime] = {}
    for event in events:
        run_id = event["run_id"]
        begun[run_id] = min(begun.get(run_id, event["ts"]), event["ts"])
    run_id = max(begun, key=lambda name: (begun[name], name))
    of_run = [event for event in events if event["run_id"] == run_id]
    finished = [event for event in of_run if event["event"] == "run_finished"]
    return Run(
        run_id=run_id,
        rig=of_run[0]["rig"],
        started_at=begun[run_id],
        outcome=finished[-1]["outcome"] if finished else "unfinished",
        duration_s=finished[-1]["duration_s"] if finished else None,
    )


def _boards(events: list[Row]) -> list[Row]:
    """Return each board with the last thing known about it."""
    boards: dict[str, Row] = {}
    for event in sorted(events, key=lambda event: event["mono_ns"] or 0):
        if name := event["board_id"]:
            board = boards.setdefault(name, {"board_id": name, "virtual": False})
            for key in ("model", "virtual", "fw_sha", "client_sha"):
                board[key] = event[key] or board.get(key, "")
    return [boards[name] for name in sorted(boards)]


def _cells(place: Storage, run_id: str) -> dict[tuple[str, str], Cell]:
    of_run = f"run_id = {literal(run_id)}"
    measured: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in _rows(place, f"select * from gold_rtt where {of_run} order by metric"):
        measured[row["board_id"], row["check"]].append(row)
    return {
        (row["board_id"], row["check"]): Cell(
            row["outcome"],
            row["attempts"],
            row["message"],
            measured[row["board_id"], row["check"]],
        )
        for row in _rows(place, f"select * from gold_checks where {of_run}")
    }


def _failures(events: list[Row]) -> list[Row]:
    """Return what failed with its reason: checks and steps; a board's own end only repeats it."""
    finished = {"check_finished", "step_finished"}
    bad = [row for row in events if row["outcome"] in ("failed", "error")]
    own = [row for row in bad if row["event"] in finished] or bad
    return sorted(own, key=lambda row: row["mono_ns"] or 0)[:_SHOWN_FAILURES]


def _round_trips(place: Storage, run_id: str) -> dict[str, list[float]]:
    found = defaultdict(list)
    wanted = f"run_id = {literal(run_id)} and metric = 'rtt' and value is not null"
    for row in _rows(place, f"select board_id, value from rig_samples where {wanted}"):
        found[row["board_id"]].append(row["value"])
    return {board: sorted(found[board]) for board in sorted(found)}


def _latest_streams(rollup: list[Row]) -> list[Row]:
    latest: dict[str, int] = {}
    for row in rollup:
        latest[row["board"]] = max(latest.get(row["board"], 0), row["connection"])
    return [
        row
        for row in rollup
        # Readings without the board's simulated time are in no window of it.
        if row["connection"] == latest[row["board"]] and row["window_start_ms"] is not None
    ]


def _latest_readings(place: Storage) -> list[Row]:
    """Return the newest readings of a continuous run."""
    silver = Table(place, "silver_telemetry")
    newest = max((file.day for file in silver.files() if file.day is not None), default=None)
    if newest is None or not silver.owner():
        return []
    return _rows(place, _LATEST.format(since=newest - timedelta(days=1)))[::-1]


def _quarantine(place: Storage) -> list[Row]:
    order = "order by source, partition, message_seq"
    rows = _rows(place, f"select * from silver_quarantine {order} limit {_SHOWN_QUARANTINE}")
    for row in rows:
        payload = row["payload"] or b""
        text = payload[:_SHOWN_PAYLOAD].decode("utf-8", "backslashreplace")
        row["text"] = text + ("…" if len(payload) > _SHOWN_PAYLOAD else "")
    return rows
