"""Last wills: published exactly once, with the right content, and never early.

A verdict rests on a proven cause of death: the proxy's trace of the connection. Where the trace
shows another cause, the rig is at fault. Time is counted from the board's last word, or from the
end that the broker was told of, all on one clock. FMQP's will follows every ending, a clean one
too; LightMQ's presence, said by the broker, does the same, also where two clients come under one
ClientID.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from boards.checks.declared import Check, Measurement, Samples
from boards.faults.control import Route
from boards.faults.trace import How, Side, Trace
from boards.session.board_session import (
    AgentError,
    BoardSession,
    CheckFailed,
    Invalid,
    NotRun,
    set_silence,
)
from boards.session.broker_process import PATIENT, QUICK, BrokerTiming
from boards.session.observer import Observer, Seen
from boards.session.plan import Need
from boards.session.scheduling_delay import SchedulingDelay
from host_broker.client import Refused
from host_broker.client import connect as connect_client

_PING_MS = 5_000
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
_PROMPT_MS = 1_000.0  # after an end that the broker was told of
_NOTICED_MS = 30_000  # by the board's own clock, which is slow on a busy emulator

DELAY = Measurement("will_delay", "ms", "lower")
EARLIEST = Measurement("will_earliest", "ms", "lower")
LATEST = Measurement("will_latest", "ms", "lower")
_MEASURES = (DELAY, EARLIEST, LATEST)

# A keepalive well below the silence that the broker allows.
_TIMING = {"keepalive_ms": 250, "answer_ms": 1_000}
_SLOW_TIMING = {"keepalive_ms": 1_500, "answer_ms": 2_000}
_SLOW_MORE_MS = 500  # beyond the broker's patience, on a board that says only its keepalives

_PROXY: frozenset[Need] = frozenset({"proxy"})
_RESET: frozenset[Need] = frozenset({"reset"})


@dataclass(slots=True)
class _WillWatcher:
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
    patience_ms: float = math.inf  # of its broker, with a client that says nothing

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
        got = _texts(self.observer.settle(count, _ONLINE_S)[self.before :])
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
        if after and after[0].at_ns < since_ns + (least_ms - _EARLY_MS) * 1e6:
            self.require_heard(after[0].at_ns)
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

    def prove_alive(self) -> None:
        """Have the board ping its broker. Raises ``AgentError``, ``CheckFailed`` if none answers.

        From when it has begun to do so its silence is its own.
        """
        asked_ns: list[int] = []
        try:
            result = self.board.call(
                "ping",
                count=1,
                timeout_ms=_PING_MS,
                on_ready=lambda: asked_ns.append(time.monotonic_ns()),
            )
        except AgentError:
            if asked_ns:
                self.require_heard(asked_ns[0])
                self._require_not_held_up()
            raise
        if result["lost"]:
            self.require_heard(asked_ns[0])
            raise CheckFailed(f"a ping was not answered within {_PING_MS} ms")

    def _require_not_held_up(self) -> None:
        """Raise ``Invalid`` if a busy machine held a virtual board up until it was taken for dead.

        Then it finds the broker's end when it goes on. One whose network is mute hears of none.
        """
        if self.board.target.model.virtual and self.number:
            trace = self.trace()
            if trace.client_told and 0 < trace.broker_ended_ns <= trace.client_told_ns:
                raise Invalid(f"this machine held the board up: {trace.story()}")

    def require_heard(self, until_ns: int) -> None:
        """Raise ``Invalid`` if the broker had to take the board for dead before ``until_ns``.

        Between two steps nobody serves the board's link, and how long that lasts is up to the rig.
        """
        if self.number:
            silence_ms = self.trace().silence_ms(until_ns)
            if silence_ms >= self.patience_ms - _EARLY_MS:
                raise Invalid(
                    f"for {silence_ms:.0f} ms the board was not asked to say a word, and its "
                    f"broker has patience for {self.patience_ms:.0f} ms: the rig was too slow"
                )

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
def _watch_will(
    board: BoardSession, check: str, timing: BrokerTiming | None = None, **options: Any
) -> Iterator[_WillWatcher]:
    """Connect the board with a will and prove that it is alive and the will has not come yet.

    ``timing``: of the rig's own broker, to which the board's way leads; None: it is the run's.
    ``options`` go before node.json. Raises ``CheckFailed``, ``Invalid``.
    """
    broker, patience_ms = board.broker, math.inf
    if timing is not None:
        broker = board.own_broker(timing).addresses["fmqp"]
        patience_ms = timing.window_ms(options.get("protocol", board.plan.protocol))[0]
    has_will = board.is_fmqp or options.get("protocol") == "carried"
    will = (board.topic(check), _WILL) if has_will else None
    topic, expected = will or (f"lightmq/{board.client_id}/status", "offline")
    known = _last_number(board)
    with SchedulingDelay() as stalls, Observer(broker, topic) as observer:
        board.connect(will, **options)
        number = _last_number(board)
        watched = _WillWatcher(board, observer, topic, expected, 0, number, stalls, patience_ms)
        watched.prove_alive()
        # The retained "offline" of an earlier check comes first.
        if will is None and not observer.wait_for(_is_online, _ONLINE_S):
            seen = observer.seen()
            if "online" in _texts(seen):
                watched.require_heard(seen[-1].at_ns)
            raise CheckFailed(f"expected presence 'online', got {_texts(seen)}")
        before = watched.before = len(observer.seen())
        if observer.wait_for(lambda seen: len(seen) > before, _QUIET_S) or (will and before):
            last = observer.seen()[-1]
            watched.require_heard(last.at_ns)
            raise CheckFailed(f"{last.text!r} arrived before the end")
        if number and (last_number := _last_number(board)) != known + 1:
            raise Invalid(f"the board connected {last_number - known} times instead of once")
        yield watched


def _last_number(board: BoardSession) -> int:
    if board.broker_route is None or board.broker_route.route is None:
        return 0
    traces = board.broker_route.route.traces()
    return traces[-1].number if traces else 0


def _is_online(seen: list[Seen]) -> bool:
    return _texts(seen)[-1:] == ["online"]


def _texts(seen: list[Seen]) -> list[str]:
    return [message.text for message in seen]


def _prompt(
    watched: _WillWatcher, since_ns: int, proof: Callable[[], None] | None
) -> list[Samples]:
    """Expect the will within a second of an end that the broker was told of."""
    delay_ms = watched.will(since_ns, 0.0, _PROMPT_MS, proof)
    return _as_samples(watched, delay_ms, 0.0, _PROMPT_MS)


def _end_line(watched: _WillWatcher, route: Route, how: How) -> list[Samples]:
    """End the line on the way, towards both sides."""
    at_ns, count = route.cut(how)
    if count != 1:
        raise Invalid(f"{count} connections were cut instead of one")

    def proof() -> None:
        trace = watched.trace()
        by_us = trace.cut and trace.broker_told == how and trace.broker_told_ns == at_ns
        # What came after our end is the answer to it.
        first = min(filter(None, (trace.client_ended_ns, trace.broker_ended_ns)), default=at_ns)
        _expect_cause(trace, by_us and first >= at_ns, f"a {how.upper()} on the way")

    return _prompt(watched, at_ns, proof)


def _fall_silent(
    watched: _WillWatcher, route: Route, window_ms: tuple[float, float]
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
    measured = _unheard(watched, window_ms)
    board.hang_up()
    return measured


def _unheard(watched: _WillWatcher, window_ms: tuple[float, float]) -> list[Samples]:
    """The broker hears nothing more, not even of an end: the will comes in the window."""
    trace = watched.trace()

    def proof() -> None:
        now = watched.trace()
        # An end that comes after the broker's own is the answer to it.
        ends = [at for at in (now.client_ended_ns, now.broker_told_ns) if at]
        silent = not now.cut and all(0 < now.broker_ended_ns <= at for at in ends)
        _expect_cause(now, silent and now.to_broker_ns == trace.to_broker_ns, "silence")

    delay_ms = watched.will(trace.to_broker_ns, *window_ms, proof)
    return _as_samples(watched, delay_ms, *window_ms)


def _as_samples(
    watched: _WillWatcher, delay_ms: float, least_ms: float, most_ms: float
) -> list[Samples]:
    """Return what is measured of a will."""
    return [
        Samples(DELAY, [delay_ms]),
        Samples(EARLIEST, [least_ms]),
        Samples(LATEST, [most_ms + watched.slack_ms]),
    ]


def _expect_cause(trace: Trace, proven: bool, cause: str) -> None:
    """Raise ``Invalid`` unless the cause of death is proven."""
    if not proven:
        raise Invalid(f"the cause of death is not proven to be {cause}: {trace.story()}")


def will_clean(board: BoardSession) -> list[Samples]:
    """A clean close: FMQP's last will arrives exactly once; LightMQ's presence turns offline."""
    with _watch_will(board, "will_clean") as watched:
        hung_up_ns = board.hang_up()
        if not watched.number:
            return _prompt(watched, hung_up_ns, None)
        ended = watched.ended()

        def proof() -> None:
            _expect_cause(ended, not ended.cut and bool(ended.client_ended), "the client closed")

        return _prompt(watched, ended.broker_told_ns, proof)


def will_abrupt(board: BoardSession) -> list[Samples]:
    """An abrupt death, with the connection proven alive just before it."""
    if board.dies_silently:
        return _silent_reset(board, "will_abrupt")
    try:
        with _watch_will(board, "will_abrupt") as watched:
            return _prompt(watched, board.kill(), None)
    finally:
        board.recover()


def will_fin(board: BoardSession) -> list[Samples]:
    """The line is ended by a FIN on the way: the will arrives within a second."""
    return _cut(board, "will_fin", "fin")


def will_rst(board: BoardSession) -> list[Samples]:
    """The line is ended by a RST on the way: the will arrives within a second."""
    return _cut(board, "will_rst", "rst")


def will_silent(board: BoardSession) -> list[Samples]:
    """Silent death in a black hole: the will comes when the broker's patience is over."""
    protocol = board.plan.protocol
    with (
        board.disturbed(board.own_broker().facing[protocol]) as route,
        _watch_will(board, "will_silent", QUICK, **_TIMING) as watched,
    ):
        return _fall_silent(watched, route, QUICK.window_ms(protocol))


