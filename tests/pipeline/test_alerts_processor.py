"""The processor as Spark calls it, by PySpark's own tester: state, timers, output."""

from typing import Any

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.tws_tester import TwsTester

from motemq_pipeline.alerts.events import Alert, Event, Gone, Reading
from motemq_pipeline.alerts.fleet import Fleet
from motemq_pipeline.alerts.limits import Rules
from motemq_pipeline.alerts.processor import STILL_OPEN, FleetProcessor
from motemq_pipeline.alerts.settings import AlertSettings
from tests.pipeline.alert_desk import START_MS, Registry

_SETTINGS = AlertSettings(shards=1, will_after_s=2.0, loss_after_s=1.0, loss_clear_s=5.0)
_KEY = 0


def _signals(events: list[Event]) -> pd.DataFrame:
    rows = [
        {
            "shard": 0,
            "board": event.board,
            "kind": (3 if event.last else 0) if isinstance(event, Reading) else 1,
            "at_ms": event.at_ms,
            "path": event.path,
            "sensor": event.sensor if isinstance(event, Reading) else "",
            "number": event.number if isinstance(event, Reading) else -1,
            "value": event.value if isinstance(event, Reading) else 0.0,
            "connection": event.connection if isinstance(event, Reading) else 0,
            "partition": 0,
            "message_seq": number,
        }
        for number, event in enumerate(events)
    ]
    return pd.DataFrame(rows)


def _reading(board: str, at_ms: int, sensor: str, number: int, value: float) -> Reading:
    path = f"telemetry/{board}/{sensor}"
    return Reading(board, at_ms, path, sensor, number, value, 1, last=sensor == "end")


def _row(alert: Alert) -> tuple[Any, ...]:
    cleared = STILL_OPEN if alert.cleared_ms is None else alert.cleared_ms
    return (alert.key, alert.kind, alert.board, alert.sensor, alert.raised_ms, cleared)


def _rows(frame: Any) -> list[tuple[Any, ...]]:
    names = ["key", "kind", "board", "sensor", "raised_ms", "cleared_ms"]
    return [] if len(frame) == 0 else list(frame[names].itertuples(index=False, name=None))


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 15_000),  # ms until the batch
            st.lists(
                st.tuples(
                    st.sampled_from("ab"),
                    st.sampled_from(["temperature", "end", "will"]),
                    st.integers(0, 20),
                    st.sampled_from([20.0, 50.0]),
                ),
                max_size=3,
            ),
        ),
        max_size=20,
    )
)
def test_timers_say_what_a_look_at_every_millisecond_would(
    batches: list[tuple[int, list[tuple[str, str, int, float]]]],
) -> None:
    """Spark looks only when a timer is due; nothing that time raises may be missed by that."""
    tester = TwsTester(FleetProcessor(Registry(), _SETTINGS), timeMode="ProcessingTime")
    fleet = Fleet(0, Rules(Registry(), _SETTINGS), _SETTINGS)
    found: list[tuple[Any, ...]] = []
    expected: list[tuple[Any, ...]] = []
    now_ms = START_MS
    for wait_ms, said in [*batches, (120_000, [])]:
        until_ms = now_ms + wait_ms
        while now_ms < until_ms:
            now_ms = min(until_ms, now_ms + 500)
            found += _rows(tester.setProcessingTime(now_ms))
            expected += [_row(alert) for alert in fleet.tick(now_ms)]
        events: list[Event] = [
            Gone(board, now_ms, f"status/{board}")
            if sensor == "will"
            else _reading(board, now_ms, sensor, number, value)
            for board, sensor, number, value in said
        ]
        if events:
            found += _rows(tester.testInPandas(_KEY, _signals(events)))
            expected += [_row(alert) for alert in fleet.handle(events, now_ms)]
    assert found == expected
    timers = list(tester.handle._timers.listTimers(_KEY))
    deadline_ms = fleet.next_deadline()
    assert len(timers) == (deadline_ms is not None)  # one, and not later than what it is for
    assert all(timer <= (deadline_ms or 0) for timer in timers)
