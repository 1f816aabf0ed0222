"""A fleet in the hands of Spark: its text is the state, its deadline the timer."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)

from motemq_pipeline.alerts.events import Alert
from motemq_pipeline.alerts.fleet import Fleet
from motemq_pipeline.alerts.limits import Registry, Rules
from motemq_pipeline.alerts.settings import AlertSettings
from motemq_pipeline.alerts.signals import events
from pyspark_motemq.workers import settle

OUTPUT = (
    "alert string, kind string, board string, sensor string, raised_ms long, cleared_ms long, "
    "value double, limit double, message string, key string"
)
STILL_OPEN = -1  # cleared_ms: no nulls, of which pandas would make floats
_NAMES = [column.split(" ")[0] for column in OUTPUT.split(", ")]


class FleetProcessor(StatefulProcessor):
    """One fleet a shard. One value and one timer: each costs a call into Java."""

    def __init__(self, registry: Registry, settings: AlertSettings) -> None:
        self._rules = Rules(registry, settings)
        self._settings = settings

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Take what Spark keeps for us."""
        settle()
        self._handle = handle
        self._state: ValueState = handle.getValueState("fleet", "text string, timer_ms long")

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """Yield the alerts of a shard's signals."""
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        fleet, timer_ms = self._load(key)
        found = list(fleet.handle(events(rows), now_ms))
        self._save(fleet, timer_ms, now_ms)
        yield from _frames(found)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        """Yield the alerts of time; Spark deletes the timer afterwards."""
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        fleet, timer_ms = self._load(key)
        found = list(fleet.tick(now_ms))
        self._save(fleet, timer_ms, now_ms)
        yield from _frames(found)

    def close(self) -> None:
        """Nothing is open."""

    def _load(self, key: Any) -> tuple[Fleet, int | None]:
        fleet = Fleet(int(key[0]), self._rules, self._settings)
        kept = self._state.get()
        if kept is None:
            return fleet, None
        fleet.from_text(kept[0])
        return fleet, kept[1]

    def _save(self, fleet: Fleet, timer_ms: int | None, now_ms: int) -> None:
        """Keep the state, and a timer that is not later than the fleet's deadline.

        An earlier one stays: it will find nothing to do, which is cheaper than to move it along
        with every message.
        """
        deadline_ms = fleet.next_deadline()
        if timer_ms is not None and timer_ms <= now_ms:
            timer_ms = None  # Spark deletes it
        if deadline_ms is not None:
            deadline_ms = max(deadline_ms, now_ms + 1)
            if timer_ms is not None and timer_ms > deadline_ms:
                self._handle.deleteTimer(timer_ms)
                timer_ms = None
            if timer_ms is None:
                self._handle.registerTimer(deadline_ms)
                timer_ms = deadline_ms
        self._state.update((fleet.to_text(), timer_ms))


def _frames(alerts: Iterable[Alert]) -> Iterator[pd.DataFrame]:
    rows = [
        (
            *(alert.alert, alert.kind, alert.board, alert.sensor, alert.raised_ms),
            STILL_OPEN if alert.cleared_ms is None else alert.cleared_ms,
            math.nan if alert.value is None else alert.value,
            math.nan if alert.limit is None else alert.limit,
            alert.message,
            alert.key,
        )
        for alert in alerts
    ]
    if rows:
        yield pd.DataFrame(rows, columns=_NAMES)
