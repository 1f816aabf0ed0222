"""Last wills: published exactly once, with the right content, and never early.

A verdict rests on a proven cause of death: the proxy's trace of the connection. Where the trace
shows another cause, the rig is at fault. Time is counted from the board's last word, or from the
end that the broker was told of, all on one clock. FMQP's will follows every ending, a clean one
too; LightMQ's presence, said by the broker, does the same.
"""

import time
from collections.abc import Callable

from boards.rig.bench import Bench, Invalid
from boards.rig.checks.declared import Check, Measurement, Samples
from boards.rig.checks.vigil import SLACK_MS, Vigil, vigil
from boards.rig.line import set_silence
from boards.rig.own_broker import FMQP_SILENCE_S, LIGHTMQ_PATIENCE_S, LIGHTMQ_SILENCE_S
from boards.rig.plan import Need
from boards.rig.proxy.trace import How, Trace
from host_broker.client import connect as connect_client

_PROMPT_MS = 1_000.0  # after an end that the broker was told of
_NOTICED_MS = 30_000  # by the board's own clock, which is slow on a busy emulator
_KEEPALIVE_MS = 250  # well below the silence that the rig's own broker allows
_ANSWER_MS = 1_000

DELAY = Measurement("will_delay", "ms", "lower")
EARLIEST = Measurement("will_earliest", "ms", "lower")
LATEST = Measurement("will_latest", "ms", "lower")

_PROXY: frozenset[Need] = frozenset({"proxy"})
_RESET: frozenset[Need] = frozenset({"reset"})


def will_clean(bench: Bench) -> list[Samples]:
    """A clean close: FMQP's last will arrives exactly once; LightMQ's presence turns offline."""
    with vigil(bench, "will_clean") as watched:
        hung_up_ns = bench.hang_up()
        if not watched.number:
            return _prompt(watched, hung_up_ns, None)
        ended = watched.ended()

        def proof() -> None:
            _expect(ended, not ended.cut and bool(ended.client_ended), "the client closed")

        return _prompt(watched, ended.broker_told_ns, proof)


def will_abrupt(bench: Bench) -> list[Samples]:
    """An abrupt death, with the connection proven alive just before it."""
    try:
        with vigil(bench, "will_abrupt") as watched:
            return _prompt(watched, bench.kill(), None)
    finally:
        bench.recover()


def will_fin(bench: Bench) -> list[Samples]:
    """The line is ended by a FIN on the way: the will arrives within a second."""
    return _cut(bench, "will_fin", "fin")


def will_rst(bench: Bench) -> list[Samples]:
    """The line is ended by a RST on the way: the will arrives within a second."""
    return _cut(bench, "will_rst", "rst")


def will_silent(bench: Bench) -> list[Samples]:
    """Silent death in a black hole: the will comes when the broker's patience is over."""
    protocol = bench.board.protocol
    return _silent(bench, "will_silent", protocol, _window_ms(protocol))


def will_carried(bench: Bench) -> list[Samples]:
    """FMQP carried in LightMQ: its last will comes when the PONG of a silent board is missing."""
    window = _window_ms("lightmq")
    return _silent(bench, "will_carried", "lightmq+fmqp", window, protocol="carried")


def will_takeover(bench: Bench) -> list[Samples]:
    """A second client takes the ClientID over: the old connection is closed, presence stays."""
    own = bench.own_broker()
    with (
        bench.disturbed(own.addresses["lightmq"]),
        vigil(bench, "will_takeover", own.addresses["fmqp"]) as watched,
    ):
        url = f"lightmq://{own.addresses['lightmq']}/{bench.client_id}"
        with connect_client(url, timeout_s=10.0):
            ended = watched.ended("client")
            by_broker = bool(ended.broker_ended) and not ended.cut
            first = ended.client_ended_ns or ended.broker_ended_ns
            _expect(ended, by_broker and first >= ended.broker_ended_ns, "the broker closed")
            watched.saw(["online"])  # the newcomer's; nobody is said to be gone
            left_ns = time.monotonic_ns()
        # Now the one who has the name goes: that is its end.
        samples = _prompt(watched, left_ns, None)
        bench.hang_up()
        return samples


def will_reboot(bench: Bench) -> list[Samples]:
    """The board reboots and returns at once: one will of its former life, and it is back."""
    own = bench.own_broker()
    with bench.disturbed(own.addresses[bench.board.protocol]):
        try:
            with vigil(bench, "will_reboot", own.addresses["fmqp"]) as watched:
                reset_ns = bench.reset()
                latest_ms = _window_ms(bench.board.protocol)[1]
                delay_ms = watched.will(reset_ns, 0.0, latest_ms, None)
        finally:
            bench.recover()
        with vigil(bench, "will_returned", own.addresses["fmqp"]):
            bench.hang_up()
    return _samples(delay_ms, 0.0, latest_ms)


