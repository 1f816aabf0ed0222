"""Readings that must not be lost: what the board publishes with ``confirm`` is what arrives.

By MicroMsg2, at a broker of the rig's own, whatever protocol the board speaks otherwise. The line
is ended on the way while it publishes. Some readings may then arrive twice; none may be missing,
and their first arrivals are in order.
"""

import time

from boards.checks.declared import Check, Measurement, Samples
from boards.faults.control import Route
from boards.faults.trace import How
from boards.session.board_session import BoardSession, CheckFailed, Invalid, set_silence
from boards.session.observer import Observer

_COUNT = 60
_PERIOD_MS = 100
_TIMEOUT_MS = 60_000  # by the board's clock
_CALL_S = 120.0  # by ours
_CUTS: tuple[How, ...] = ("rst", "fin")
_APART_S = 1.0  # so long there are readings before the line ends
_BACK_S = 60.0
_ARRIVE_S = 10.0  # what is confirmed, at an observer on this machine
_LOOK_S = 0.02

_RAW_SILENCE_S = 1.2  # before which a raw bridge does not close a session
_RAW = {"keepalive_ms": 150, "answer_ms": 1500, "retry_ms": 3000, "retry_max_ms": 3000}
_RAW_QUIET = {"quiet_ms": 300}
_QUICK = {"keepalive_ms": 250, "answer_ms": 2000, "retry_ms": 200, "retry_max_ms": 800}

CONFIRMED = Measurement("confirmed", "ms", "lower")


def confirmed(board: BoardSession) -> list[Samples]:
    """What the board publishes with confirm arrives, though its line is ended on the way twice."""
    own = board.own_broker()
    topic = board.topic("confirmed")
    raw = "raw" in board.plan.has
    if board.bridge is not None and not board.bridge.wait_idle(_BACK_S):
        raise CheckFailed("the bridge's last session did not end; the board still sends")
    with (
        board.disturbed(own.facing["micromsg2"]) as route,
        Observer(own.addresses["fmqp"], topic) as observer,
    ):
        set_silence(board.bridge, _RAW_SILENCE_S)
        result = board.call(
            "confirmed",
            client_id=board.client_id,
            topic=topic,
            count=_COUNT,
            period_ms=_PERIOD_MS,
            timeout_ms=_TIMEOUT_MS,
            options=_RAW | _RAW_QUIET if raw else _QUICK,
            on_ready=lambda: _end_lines(route),
            deadline_s=_CALL_S,
        )
        board.hang_up()
        if result["kept"] or result["sent"] != _COUNT:
            raise CheckFailed(
                f"{result['kept']} of {result['sent']} readings were not confirmed in "
                f"{result['ms']} ms; the link was lost for {result['downs']}"
            )
        if result["connects"] < 1 + len(_CUTS):
            raise Invalid(f"the board's link came up {result['connects']} times: nothing was done")
        last = f"#{_COUNT - 1}"
        observer.wait_for(lambda seen: any(each.text == last for each in seen), _ARRIVE_S)
        seen = [int(each.text.removeprefix("#")) for each in observer.seen()]
    _expect_all(seen, result["dropped"])
    return [Samples(CONFIRMED, [float(result["ms"])])]


def _end_lines(route: Route) -> None:
    """End the connection that there is, and the next one."""
    for how in _CUTS:
        time.sleep(_APART_S)
        known = route.traces()[-1].number
        if route.cut(how)[1] != 1:
            raise Invalid("not exactly one connection was there to be cut")
        until = time.monotonic() + _BACK_S
        while not route.traces(known):
            if time.monotonic() > until:
                raise CheckFailed(f"the board was not back within {_BACK_S:g} s of a {how.upper()}")
            time.sleep(_LOOK_S)


def _expect_all(seen: list[int], dropped: int) -> None:
    """Raise ``CheckFailed`` unless each number arrived, for the first time in order."""
    first = list(dict.fromkeys(seen))
    missing = sorted(set(range(_COUNT)) - set(first))
    if missing or dropped:
        raise CheckFailed(
            f"{len(missing)} readings that the broker had confirmed did not arrive: "
            f"{missing[:10]}; the board gave up {dropped}"
        )
    if first != list(range(_COUNT)):
        raise CheckFailed(f"readings arrived out of order: {first}")


CHECKS = (
    Check(
        "confirmed",
        confirmed,
        needs=frozenset({"proxy"}),
        measures=(CONFIRMED,),
        deadline_s=180.0,
    ),
)