def will_carried(board: BoardSession) -> list[Samples]:
    """FMQP carried in LightMQ: its last will comes when the PONG of a silent board is missing."""
    with (
        board.disturbed(board.own_broker().facing["lightmq+fmqp"]) as route,
        _watch_will(board, "will_carried", QUICK, protocol="carried", **_TIMING) as watched,
    ):
        return _fall_silent(watched, route, QUICK.window_ms("lightmq"))


def will_slow(board: BoardSession) -> list[Samples]:
    """A slow keepalive keeps a board alive; its silent death is noticed by the longer patience."""
    protocol = board.plan.protocol
    window_ms = PATIENT.window_ms(protocol)
    with (
        board.disturbed(board.own_broker(PATIENT).facing[protocol]) as route,
        _watch_will(board, "will_slow", PATIENT, **_SLOW_TIMING) as watched,
    ):
        idle_ms = int(window_ms[1]) + _SLOW_MORE_MS
        served_ns: list[int] = []  # since when the board has served its link
        result = board.call(
            "live",
            ms=idle_ms,
            on_ready=lambda: served_ns.append(time.monotonic_ns()),
            deadline_s=2 * idle_ms / 1e3 + 30,
        )
        if not result["up"] or result["changes"]:
            watched.require_heard(served_ns[0])
            _require_pace(watched, result, served_ns[0])
            raise CheckFailed(f"an idle link did not stay up for {idle_ms} ms: {result}")
        watched.saw([])  # nobody took it for dead
        return _fall_silent(watched, route, window_ms)