def will_power(bench: Bench) -> list[Samples]:
    """The power is cut: the will comes as for a silent death, and the board starts anew."""
    own = bench.own_broker()
    protocol = bench.board.protocol
    with bench.disturbed(own.addresses[protocol]) as route:
        try:
            with vigil(bench, "will_power", own.addresses["fmqp"]) as watched:
                if bench.bridge is None and bench.target.buttons is not None:
                    # The kernel that runs a virtual board would say goodbye in its name.
                    route.set_mode("black_hole")
                off_ns = bench.power(on=False)
                result = _after_power(bench, watched, off_ns)
        finally:
            bench.power(on=True)
            bench.recover()
    code = "import machine\nprint(machine.reset_cause() == machine.PWRON_RESET)"
    if bench.repl.exec(code, deadline_s=10.0).strip() != "True":
        raise Invalid("the board's reset cause is not power-on: its power was not cut")
    return result


def _after_power(bench: Bench, watched: Vigil, off_ns: int) -> list[Samples]:
    if bench.bridge is None:
        return _unheard(watched, _window_ms(bench.board.protocol))
    # The bridge is not dead: it hears that its line is silent, and ends the session. A reliable
    # one is patient: the broker's patience may be over before.
    set_silence(bench.bridge, 1.0)
    ended = watched.ended()
    if 0 < ended.broker_ended_ns <= ended.broker_told_ns:
        return _unheard(watched, _window_ms(bench.board.protocol))

    def proof() -> None:
        is_bridge = ended.client_ended == "fin" and ended.client_ended_ns > off_ns
        _expect(ended, is_bridge and not ended.cut, "the bridge closed after the power was cut")

    return _prompt(watched, ended.broker_told_ns, proof)


def _cut(bench: Bench, check: str, how: How) -> list[Samples]:
    with bench.disturbed() as route, vigil(bench, check) as watched:
        at_ns, count = route.cut(how)
        if count != 1:
            raise Invalid(f"{count} connections were cut instead of one")

        def proof() -> None:
            trace = watched.trace()
            by_us = trace.cut and trace.broker_told == how and trace.broker_told_ns == at_ns
            # What came after our end is the answer to it.
            first = min(filter(None, (trace.client_ended_ns, trace.broker_ended_ns)), default=at_ns)
            _expect(trace, by_us and first >= at_ns, f"a {how.upper()} on the way")

        samples = _prompt(watched, at_ns, proof)
        bench.hang_up()
        return samples


def _silent(
    bench: Bench, check: str, listener: str, window_ms: tuple[float, float], **options: str
) -> list[Samples]:
    own = bench.own_broker()
    timing = {"keepalive_ms": _KEEPALIVE_MS, "answer_ms": _ANSWER_MS}
    with (
        bench.disturbed(own.addresses[listener]) as route,
        vigil(bench, check, own.addresses["fmqp"], **timing, **options) as watched,
    ):
        since: list[int] = []
        bench.call(
            "live",
            ms=_NOTICED_MS,
            until_down=True,
            on_ready=lambda: since.append(route.set_mode("black_hole")),
            deadline_s=2 * _NOTICED_MS / 1e3,
        )
        samples = _unheard(watched, window_ms)
        bench.hang_up()
        return samples


def _unheard(watched: Vigil, window_ms: tuple[float, float]) -> list[Samples]:
    """The broker hears nothing more, not even of an end: the will comes in the window."""
    trace = watched.trace()

    def proof() -> None:
        now = watched.trace()
        # An end that comes after the broker's own is the answer to it.
        ends = [at for at in (now.client_ended_ns, now.broker_told_ns) if at]
        silent = not now.cut and all(0 < now.broker_ended_ns <= at for at in ends)
        _expect(now, silent and now.to_broker_ns == trace.to_broker_ns, "silence")

    delay_ms = watched.will(trace.to_broker_ns, *window_ms, proof)
    return _samples(delay_ms, *window_ms)


def _prompt(watched: Vigil, since_ns: int, proof: Callable[[], None] | None) -> list[Samples]:
    delay_ms = watched.will(since_ns, 0.0, _PROMPT_MS, proof)
    return _samples(delay_ms, 0.0, _PROMPT_MS)


def _samples(delay_ms: float, least_ms: float, most_ms: float) -> list[Samples]:
    return [
        Samples(DELAY, [delay_ms]),
        Samples(EARLIEST, [least_ms]),
        Samples(LATEST, [most_ms + SLACK_MS]),
    ]


def _window_ms(protocol: str) -> tuple[float, float]:
    """When after a client's last word the rig's own broker takes it for dead."""
    if protocol == "fmqp":
        # It looks four times in that time, so it may take a quarter more.
        return FMQP_SILENCE_S * 1e3, FMQP_SILENCE_S * 1.25e3
    patience_ms = (LIGHTMQ_SILENCE_S + LIGHTMQ_PATIENCE_S) * 1e3
    return patience_ms, patience_ms


def _expect(trace: Trace, proven: bool, cause: str) -> None:
    if not proven:
        raise Invalid(f"the cause of death is not proven to be {cause}: {trace.story()}")


_MEASURES = (DELAY, EARLIEST, LATEST)

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
    Check("will_takeover", will_takeover, ("lightmq",), _PROXY, _MEASURES, deadline_s=90.0),
    Check("will_reboot", will_reboot, needs=_PROXY | _RESET, measures=_MEASURES, deadline_s=120.0),
    Check(
        "will_power",
        will_power,
        needs=_PROXY | {"power"},
        measures=_MEASURES,
        deadline_s=120.0,
    ),
)
