"""Readings that must not be lost: what the board publishes with ``confirm`` is what arrives.

By MicroMsg2, at a broker of the rig's own, whatever protocol the board speaks otherwise. The line
is ended on the way while it publishes. Some readings may then arrive twice; none may be missing,
and their first arrivals are in order.
"""

import time

from boards.checks.declared import Check, Measurement, Samples
from boards.checks.reconnect import RAW_SILENCE_S, options_of
from boards.faults.control import Route
from boards.faults.trace import How
from boards.session.board_session import BoardSession, CheckFailed, Invalid, set_silence
from boards.session.observer import Observer

_COUNT = 60
_PERIOD_MS = 100
_TIMEOUT_MS = 60_000  # by the board's clock
_CALL_S = 120.0  # by ours
_ANSWER_MS = 2000
_CUTS: tuple[How, ...] = ("rst", "fin")
_APART_S = 0.5  # so long there are readings before the line ends
_BACK_S = 60.0
_ARRIVE_S = 10.0  # what is confirmed, at an observer on this machine

CONFIRMED = Measurement("confirmed", "ms", "lower")


def confirmed(board: BoardSession) -> list[Samples]:
    """What the board publishes with confirm arrives, though its line is ended on the way twice."""
    own = board.own_broker()
    topic = board.topic("confirmed")
    if board.bridge is not None and not board.bridge.wait_idle(_BACK_S):
        raise CheckFailed("the bridge's last session did not end; the board still sends")
    with (
        board.disturbed(own.facing["micromsg2"]) as route,
        Observer(own.addresses["fmqp"], topic) as observer,
    ):
        ending = _Ending(route)
        set_silence(board.bridge, RAW_SILENCE_S)
        result = board.call(
            "confirmed",
            client_id=board.client_id,
            topic=topic,
            count=_COUNT,
            period_ms=_PERIOD_MS,
            timeout_ms=_TIMEOUT_MS,
            connects=1 + len(_CUTS),
            options=options_of(board, answer_ms=_ANSWER_MS),
            on_ready=ending.link_is_up,
            deadline_s=_CALL_S,
        )
        board.hang_up()
        sent = int(result["sent"])
        if result["kept"] or sent < _COUNT:
            raise CheckFailed(
                f"{result['kept']} of {sent} readings were not confirmed in {result['ms']} ms; the "
                f"link was lost for {result['downs']}"
            )
        if ending.left or result["connects"] < 1 + len(_CUTS):
            raise Invalid(
                f"the board's link came up {result['connects']} times, and its line was not ended "
                f"by {ending.left}"
            )
        last = f"#{sent - 1}"
        observer.wait_for(lambda seen: any(each.text == last for each in seen), _ARRIVE_S)
        seen = [int(each.text.removeprefix("#")) for each in observer.seen()]
    _expect_all(seen, sent, result["dropped"])
    return [Samples(CONFIRMED, [float(result["ms"])])]


class _Ending:
    """Ends the board's line each time that its link has come up, as often as is wanted.

    A connection that is only opened proves nothing: on a bad network it may not come up, and be
    gone by itself in the moment in which it is to be ended.
    """

    def __init__(self, route: Route) -> None:
        self._route = route
        self.left = list(_CUTS)

    def link_is_up(self) -> None:
        """Let some readings go, and end the line. One that is gone already comes up again."""
        if self.left:
            time.sleep(_APART_S)
            if self._route.cut(self.left[0])[1]:
                self.left.pop(0)


def _expect_all(seen: list[int], sent: int, dropped: int) -> None:
    """Raise ``CheckFailed`` unless each number arrived, for the first time in order."""
    first = list(dict.fromkeys(seen))
    missing = sorted(set(range(sent)) - set(first))
    if missing or dropped:
        raise CheckFailed(
            f"{len(missing)} readings that the broker had confirmed did not arrive: "
            f"{missing[:10]}; the board gave up {dropped}"
        )
    if first != list(range(sent)):
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