def _require_pace(watched: _WillWatcher, result: dict[str, Any], served_ns: int) -> None:
    """Raise ``Invalid`` if a machine held the board up until its keepalives were late.

    An emulated processor's clock is behind ours then, and what runs as a process oversleeps.
    """
    took_ms = (time.monotonic_ns() - served_ns) / 1e6
    every_ms = _SLOW_TIMING["keepalive_ms"] * took_ms / max(result["ms"], 1)
    if watched.board.target.model.virtual:
        every_ms += result["overslept_ms"]
    if every_ms >= watched.patience_ms:
        raise Invalid(
            f"this machine held the board up: {result['ms']} ms of its own clock took "
            f"{took_ms:.0f} ms, and it overslept {result['overslept_ms']} ms"
        )


def will_reboot(board: BoardSession) -> list[Samples]:
    """The board reboots and returns at once: one will of its former life, and it is back."""
    own = board.own_broker()
    samples = _silent_reset(board, "will_reboot")
    with (
        board.disturbed(own.facing[board.plan.protocol]),
        _watch_will(board, "will_returned", QUICK),
    ):
        board.hang_up()
    return samples


def _silent_reset(board: BoardSession, check: str) -> list[Samples]:
    """Reset the board; the broker is told by nobody, unless the board says so when it is back."""
    if "proxy" not in board.plan.has:
        raise NotRun("its death is silent, and how patient its broker is, nobody here knows")
    own = board.own_broker()
    with board.disturbed(own.facing[board.plan.protocol]):
        try:
            with _watch_will(board, check, QUICK) as watched:
                reset_ns = board.reset()
                latest_ms = QUICK.window_ms(board.plan.protocol)[1]
                delay_ms = watched.will(reset_ns, 0.0, latest_ms, None)
        finally:
            board.recover()
    return _as_samples(watched, delay_ms, 0.0, latest_ms)


