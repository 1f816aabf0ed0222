"""Pings: round trips by the board's own clock, a lost answer noticed, and none too many."""

from boards.checks.declared import Check, Measurement, Samples
from boards.checks.limits import RTT_P99
from boards.session.board_session import BoardSession, CheckFailed
from boards.session.plan import Need

_PINGS = 50
_PING_MS = 5_000
_PING_ALL_S = 60.0
_KEEPALIVE_MS = 250
_ANSWER_MS = 1_000
_NOTICED_MS = 30_000
_LATE_MS = 1_000
_ENCRYPTED = 4  # pings, to see how long one is
_IDLE_MS = 2_500
_CALL_S = 60.0

_PROXY: frozenset[Need] = frozenset({"proxy"})

RTT = Measurement("rtt", "us", "lower", RTT_P99)
NOTICED = Measurement("ping_noticed", "ms", "lower")
INTERVAL = Measurement("ping_interval", "ms", "higher")


def ping(board: BoardSession) -> list[Samples]:
    """50 round trips by the board's own clock, none lost."""
    with board.session():
        result = board.call("ping", count=_PINGS, timeout_ms=_PING_MS, deadline_s=_PING_ALL_S)
    times = [float(value) for value in result["rtt_us"]]
    if result["lost"] or len(times) != _PINGS:
        raise CheckFailed(f"expected {_PINGS} round trips, got {len(times)}, lost {result['lost']}")
    return [Samples(RTT, times)]


def ping_lost(board: BoardSession) -> list[Samples]:
    """A PONG that does not come is noticed within keepalive and timeout, and a second more."""
    with board.disturbed() as route:
        board.connect(None, keepalive_ms=_KEEPALIVE_MS, answer_ms=_ANSWER_MS)
        result = board.call(
            "live",
            ms=_NOTICED_MS,
            until_down=True,
            on_ready=lambda: route.set_mode("black_hole"),
            deadline_s=_CALL_S,
        )
        board.hang_up()
    if result["up"] or not result["changes"]:
        raise CheckFailed(f"after {_NOTICED_MS} ms without an answer the link is still up")
    _at, _up, why, silent_ms = result["changes"][-1]
    # A board that a busy machine runs is held up in its sleep: that is not the client's fault.
    most_ms = _KEEPALIVE_MS + _ANSWER_MS + _LATE_MS + result["overslept_ms"]
    if why != "timeout":
        raise CheckFailed(f"expected the link to end by a timeout, it ended by {why!r}")
    if not _ANSWER_MS <= silent_ms <= most_ms:
        raise CheckFailed(
            f"the silence was noticed after {silent_ms} ms, expected {_ANSWER_MS} to {most_ms} ms"
        )
    return [Samples(NOTICED, [float(silent_ms)])]


def ping_idle(board: BoardSession) -> list[Samples]:
    """An idle link pings, and not more often than once per keepalive."""
    with board.disturbed() as route:
        board.connect(None, keepalive_ms=_KEEPALIVE_MS)
        first = route.traces()[-1]
        board.call("ping", count=_ENCRYPTED, timeout_ms=_PING_MS)
        before = route.traces()[-1]
        result = board.call("live", ms=_IDLE_MS, deadline_s=_CALL_S)
        after = route.traces()[-1]
        board.hang_up()
    if not result["up"] or after.number != before.number:
        raise CheckFailed(f"an idle link did not stay up: {result['changes']}")
    size: float = ping_bytes(board)
    if board.by_tls:  # each is longer then, by what the cipher adds
        size = (before.from_client_bytes - first.from_client_bytes) / _ENCRYPTED
    pings = (after.from_client_bytes - before.from_client_bytes) / size
    most = result["ms"] / _KEEPALIVE_MS + 1
    if not 1 <= pings <= most:
        raise CheckFailed(
            f"expected 1 to {most:.0f} pings in {result['ms']} ms of an idle link, got {pings:g}"
        )
    return [Samples(INTERVAL, [result["ms"] / pings])]


def ping_bytes(board: BoardSession) -> int:
    """Return the length of one ping: FMQP's is a publication to a topic of the client's own."""
    return 6 + len(f"ping/-/-/-/-/-/-/{board.client_id}") + 1 if board.is_fmqp else 5


CHECKS = (
    Check("ping", ping, measures=(RTT,), deadline_s=90.0, alone=True),
    Check("ping_lost", ping_lost, needs=_PROXY, measures=(NOTICED,), deadline_s=90.0),
    Check("ping_idle", ping_idle, needs=_PROXY, measures=(INTERVAL,), deadline_s=90.0),
)
