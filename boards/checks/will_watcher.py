"""Watch over one connection of a board until its last will has come: once, right, in time."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from boards.faults.trace import Side, Trace
from boards.session.board_session import BoardSession, CheckFailed, Invalid
from boards.session.observer import Observer, Seen
from boards.session.scheduling_delay import SchedulingDelay

PING_MS = 5_000
_ONLINE_S = 15.0
_ENDED_S = 15.0
_QUIET_S = 0.3  # how long nothing more (or nothing yet) must come
_WILL = "gone"
# Beyond the latest right moment: the proxy, the broker and the observer each have to be woken, and
# each as late as this machine was seen to wake us; and a second for what nobody measures.
_SLACK_MS = 1_000
_WOKEN = 3
# Clocks of one machine are one. But the broker takes all that it reads in one turn of its loop for
# as old as the beginning of that turn, which may be before the proxy sent it: 3.3 ms were seen.
_EARLY_MS = 20


@dataclass(slots=True)
class WillWatcher:
    """One connection, and an observer who waits for its will.

    For LightMQ the will is the presence ``offline``, which the broker publishes itself.
    """

    board: BoardSession
    observer: Observer
    topic: str
    expected: str
    before: int  # messages of earlier connections, retained
    number: int  # of the connection, at the proxy; 0: without one
    stalls: SchedulingDelay

    @property
    def slack_ms(self) -> float:
        """How much later than right a will may come because this machine is busy."""
        return _SLACK_MS + _WOKEN * self.stalls.worst_ms

    def trace(self) -> Trace:
        """Return what the proxy saw of the connection. Raises ``Invalid`` if it was another."""
        traces = self.board.route.traces(self.number - 1)
        if [trace.number for trace in traces] != [self.number]:
            numbers = ", ".join(str(trace.number) for trace in traces) or "none"
            raise Invalid(f"connection {self.number} was to die, but the proxy saw {numbers}")
        return traces[0]

    def ended(self, told: Side = "broker") -> Trace:
        """Return the trace once that side was told of an end. Raises ``Invalid`` if it was not."""
        until = time.monotonic() + _ENDED_S
        while True:
            trace = self.trace()
            if trace.broker_told if told == "broker" else trace.client_told:
                return trace
            if time.monotonic() > until:
                raise Invalid(f"the connection did not end within {_ENDED_S:g} s")
            time.sleep(0.02)

    def saw(self, texts: list[str]) -> None:
        """Return once exactly ``texts`` have come, and forget them. Raises ``CheckFailed``."""
        count = self.before + len(texts)
        self.observer.wait_for(lambda seen: len(seen) >= count, _ONLINE_S)
        self.observer.wait_for(lambda seen: len(seen) > count, _QUIET_S)
        got = _texts(self.observer.seen()[self.before :])
        if got != texts:
            raise CheckFailed(f"expected {texts} on {self.topic}, got {got}")
        self.before = count

    def will(
        self, since_ns: int, least_ms: float, most_ms: float, proof: Callable[[], None] | None
    ) -> float:
        """Return when the will came, ms after ``since_ns``, if it came once and in the window.

        ``proof`` raises ``Invalid`` if the cause of death is not what it should be; it is asked
        before any verdict. Raises ``CheckFailed``.
        """
        arrived = self._await_will(since_ns, most_ms)
        slack_ms = self.slack_ms
        self.observer.wait_for(lambda seen: len(seen) > self.before + 1, _QUIET_S)
        if proof is not None:
            proof()
        after = self.observer.seen()[self.before :]
        if not arrived:
            raise CheckFailed(
                f"expected {self.expected!r} on {self.topic}, nothing came in {most_ms:.0f} ms and "
                f"{slack_ms:.0f} ms more"
            )
        if _texts(after) != [self.expected]:
            raise CheckFailed(
                f"expected exactly one {self.expected!r} on {self.topic}, got {_texts(after)}"
            )
        delay_ms = (after[0].at_ns - since_ns) / 1e6
        if delay_ms < least_ms - _EARLY_MS:
            raise CheckFailed(
                f"{self.expected!r} came {delay_ms:.0f} ms after the last word, not before "
                f"{least_ms:.0f} ms was right: the broker took a living client for dead"
            )
        if delay_ms > most_ms + slack_ms:
            raise CheckFailed(
                f"{self.expected!r} came after {delay_ms:.0f} ms, at the latest {most_ms:.0f} ms "
                f"and {slack_ms:.0f} ms more were right"
            )
        return delay_ms

    def _await_will(self, since_ns: int, most_ms: float) -> bool:
        """Wait until something came, or what is still in time cannot come any more."""
        began = time.monotonic()
        while True:
            until = max(since_ns / 1e9 + most_ms / 1e3, began + _QUIET_S) + self.slack_ms / 1e3
            left_s = until - time.monotonic()
            if self.observer.wait_for(lambda seen: len(seen) > self.before, max(0.0, left_s)):
                return True
            if left_s <= 0:
                return False


@contextmanager
def watch_will(
    board: BoardSession, check: str, broker: str = "", **options: Any
) -> Iterator[WillWatcher]:
    """Connect the board with a will and prove that it is alive and the will has not come yet.

    ``broker``: where to observe, HOST:PORT of an FMQP listener; default the run's. ``options`` go
    before node.json. Raises ``CheckFailed``, ``Invalid``.
    """
    has_will = board.is_fmqp or options.get("protocol") == "carried"
    will = (board.topic(check), _WILL) if has_will else None
    topic, expected = will or (f"lightmq/{board.client_id}/status", "offline")
    known = _last_number(board)
    with SchedulingDelay() as stalls, Observer(broker or board.broker, topic) as observer:
        board.connect(will, **options)
        board.call("ping", count=1, timeout_ms=PING_MS)
        # The retained "offline" of an earlier check comes first.
        if will is None and not observer.wait_for(_is_online, _ONLINE_S):
            raise CheckFailed(f"expected presence 'online', got {_texts(observer.seen())}")
        before = len(observer.seen())
        if observer.wait_for(lambda seen: len(seen) > before, _QUIET_S) or (will and before):
            raise CheckFailed(f"{_texts(observer.seen())[-1]!r} arrived before the end")
        number = _last_number(board)
        if number and number != known + 1:
            raise Invalid(f"the board connected {number - known} times instead of once")
        yield WillWatcher(board, observer, topic, expected, before, number, stalls)


def _last_number(board: BoardSession) -> int:
    if board.broker_route is None or board.broker_route.route is None:
        return 0
    traces = board.broker_route.route.traces()
    return traces[-1].number if traces else 0


def _is_online(seen: list[Seen]) -> bool:
    return _texts(seen)[-1:] == ["online"]


def _texts(seen: list[Seen]) -> list[str]:
    return [message.text for message in seen]
