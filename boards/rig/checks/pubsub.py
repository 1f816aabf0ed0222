"""Publish and subscribe: what is sent arrives, once, in order, unchanged."""

from boards.rig.bench import Bench, expect_texts
from boards.rig.checks.declared import Check, Samples
from boards.rig.observer import Seen, connect_fmqp

_MESSAGES = 20
_ARRIVAL_S = 15.0
_RECEIVE_MS = 20_000
_QUIET_S = 0.3  # how long nothing more must come


def pubsub_up(bench: Bench) -> list[Samples]:
    """Board to host: 20 numbered messages arrive exactly, in order."""
    topic = bench.topic("pubsub_up")
    with bench.observe(bench.seen_at(topic)) as observer:
        with bench.session():
            bench.call("publish", topic=topic, payload="#n up", count=_MESSAGES)
        observer.wait_for(lambda seen: len(seen) >= _MESSAGES, _ARRIVAL_S)
        observer.wait_for(lambda seen: len(seen) > _MESSAGES, _QUIET_S)
        expect_texts([f"#{number} up" for number in range(_MESSAGES)], observer.seen())
    return []


def pubsub_down(bench: Bench) -> list[Samples]:
    """Host to board: 20 numbered messages arrive exactly, in order."""
    topic = bench.topic("pubsub_down")
    sent_to = bench.sent_to(topic)
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


CHECKS = (
    Check("pubsub_up", pubsub_up),
    Check("pubsub_down", pubsub_down, deadline_s=75.0),
)
