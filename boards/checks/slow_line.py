"""A slow line: nothing breaks because answers take long, and they take as much longer as they must.

The proxy delays every byte, both ways. By the host's clock no answer can come sooner; that proves
the delay before anything is said about the board.
"""

import time

from boards.checks.declared import Check, Measurement, Samples
from boards.checks.payloads import expect_heard, send_down
from boards.reports.axes import percentile
from boards.session.board_session import BoardSession, CheckFailed, Invalid
from boards.session.scheduling_delay import SchedulingDelay

_DELAY_MS = 150  # each way
_ADDED_MS = 2 * _DELAY_MS
_PINGS = 10
_PING_MS = 10_000
_KEEPALIVE_MS = 200  # shorter than a round trip: an answer under way is no silence
_IDLE_MS = 1_500
_COUNT = 20
_SIZE = 64
_ARRIVAL_S = 20.0
_TAKE_MS = 20_000
_STEP_S = 60.0
_LEAST = 0.9  # of what was added, by the board's clock
_MORE_MS = 500.0

RTT = Measurement("slow_rtt", "us", "lower")
ADDED = Measurement("slow_rtt_added", "us", "lower")


def slow_line(board: BoardSession) -> list[Samples]:
    """With 150 ms more each way all arrives, the link holds, and round trips take 300 ms more."""
    topic = board.topic("slow_line")
    with SchedulingDelay() as stalls, board.disturbed() as route:
        board.connect(None, keepalive_ms=_KEEPALIVE_MS)
        number = route.traces()[-1].number
        before, _ = _round_trips(board)
        route.set_mode("forward", delay_ms=_DELAY_MS)
        began = time.monotonic()
        slow, board_ms = _round_trips(board)
        took_ms = (time.monotonic() - began) * 1e3
        if took_ms < _PINGS * _ADDED_MS:
            raise Invalid(f"{_PINGS} round trips took {took_ms:.0f} ms: the line was not slow")
        _expect_idle(board)
        _expect_messages(board, topic)
        route.set_mode("forward")
        _round_trips(board)
        if (now := route.traces()[-1].number) != number:
            raise CheckFailed(f"the board connected {now - number} times more on a slow line")
        board.hang_up()
    # The clock of an emulated processor that waits for a UART goes many times slower than ours, now
    # and then: so all the round trips are held to how much of that time it saw pass.
    pace = min(1.0, board_ms / took_ms)
    least_ms = _ADDED_MS * _LEAST * pace
    mean_ms = sum(slow) / len(slow) / 1e3 - min(before) / 1e3 * pace
    added_us = percentile(slow, 50) - percentile(before, 50)
    most_ms = _ADDED_MS + _MORE_MS + _PINGS * stalls.worst_ms
    if mean_ms < least_ms or added_us / 1e3 > most_ms:
        raise CheckFailed(
            f"{_ADDED_MS} ms were added to each round trip, by the board's clock it was "
            f"{mean_ms:.0f} ms in the mean and {added_us / 1e3:.0f} ms in the median, expected "
            f"{least_ms:.0f} to {most_ms:.0f} ms"
        )
    return [Samples(RTT, slow), Samples(ADDED, [added_us])]


def _round_trips(board: BoardSession) -> tuple[list[float], float]:
    """Return the time of each in µs and of all of them in ms, by the board's clock."""
    result = board.call("ping", count=_PINGS, timeout_ms=_PING_MS, deadline_s=_STEP_S)
    if result["lost"] or len(result["rtt_us"]) != _PINGS:
        raise CheckFailed(f"{result['lost']} of {_PINGS} pings were lost")
    return [float(value) for value in result["rtt_us"]], result["us"] / 1e3


def _expect_idle(board: BoardSession) -> None:
    """A link whose answers take longer than its keepalive is not dead."""
    result = board.call("live", ms=_IDLE_MS, deadline_s=_STEP_S)
    if not result["up"] or result["changes"]:
        why = result["changes"][-1][2] if result["changes"] else "it is down"
        raise CheckFailed(f"on a slow line an idle link did not stay up: {why}")


def _expect_messages(board: BoardSession, topic: str) -> None:
    with board.observe(board.seen_at(topic)) as observer:
        board.call("send_numbered", topic=topic, size=_SIZE, count=_COUNT, deadline_s=_STEP_S)
        expect_heard(observer, _COUNT, _ARRIVAL_S)
    send_down(board, topic, size=_SIZE, count=_COUNT, timeout_ms=_TAKE_MS, deadline_s=_STEP_S)


CHECKS = (
    Check(
        "slow_line",
        slow_line,
        needs=frozenset({"proxy"}),
        measures=(RTT, ADDED),
        deadline_s=150.0,
        alone=True,
    ),
)
