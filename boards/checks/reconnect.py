"""Coming back: whatever was done to the line, the board is back by itself, and hears again.

The board serves its link all the time. Once the line is whole, the host publishes numbered messages
without a pause; the board has to hear some of them, none twice: two of one number would be a
subscription that was made twice.
"""

import threading
import time
from collections.abc import Callable
from itertools import count, pairwise

from boards.checks.declared import Check, Measurement, Samples
from boards.faults.control import Route
from boards.faults.trace import How
from boards.session.board_session import BoardSession, CheckFailed, Invalid, set_silence
from boards.session.observer import connect_fmqp
from boards.session.plan import Need
from host_broker.client import ClientError

_HEARD = 5  # messages that prove the subscription
_PAUSE_S = 0.05
_BACK_MS = 60_000  # by the board's clock
_CALL_S = 100.0  # by ours: an emulator on a busy machine lives more slowly
_TRY_S = 60.0
_LOOK_S = 0.02

# A raw line has no ends: the board has to be silent between two tries for longer than the bridge
# waits, here 1.2 s. Pauses are between a half and the whole of what they are called.
RAW_SILENCE_S = 1.2
_RAW = {"keepalive_ms": 150, "answer_ms": 1500, "retry_ms": 3000, "retry_max_ms": 3000}
_RAW |= {"quiet_ms": 300}  # what an old session left in the line is thrown away
_QUICK = {"keepalive_ms": 250, "retry_ms": 200, "retry_max_ms": 800}
_ANSWER_MS = 1000
_TLS_ANSWER_MS = 8000  # in it a handshake is done, too: some seconds without an accelerator
_TRIES = 4
_CABLE_S = 2.0  # longer than a board that is not held up needs to notice
_LATE_S = 5.0  # what a busy machine may take

RECONNECT = Measurement("reconnect", "ms", "lower")
_PROXY: frozenset[Need] = frozenset({"proxy"})


def reconnect_fin(board: BoardSession) -> list[Samples]:
    """After a FIN the board is back by itself, and hears each message once."""
    with board.disturbed() as route:
        return _comes_back(board, "reconnect_fin", lambda: _cut(route, "fin"))


def reconnect_rst(board: BoardSession) -> list[Samples]:
    """After a RST the board is back by itself, and hears each message once."""
    with board.disturbed() as route:
        return _comes_back(board, "reconnect_rst", lambda: _cut(route, "rst"))


def reconnect_black_hole(board: BoardSession) -> list[Samples]:
    """In a black hole the board gives the link up and tries again; it is back when that is over."""
    with board.disturbed() as route:

        def fault() -> None:
            known = _number(route)
            route.set_mode("black_hole")
            _await_tries(route, known, 1)
            route.set_mode("forward")

        return _comes_back(board, "reconnect_black_hole", fault)


def reconnect_refused(board: BoardSession) -> list[Samples]:
    """Turned away for a while, the board tries again at bounded intervals, and is back."""
    with board.disturbed() as route:
        opened: list[int] = []

        def fault() -> None:
            known = _number(route)
            route.set_mode("reset")
            _cut(route, "rst")
            opened.extend(_await_tries(route, known, 1 if _is_raw(board) else _TRIES))
            route.set_mode("refuse")
            time.sleep(0.5)
            route.set_mode("forward")

        samples = _comes_back(board, "reconnect_refused", fault)
    if not _is_raw(board):
        _expect_bounded([(after - before) / 1e9 for before, after in pairwise(opened)])
    return samples


def reconnect_restart(board: BoardSession) -> list[Samples]:
    """The broker is killed and another one starts: the board is back, and subscribed there."""
    own = board.own_broker()
    protocol = board.plan.protocol
    with board.disturbed(own.facing[protocol]) as route:

        def fault() -> None:
            own.kill()
            own.start()
            route.lead_to(own.facing[protocol])

        return _comes_back(board, "reconnect_restart", fault, broker=lambda: own.addresses["fmqp"])


def reconnect_cable(board: BoardSession) -> list[Samples]:
    """After the cable of its reliable line was pulled the board is back, and hears each once."""
    bridge = board.bridge
    if bridge is None:
        raise Invalid("this board has no serial line whose cable could be pulled")

    def fault() -> None:
        bridge.unplug()
        try:
            time.sleep(_CABLE_S)
            if bridge.connected:
                raise Invalid("the bridge went on without its cable")
        finally:
            bridge.plug_in()

    return _comes_back(board, "reconnect_cable", fault)


