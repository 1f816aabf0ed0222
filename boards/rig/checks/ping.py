"""Round trips by the board's own clock."""

from boards.rig.bench import Bench, CheckFailed
from boards.rig.checks.declared import Check, Measurement, Samples
from boards.rig.limits import RTT_P99

_PINGS = 50
_PING_MS = 5_000
_PING_ALL_S = 60.0

RTT = Measurement("rtt", "us", "lower", RTT_P99)


def ping(bench: Bench) -> list[Samples]:
    """50 round trips by the board's own clock, none lost."""
    with bench.session():
        result = bench.call("ping", count=_PINGS, timeout_ms=_PING_MS, deadline_s=_PING_ALL_S)
    times = [float(value) for value in result["rtt_us"]]
    if result["lost"] or len(times) != _PINGS:
        raise CheckFailed(f"expected {_PINGS} round trips, got {len(times)}, lost {result['lost']}")
    return [Samples(RTT, times)]


CHECKS = (Check("ping", ping, measures=(RTT,), deadline_s=90.0, alone=True),)
