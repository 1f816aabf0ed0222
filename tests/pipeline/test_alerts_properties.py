"""What holds of alerts whatever happens, against plain models."""

import random as chance
from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from motemq_pipeline.alerts.events import Alert, Event, Gone, Returned
from tests.pipeline.alert_desk import START_MS, Desk, told

_events = st.lists(
    st.tuples(
        st.floats(0.0, 15.0),  # seconds since the one before
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["temperature", "humidity", "end", "will", "online"]),
        st.integers(0, 40),
        st.floats(allow_nan=True, allow_infinity=True, width=16),
        st.integers(1, 3),
    ),
    max_size=60,
)


@settings(deadline=None, max_examples=100)
@given(_events)
def test_whatever_happens_alerts_are_raised_and_cleared_in_turn_and_survive_restarts(
    happened: list[tuple[float, str, str, int, float, int]],
) -> None:
    desks = [Desk(max_boards=2), Desk(restarts=True, max_boards=2)]
    for desk in desks:
        for wait_s, board, what, number, value, connection in happened:
            now = desk.now_s + wait_s
            desk.until(now, 2.0)
            event: Event = desk.reading(number, value, board, what, connection)
            if what == "will":
                event = Gone(board, desk.now_ms, f"status/{board}")
            elif what == "online":
                event = Returned(board, desk.now_ms, f"status/{board}")
            desk.at(now, event)
        desk.until(desk.now_s + 200, 2.0)
    assert desks[0].alerts == desks[1].alerts
    keys = [alert.key for alert in desks[0].alerts]
    assert len(set(keys)) == len(keys)
    by_kind: dict[tuple[str, str, str], list[Alert]] = defaultdict(list)
    for alert in desks[0].alerts:
        by_kind[alert.kind, alert.board, alert.sensor].append(alert)
    for (kind, *_), found in by_kind.items():
        for raised, cleared in zip(found[::2], found[1::2], strict=False):
            assert raised.cleared_ms is None
            assert cleared.cleared_ms is not None
            assert cleared.alert == raised.alert
            assert cleared.raised_ms == raised.raised_ms <= cleared.cleared_ms
        if kind in ("loss", "disorder"):  # what happened is over after a while
            assert len(found) % 2 == 0
    assert len(desks[0].fleet.to_text()) < 20_000


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 25.0), min_size=1, max_size=30))
def test_silence_is_every_gap_above_the_limit(gaps: list[float]) -> None:
    desk = Desk()
    for number, gap in enumerate(gaps):
        desk.at(desk.now_s, desk.reading(number))
        desk.until(desk.now_s + gap, 0.5)
    desk.at(desk.now_s, desk.reading(len(gaps)))
    silences = sum(round(gap * 1000) >= 10_000 for gap in gaps)
    near = sum(abs(gap - 10.0) < 0.002 for gap in gaps)  # milliseconds are rounded
    raised = [a for a in desk.alerts if a.cleared_ms is None]
    assert abs(len(raised) - silences) <= near
    assert len(desk.alerts) == 2 * len(raised)


@settings(deadline=None)
@given(st.lists(st.floats(-20.0, 60.0), max_size=60))
def test_range_is_as_a_plain_hysteresis_says(values: list[float]) -> None:
    desk = Desk()
    out, expected = False, []
    for number, value in enumerate(values):
        if not out and not 0.0 <= value <= 40.0:
            out = True
            expected.append((number, "raised"))
        elif out and 1.0 <= value <= 39.0:
            out = False
            expected.append((number, "cleared"))
        desk.now_s = number / 100
        desk.at(desk.now_s, desk.reading(number, value))
    found = [
        ((a.raised_ms if a.cleared_ms is None else a.cleared_ms) - START_MS, *told([a])[0][1:])
        for a in desk.alerts
    ]
    assert found == [(number * 10, what) for number, what in expected]


@settings(deadline=None, max_examples=100)
@given(
    st.sets(st.integers(1, 78), max_size=30),
    st.lists(st.integers(0, 79), max_size=10),
    st.randoms(use_true_random=False),
)
def test_loss_is_counted_exactly(lost: set[int], twice: list[int], random: chance.Random) -> None:
    """80 numbers; some never come, some come twice, neighbours change places."""
    desk = Desk()
    numbers = [0, *sorted({*range(1, 79)} - lost), 79]
    order = sorted(numbers[1:], key=lambda n: n + 3 * random.random())
    sent = [0, *order]
    for number in twice:
        if number in sent and number not in (0,):
            sent.insert(sent.index(number) + 1, number)
    for number in sent:
        desk.at(desk.now_s + 0.01, desk.reading(number))
    highest = max(sent)
    missing = highest + 1 - len(set(sent))
    desk.until(desk.now_s + 8.0, 1.0)
    raised = [a for a in desk.alerts if a.kind == "loss"]
    assert [a.value for a in raised] == ([float(missing)] if missing else [])
    late = any(n < max(sent[:at], default=-1) and n not in sent[:at] for at, n in enumerate(sent))
    assert any(a.kind == "disorder" for a in desk.alerts) == late