def _comes_back(
    board: BoardSession,
    check: str,
    fault: Callable[[], None],
    broker: Callable[[], str] | None = None,
) -> list[Samples]:
    """Let the board serve its link, do ``fault`` to it, and judge how it comes back."""
    topic = board.topic(check)
    board.connect(None, **options_of(board))
    set_silence(board.bridge, RAW_SILENCE_S)
    with _Numbers(board.sent_to(topic)) as numbers:

        def begin() -> None:
            fault()
            numbers.publish_at(broker() if broker is not None else board.broker)

        result = board.call(
            "live", ms=_BACK_MS, topic=topic, count=_HEARD, on_ready=begin, deadline_s=_CALL_S
        )
    board.hang_up()
    changes: list[tuple[int, bool, str, int]] = result["changes"]
    downs = [at for at, up, *_ in changes if not up]
    ups = [at for at, up, *_ in changes if up]
    if not downs:
        raise Invalid("the board's link was never down: nothing was done to it")
    if not ups or not result["up"]:
        why = changes[-1][2]
        raise CheckFailed(f"the board was not back in {result['ms']} ms; it says {why!r}")
    _expect_once(result["payloads"])
    return [Samples(RECONNECT, [float(ups[-1] - downs[0])])]


def _expect_once(payloads: list[str]) -> None:
    """Raise ``CheckFailed`` unless enough numbers came, in order, none twice."""
    numbers = [int(text.removeprefix("#")) for text in payloads]
    if len(numbers) < _HEARD:
        raise CheckFailed(
            f"the board is back but heard {len(numbers)} messages instead of {_HEARD}: it is not "
            "subscribed again"
        )
    if any(after <= before for before, after in pairwise(numbers)):
        raise CheckFailed(f"after it was back the board heard a message twice: {numbers}")


def _expect_bounded(gaps_s: list[float]) -> None:
    least_s = _QUICK["retry_ms"] / 2e3
    most_s = _QUICK["retry_max_ms"] / 1e3
    told = ", ".join(f"{gap * 1e3:.0f}" for gap in gaps_s)
    # The proxy sees when they arrive, a little apart from when they were sent.
    if min(gaps_s) < least_s * 0.8:
        raise CheckFailed(f"the board tried again sooner than {least_s * 1e3:.0f} ms: {told} ms")
    if max(gaps_s) > most_s + _LATE_S:
        raise CheckFailed(f"the board tried again later than {most_s * 1e3:.0f} ms: {told} ms")


def _await_tries(route: Route, known: int, tries: int) -> list[int]:
    """Return when the first ``tries`` connections after number ``known`` were opened, ns."""
    until = time.monotonic() + _TRY_S
    while len(opened := [trace.opened_ns for trace in route.traces(known)]) < tries:
        if time.monotonic() > until:
            raise CheckFailed(f"the board tried {len(opened)} times in {_TRY_S:g} s, not {tries}")
        time.sleep(_LOOK_S)
    return opened[:tries]


def _cut(route: Route, how: How) -> None:
    if route.cut(how)[1] != 1:
        raise Invalid("not exactly one connection was there to be cut")


def _number(route: Route) -> int:
    return route.traces()[-1].number


def options_of(board: BoardSession, *, answer_ms: int = _ANSWER_MS) -> dict[str, int]:
    """Return what a client that is to come back by itself is told, beside node.json.

    ``answer_ms``: for whatever it waits, unless its line takes longer.
    """
    if _is_raw(board):
        return _RAW
    return _QUICK | {"answer_ms": _TLS_ANSWER_MS if board.by_tls else answer_ms}


def _is_raw(board: BoardSession) -> bool:
    return "raw" in board.plan.has


class _Numbers:
    """Publishes ``#0``, ``#1``, … to a topic until the block ends, from when it is told where."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: ClientError | None = None

    def publish_at(self, broker: str) -> None:
        """Begin, at the FMQP listener ``broker``."""
        self._thread = threading.Thread(target=self._run, args=(broker,), daemon=True)
        self._thread.start()

    def __enter__(self) -> "_Numbers":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None and kind is None:
            raise self._failure

    def _run(self, broker: str) -> None:
        try:
            with connect_fmqp(broker) as client:
                for number in count():
                    client.publish(self._topic, f"#{number}".encode())
                    if self._end.wait(_PAUSE_S):
                        return
        except ClientError as error:
            self._failure = error


_MEASURES = (RECONNECT,)

_CUT = (reconnect_fin, reconnect_rst, reconnect_black_hole, reconnect_refused, reconnect_restart)

CHECKS = (
    *(Check(run.__name__, run, needs=_PROXY, measures=_MEASURES, deadline_s=180.0) for run in _CUT),
    Check(
        "reconnect_cable",
        reconnect_cable,
        needs=frozenset({"reliable"}),
        measures=_MEASURES,
        deadline_s=180.0,
    ),
)
