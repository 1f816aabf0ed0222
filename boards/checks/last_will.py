"""Last wills: published exactly once, with the right content, and never early.

A verdict rests on a proven cause of death: the proxy's trace of the connection. Where the trace
shows another cause, the rig is at fault. Time is counted from the board's last word, or from the
end that the broker was told of, all on one clock. FMQP's will follows every ending, a clean one
too; LightMQ's presence, said by the broker, does the same.
"""

from boards.checks.connection_ends import (
    MEASURES,
    as_samples,
    end_line,
    expect_cause,
    fall_silent,
    prompt,
    unheard,
    watch,
)
from boards.checks.declared import Check, Samples
from boards.checks.will_watcher import WillWatcher, watch_will
from boards.faults.trace import How
from boards.session.board_session import BoardSession, CheckFailed, Invalid, NotRun
from boards.session.broker_process import PATIENT, QUICK
from boards.session.message_line import set_silence
from boards.session.plan import Need

# A keepalive well below the silence that the broker allows.
_TIMING = {"keepalive_ms": 250, "answer_ms": 1_000}
_SLOW_TIMING = {"keepalive_ms": 1_500, "answer_ms": 2_000}
_SLOW_MORE_MS = 500  # beyond the broker's patience, on a board that says only its keepalives

_PROXY: frozenset[Need] = frozenset({"proxy"})
_RESET: frozenset[Need] = frozenset({"reset"})


def will_clean(board: BoardSession) -> list[Samples]:
    """A clean close: FMQP's last will arrives exactly once; LightMQ's presence turns offline."""
    with watch_will(board, "will_clean") as watched:
        hung_up_ns = board.hang_up()
        if not watched.number:
            return prompt(watched, hung_up_ns, None)
        ended = watched.ended()

        def proof() -> None:
            expect_cause(ended, not ended.cut and bool(ended.client_ended), "the client closed")

        return prompt(watched, ended.broker_told_ns, proof)


def will_abrupt(board: BoardSession) -> list[Samples]:
    """An abrupt death, with the connection proven alive just before it."""
    if board.dies_silently:
        return _silent_reset(board, "will_abrupt")
    try:
        with watch_will(board, "will_abrupt") as watched:
            return prompt(watched, board.kill(), None)
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
        watch(board, "will_silent", QUICK, **_TIMING) as watched,
    ):
        return fall_silent(watched, route, QUICK.window_ms(protocol))


def will_carried(board: BoardSession) -> list[Samples]:
    """FMQP carried in LightMQ: its last will comes when the PONG of a silent board is missing."""
    with (
        board.disturbed(board.own_broker().facing["lightmq+fmqp"]) as route,
        watch(board, "will_carried", QUICK, protocol="carried", **_TIMING) as watched,
    ):
        return fall_silent(watched, route, QUICK.window_ms("lightmq"))


def will_slow(board: BoardSession) -> list[Samples]:
    """A slow keepalive keeps a board alive; its silent death is noticed by the longer patience."""
    protocol = board.plan.protocol
    window_ms = PATIENT.window_ms(protocol)
    with (
        board.disturbed(board.own_broker(PATIENT).facing[protocol]) as route,
        watch(board, "will_slow", PATIENT, **_SLOW_TIMING) as watched,
    ):
        idle_ms = int(window_ms[1]) + _SLOW_MORE_MS
        result = board.call("live", ms=idle_ms, deadline_s=2 * idle_ms / 1e3 + 30)
        if not result["up"] or result["changes"]:
            raise CheckFailed(f"an idle link did not stay up for {idle_ms} ms: {result}")
        watched.saw([])  # nobody took it for dead
        return fall_silent(watched, route, window_ms)


def will_reboot(board: BoardSession) -> list[Samples]:
    """The board reboots and returns at once: one will of its former life, and it is back."""
    own = board.own_broker()
    samples = _silent_reset(board, "will_reboot")
    with (
        board.disturbed(own.facing[board.plan.protocol]),
        watch_will(board, "will_returned", own.addresses["fmqp"]),
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
            with watch_will(board, check, own.addresses["fmqp"]) as watched:
                reset_ns = board.reset()
                latest_ms = QUICK.window_ms(board.plan.protocol)[1]
                delay_ms = watched.will(reset_ns, 0.0, latest_ms, None)
        finally:
            board.recover()
    return as_samples(watched, delay_ms, 0.0, latest_ms)


def will_power(board: BoardSession) -> list[Samples]:
    """The power is cut: the will comes as for a silent death, and the board starts anew."""
    own = board.own_broker()
    protocol = board.plan.protocol
    with board.disturbed(own.facing[protocol]) as route:
        try:
            with watch_will(board, "will_power", own.addresses["fmqp"]) as watched:
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


def _after_power(board: BoardSession, watched: WillWatcher, off_ns: int) -> list[Samples]:
    if board.bridge is None:
        return unheard(watched, QUICK.window_ms(board.plan.protocol))
    # The bridge is not dead: it hears that its line is silent, and ends the session. A reliable
    # one is patient: the broker's patience may be over before.
    set_silence(board.bridge, 1.0)
    ended = watched.ended()
    if 0 < ended.broker_ended_ns <= ended.broker_told_ns:
        return unheard(watched, QUICK.window_ms(board.plan.protocol))

    def proof() -> None:
        is_bridge = ended.client_ended == "fin" and ended.client_ended_ns > off_ns
        expect_cause(
            ended, is_bridge and not ended.cut, "the bridge closed after the power was cut"
        )

    return prompt(watched, ended.broker_told_ns, proof)


def _cut(board: BoardSession, check: str, how: How) -> list[Samples]:
    with board.disturbed() as route, watch_will(board, check) as watched:
        samples = end_line(watched, route, how)
        board.hang_up()
        return samples


CHECKS = (
    Check("will_clean", will_clean, measures=MEASURES),
    Check("will_abrupt", will_abrupt, needs=_RESET, measures=MEASURES, deadline_s=90.0),
    Check("will_fin", will_fin, needs=_PROXY, measures=MEASURES),
    Check("will_rst", will_rst, needs=_PROXY, measures=MEASURES),
    Check("will_silent", will_silent, needs=_PROXY, measures=MEASURES, deadline_s=120.0),
    Check(
        "will_carried",
        will_carried,
        protocols=("lightmq",),
        needs=_PROXY,
        measures=MEASURES,
        deadline_s=120.0,
    ),
    Check("will_slow", will_slow, needs=_PROXY, measures=MEASURES, deadline_s=150.0),
    Check("will_reboot", will_reboot, needs=_PROXY | _RESET, measures=MEASURES, deadline_s=120.0),
    Check(
        "will_power",
        will_power,
        needs=_PROXY | {"power"},
        measures=MEASURES,
        deadline_s=120.0,
    ),
)
