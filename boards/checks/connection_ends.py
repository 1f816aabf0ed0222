"""Ways to end a connection that is watched over, each proven, and what is measured of its will."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from boards.checks.declared import Measurement, Samples
from boards.checks.will_watcher import WillWatcher, watch_will
from boards.faults.control import Route
from boards.faults.trace import How, Trace
from boards.session.board_session import BoardSession, Invalid
from boards.session.broker_process import BrokerTiming

_PROMPT_MS = 1_000.0  # after an end that the broker was told of
_NOTICED_MS = 30_000  # by the board's own clock, which is slow on a busy emulator

DELAY = Measurement("will_delay", "ms", "lower")
EARLIEST = Measurement("will_earliest", "ms", "lower")
LATEST = Measurement("will_latest", "ms", "lower")
MEASURES = (DELAY, EARLIEST, LATEST)


def watch(
    board: BoardSession, check: str, timing: BrokerTiming, **options: Any
) -> AbstractContextManager[WillWatcher]:
    """Watch at the rig's own broker of that timing (see ``watch_will``)."""
    return watch_will(board, check, board.own_broker(timing).addresses["fmqp"], **options)


def prompt(watched: WillWatcher, since_ns: int, proof: Callable[[], None] | None) -> list[Samples]:
    """Expect the will within a second of an end that the broker was told of."""
    delay_ms = watched.will(since_ns, 0.0, _PROMPT_MS, proof)
    return as_samples(watched, delay_ms, 0.0, _PROMPT_MS)


def end_line(watched: WillWatcher, route: Route, how: How) -> list[Samples]:
    """End the line on the way, towards both sides."""
    at_ns, count = route.cut(how)
    if count != 1:
        raise Invalid(f"{count} connections were cut instead of one")

    def proof() -> None:
        trace = watched.trace()
        by_us = trace.cut and trace.broker_told == how and trace.broker_told_ns == at_ns
        # What came after our end is the answer to it.
        first = min(filter(None, (trace.client_ended_ns, trace.broker_ended_ns)), default=at_ns)
        expect_cause(trace, by_us and first >= at_ns, f"a {how.upper()} on the way")

    return prompt(watched, at_ns, proof)


def fall_silent(
    watched: WillWatcher, route: Route, window_ms: tuple[float, float]
) -> list[Samples]:
    """Swallow the board in a black hole, which it notices, too."""
    board = watched.board
    board.call(
        "live",
        ms=_NOTICED_MS,
        until_down=True,
        on_ready=lambda: route.set_mode("black_hole"),
        deadline_s=2 * _NOTICED_MS / 1e3,
    )
    measured = unheard(watched, window_ms)
    board.hang_up()
    return measured


def unheard(watched: WillWatcher, window_ms: tuple[float, float]) -> list[Samples]:
    """The broker hears nothing more, not even of an end: the will comes in the window."""
    trace = watched.trace()

    def proof() -> None:
        now = watched.trace()
        # An end that comes after the broker's own is the answer to it.
        ends = [at for at in (now.client_ended_ns, now.broker_told_ns) if at]
        silent = not now.cut and all(0 < now.broker_ended_ns <= at for at in ends)
        expect_cause(now, silent and now.to_broker_ns == trace.to_broker_ns, "silence")

    delay_ms = watched.will(trace.to_broker_ns, *window_ms, proof)
    return as_samples(watched, delay_ms, *window_ms)


def as_samples(
    watched: WillWatcher, delay_ms: float, least_ms: float, most_ms: float
) -> list[Samples]:
    """Return what is measured of a will."""
    return [
        Samples(DELAY, [delay_ms]),
        Samples(EARLIEST, [least_ms]),
        Samples(LATEST, [most_ms + watched.slack_ms]),
    ]


def expect_cause(trace: Trace, proven: bool, cause: str) -> None:
    """Raise ``Invalid`` unless the cause of death is proven."""
    if not proven:
        raise Invalid(f"the cause of death is not proven to be {cause}: {trace.story()}")
