"""What every board must do: the checks of docs/rig-events.md, as one function each.

A check returns what it measured, or raises ``CheckFailed``; other exceptions mean that the rig
could not come to a verdict (except ``AgentError``: the code under test failed).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from boards.rig.bench import Bench, CheckFailed, expect_texts
from boards.rig.observer import Seen, connect_fmqp

_MESSAGES = 20
_PINGS = 50
_ARRIVAL_S = 15.0
_RECEIVE_MS = 20_000
_PING_MS = 5_000
_PING_ALL_S = 60.0
_QUIET_S = 0.3  # how long nothing more (or nothing yet) must come
_WILL = "gone"


@dataclass(frozen=True, slots=True)
class Samples:
    """Values of one metric, in the order in which they were measured."""

    metric: str
    unit: str
    values: list[float]


Check = Callable[[Bench], list[Samples]]


def pubsub_up(bench: Bench) -> list[Samples]:
    """Board to host: 20 numbered messages arrive exactly, in order."""
    topic = bench.topic("pubsub_up")
    seen_at = topic if bench.is_fmqp else f"lightmq/{bench.client_id}/up"
    with bench.observe(seen_at) as observer:
        with bench.session():
            bench.call("publish", topic=topic, payload="#n up", count=_MESSAGES)
        observer.wait_for(lambda seen: len(seen) >= _MESSAGES, _ARRIVAL_S)
        observer.wait_for(lambda seen: len(seen) > _MESSAGES, _QUIET_S)
        expect_texts([f"#{number} up" for number in range(_MESSAGES)], observer.seen())
    return []


def pubsub_down(bench: Bench) -> list[Samples]:
    """Host to board: 20 numbered messages arrive exactly, in order."""
    topic = bench.topic("pubsub_down")
    sent_to = topic if bench.is_fmqp else f"lightmq/{bench.client_id}/down"
    expected = [f"#{number} down" for number in range(_MESSAGES)]

    with bench.session(), connect_fmqp(bench.broker) as publisher:

        def publish() -> None:
            for text in expected:
                publisher.publish(sent_to, text.encode())

        result = bench.call(
            "receive",
            topic=topic,
            count=_MESSAGES,
            timeout_ms=_RECEIVE_MS,
            on_ready=publish,
            deadline_s=_RECEIVE_MS / 1000 + 30,
        )
    expect_texts(expected, [Seen(sent_to, text, 0) for text in result["payloads"]])
    return []


def ping(bench: Bench) -> list[Samples]:
    """50 round trips by the board's own clock, none lost."""
    with bench.session():
        result = bench.call("ping", count=_PINGS, timeout_ms=_PING_MS, deadline_s=_PING_ALL_S)
    times = [float(value) for value in result["rtt_us"]]
    if result["lost"] or len(times) != _PINGS:
        raise CheckFailed(f"expected {_PINGS} round trips, got {len(times)}, lost {result['lost']}")
    return [Samples("rtt", "us", times)]


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
    return [Samples("will_delay", "ms", [(after[0].at_ns - ended_ns) / 1e6])]


def _is_online(seen: list[Seen]) -> bool:
    return _texts(seen)[-1:] == ["online"]


def _texts(seen: list[Seen]) -> list[str]:
    return [message.text for message in seen]


CHECKS: Mapping[str, Check] = {
    "pubsub_up": pubsub_up,
    "pubsub_down": pubsub_down,
    "ping": ping,
    "will_clean": will_clean,
    "will_abrupt": will_abrupt,
}

# What these measure, other boards on the same air would disturb.
MEASURING = {"ping"}
