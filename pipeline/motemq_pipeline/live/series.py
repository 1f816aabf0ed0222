"""Readings and alerts of one board in a span of time, as many points as a plot can show."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from motemq_pipeline.sql import by_duckdb, literal
from motemq_pipeline.storage import Storage

POINTS: Final = 600  # of a sensor, at most: what a screen is wide
MOST_SENSORS: Final = 24  # of a board on one page
MOST_ALERTS: Final = 200
_MINUTE: Final = timedelta(minutes=1)
_HOUR: Final = timedelta(hours=1)
_MOMENT: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)

_BOARDS: Final = """
select board, min(window_start), max(window_start) + interval 1 hour
from gold_rollup_hour group by board order by board
"""
_ENDS: Final = """
select min(event_time), max(event_time) from silver_telemetry
where board = {board} and last is not true and value is not null
  and (event_time < {first_end} or event_time >= {last_begin})
"""
_READINGS: Final = """
select sensor, coalesce(any_value(unit), ''), avg(epoch_us(event_time)),
  avg(value), min(value), max(value)
from silver_telemetry
where board = {board} and event_time >= {since} and event_time < {until}
  and date between {first_day} and {last_day} and last is not true and value is not null
group by sensor, (epoch_us(event_time) - {origin}) // {width} order by 1, 3
"""
_WINDOWS: Final = """
select sensor, coalesce(any_value(unit), ''), avg(epoch_us(window_start)) + {half_window},
  sum(mean * count) / sum(count), min("min"), max("max")
from {table}
where board = {board} and window_start >= {since} and window_start < {until}
  and date between {first_day} and {last_day}
group by sensor, (epoch_us(window_start) - {origin}) // {width} order by 1, 3
"""
_ALERTS: Final = """
select any_value(kind), any_value(sensor), min(raised_at), max(cleared_at),
  arg_min(message, cleared_at is not null)
from alerts where board = {board} and raised_at < {until}
group by alert having max(cleared_at) is null or max(cleared_at) >= {since}
order by 3 desc
"""


@dataclass(frozen=True, slots=True)
class Board:
    """A board, and the time from its first hour to its newest."""

    name: str
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Series:
    """What one sensor measured: at each time a mean, and from where to where values went."""

    sensor: str
    unit: str
    at: list[datetime]
    mean: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert of the board; of a sensor, or "" for the whole board. No end: it still holds."""

    kind: str
    sensor: str
    raised_at: datetime
    cleared_at: datetime | None
    message: str


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A board from ``since`` until ``until``; ``table`` is where the readings are from.

    ``whole``: no sensor is left out.
    """

    board: str
    since: datetime
    until: datetime
    table: str
    series: tuple[Series, ...]
    alerts: tuple[Alert, ...]
    whole: bool


def boards(place: Storage) -> list[Board]:
    """Return the boards of the tables. Raises ``PipelineError``."""
    return [Board(*row) for row in by_duckdb(_BOARDS, place)[1]]


def ends(place: Storage, board: str) -> tuple[datetime, datetime] | None:
    """Return the time of a board's first reading and one just after its last; None: it has none.

    Where the readings themselves are no longer kept it is that of hours. Raises ``PipelineError``.
    """
    known = {one.name: one for one in boards(place)}
    if board not in known:
        return None
    first_at, last_at = known[board].first_at, known[board].last_at
    sql = _ENDS.format(
        board=literal(board),
        first_end=_time(first_at + _HOUR),
        last_begin=_time(last_at - _HOUR),
    )
    ((first, last),) = by_duckdb(sql, place)[1]
    if first is None or first >= first_at + _HOUR:
        return first_at, last_at
    return first, last + _MOMENT


def excerpt(place: Storage, board: str, since: datetime, until: datetime) -> Excerpt:
    """Return what a plot of a board shows of a span of time.

    Single readings while a point is less than a minute, then the roll-ups of minutes and of hours,
    so that a year costs no more than an hour. Raises ``PipelineError``.
    """
    width = max((until - since) / POINTS, _US)
    table, window = "silver_telemetry", _US
    if width >= _MINUTE:
        table, window = ("gold_rollup_minute", _MINUTE)
        if width >= _HOUR:
            table, window = ("gold_rollup_hour", _HOUR)
        width = -(-width // window) * window
        since -= (since - _EPOCH) % window
    names = {
        "board": literal(board),
        "since": _time(since),
        "until": _time(until),
        "first_day": _day(since),
        "last_day": _day(until),
        "origin": (since - _EPOCH) // _US,
        "width": width // _US,
        "half_window": window // _US // 2,
        "table": table,
    }
    sql = (_READINGS if window == _US else _WINDOWS).format(**names)
    limit = MOST_SENSORS * POINTS
    rows = list(by_duckdb(sql, place, limit)[1])
    found = _series(rows[:limit])
    alerts = by_duckdb(_ALERTS.format(**names), place, MOST_ALERTS)[1]
    return Excerpt(
        board,
        since,
        until,
        table,
        tuple(found[:MOST_SENSORS]),
        tuple(Alert(kind, sensor or "", *more) for kind, sensor, *more in alerts),
        len(rows) <= limit and len(found) <= MOST_SENSORS,
    )


def _series(rows: list[tuple[Any, ...]]) -> list[Series]:
    found: dict[str, Series] = {}
    for sensor, unit, at_us, mean, low, high in rows:
        one = found.setdefault(sensor, Series(sensor, unit, [], [], [], []))
        one.at.append(_EPOCH + timedelta(microseconds=round(at_us)))
        one.mean.append(mean)
        one.low.append(low)
        one.high.append(high)
    return list(found.values())


def _time(at: datetime) -> str:
    return f"timestamptz '{at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}+00'"


def _day(at: datetime) -> str:
    return f"date '{at.astimezone(UTC):%Y-%m-%d}'"
