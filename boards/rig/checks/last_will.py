"""Last wills: published exactly once, with the right content, when a connection ends."""

from collections.abc import Callable

from boards.rig.bench import Bench, CheckFailed
from boards.rig.checks.declared import Check, Measurement, Samples
from boards.rig.observer import Seen

_ARRIVAL_S = 15.0
_PING_MS = 5_000
_QUIET_S = 0.3  # how long nothing more (or nothing yet) must come
_WILL = "gone"

DELAY = Measurement("will_delay", "ms", "lower")


def will_clean(bench: Bench) -> list[Samples]:
    """A clean close: FMQP's last will arrives exactly once; LightMQ's presence turns offline."""
    return _last_will(bench, "will_clean", bench.hang_up)


def will_abrupt(bench: Bench) -> list[Samples]:
    """An abrupt death, with the connection proven alive just before it."""
    try:
        return _last_will(bench, "will_abrupt", bench.kill)
    finally:
        bench.recover()


def _last_will(bench: Bench, check: str, end: Callable[[], int]) -> list[Samples]:
    will = (bench.topic(check), _WILL) if bench.is_fmqp else None
    topic, expected = will or (f"lightmq/{bench.client_id}/status", "offline")
    with bench.observe(topic) as observer:
        bench.connect(will)
        bench.call("ping", count=1, timeout_ms=_PING_MS)
        # The retained "offline" of an earlier check comes first.
        if will is None and not observer.wait_for(_is_online, _ARRIVAL_S):
            raise CheckFailed(f"expected presence 'online', got {_texts(observer.seen())}")
        before = len(observer.seen())
        if observer.wait_for(lambda seen: len(seen) > before, _QUIET_S) or (will and before):
            raise CheckFailed(f"{_texts(observer.seen())[-1]!r} arrived before the end")
        ended_ns = end()
        arrived = observer.wait_for(lambda seen: len(seen) > before, _ARRIVAL_S)
        observer.wait_for(lambda seen: len(seen) > before + 1, _QUIET_S)
        after = observer.seen()[before:]
    if not arrived:
        raise CheckFailed(f"expected {expected!r} on {topic}, nothing came in {_ARRIVAL_S:g} s")
    if _texts(after) != [expected]:
        raise CheckFailed(f"expected exactly one {expected!r} on {topic}, got {_texts(after)}")
    if after[0].at_ns < ended_ns:
        raise CheckFailed(f"{expected!r} arrived before the end")
    return [Samples(DELAY, [(after[0].at_ns - ended_ns) / 1e6])]


def _is_online(seen: list[Seen]) -> bool:
    return _texts(seen)[-1:] == ["online"]


def _texts(seen: list[Seen]) -> list[str]:
    return [message.text for message in seen]


CHECKS = (
    Check("will_clean", will_clean, measures=(DELAY,)),
    Check("will_abrupt", will_abrupt, measures=(DELAY,), deadline_s=90.0),
)