def will_power(board: BoardSession) -> list[Samples]:
    """The power is cut: the will comes as for a silent death, and the board starts anew."""
    own = board.own_broker()
    protocol = board.plan.protocol
    with board.disturbed(own.facing[protocol]) as route:
        try:
            with _watch_will(board, "will_power", QUICK) as watched:
                if board.bridge is None and not board.dies_silently:
                    # The kernel that runs a virtual board would say goodbye in its name.
                    route.set_mode("black_hole")
                off_ns = board.power(on=False)
                result = _after_power(board, watched, off_ns)
        finally:
            board.power(on=True)
            board.recover()
    code = "import machine\nprint(machine.reset_cause() == machine.PWRON_RESET)"
    if board.repl.exec(code, deadline_s=10.0).strip() != "True":
        raise Invalid("the board's reset cause is not power-on: its power was not cut")
    return result


def _after_power(board: BoardSession, watched: _WillWatcher, off_ns: int) -> list[Samples]:
    if board.bridge is None:
        return _unheard(watched, QUICK.window_ms(board.plan.protocol))
    # The bridge is not dead: it hears that its line is silent, and ends the session. A reliable
    # one is patient: the broker's patience may be over before.
    set_silence(board.bridge, 1.0)
    ended = watched.ended()
    if 0 < ended.broker_ended_ns <= ended.broker_told_ns:
        return _unheard(watched, QUICK.window_ms(board.plan.protocol))

    def proof() -> None:
        is_bridge = ended.client_ended == "fin" and ended.client_ended_ns > off_ns
        _expect_cause(
            ended, is_bridge and not ended.cut, "the bridge closed after the power was cut"
        )

    return _prompt(watched, ended.broker_told_ns, proof)


def _cut(board: BoardSession, check: str, how: How) -> list[Samples]:
    with board.disturbed() as route, _watch_will(board, check) as watched:
        samples = _end_line(watched, route, how)
        board.hang_up()
        return samples


def will_takeover(board: BoardSession) -> list[Samples]:
    """A second client takes the ClientID over: the old connection is closed, presence stays."""
    own = board.own_broker()
    with (
        board.disturbed(own.facing["lightmq"]),
        _watch_will(board, "will_takeover", QUICK) as watched,
    ):
        url = f"lightmq://{own.addresses['lightmq']}/{board.client_id}"
        with connect_client(url, timeout_s=10.0):
            ended = watched.ended("client")
            by_broker = bool(ended.broker_ended) and not ended.cut
            first = ended.client_ended_ns or ended.broker_ended_ns
            _expect_cause(ended, by_broker and first >= ended.broker_ended_ns, "the broker closed")
            watched.saw(["online"])  # the newcomer's; nobody is said to be gone
            left_ns = time.monotonic_ns()
        # Now the one who has the name goes: that is its end.
        samples = _prompt(watched, left_ns, None)
        board.hang_up()
        return samples


def will_reject(board: BoardSession) -> list[Samples]:
    """A second client under the same ClientID is refused: the board stays, and so its presence."""
    own = board.own_broker(PATIENT)
    url = f"lightmq://{own.addresses['lightmq']}/{board.client_id}"
    with (
        board.disturbed(own.facing["lightmq"]) as route,
        _watch_will(board, "will_reject", PATIENT) as watched,
    ):
        try:
            with connect_client(url, timeout_s=10.0):
                raise CheckFailed(f"a second client was let in as {board.client_id}")
        except Refused:
            board.call("ping", count=3, timeout_ms=_PING_MS)
        watched.saw([])
        trace = watched.trace()
        if trace.client_ended or trace.broker_ended:
            raise CheckFailed(f"the refused client cost the board its link: {trace.story()}")
        samples = _end_line(watched, route, "rst")
        board.hang_up()
        with connect_client(url, timeout_s=10.0):  # the name is free now
            return samples


CHECKS = (
    Check("will_clean", will_clean, measures=_MEASURES),
    Check("will_abrupt", will_abrupt, needs=_RESET, measures=_MEASURES, deadline_s=90.0),
    Check("will_fin", will_fin, needs=_PROXY, measures=_MEASURES),
    Check("will_rst", will_rst, needs=_PROXY, measures=_MEASURES),
    Check("will_silent", will_silent, needs=_PROXY, measures=_MEASURES, deadline_s=120.0),
    Check(
        "will_carried",
        will_carried,
        protocols=("lightmq",),
        needs=_PROXY,
        measures=_MEASURES,
        deadline_s=120.0,
    ),
    Check("will_slow", will_slow, needs=_PROXY, measures=_MEASURES, deadline_s=150.0),
    Check("will_reboot", will_reboot, needs=_PROXY | _RESET, measures=_MEASURES, deadline_s=120.0),
    Check("will_power", will_power, needs=_PROXY | {"power"}, measures=_MEASURES, deadline_s=120.0),
    Check("will_takeover", will_takeover, ("lightmq",), _PROXY, _MEASURES, deadline_s=90.0),
    Check("will_reject", will_reject, ("lightmq",), _PROXY, _MEASURES, deadline_s=90.0),
)
