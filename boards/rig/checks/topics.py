"""Topics of FMQP as a board uses them: UTF-8, wildcards, retained messages, unsubscribing."""

import zlib

from boards.rig.bench import Bench, CheckFailed
from boards.rig.checks.declared import Check, Samples
from boards.rig.checks.pubsub import expect_digests, expect_payloads
from boards.rig.observer import connect_fmqp
from boards.rig.payloads import patterned
from host_broker.client import FmqpClient

_ARRIVAL_S = 15.0
_RECEIVE_MS = 15_000
_QUIET_S = 0.3


def topics_utf8(bench: Bench) -> list[Samples]:
    """Topics outside of ASCII arrive both ways as they were written."""
    topic = bench.topic("Prüfstand/温度/🌡")
    payload = "größer als 20 °C".encode()
    with bench.observe(topic) as observer, bench.session(), connect_fmqp(bench.broker) as host:
        bench.call("send_sizes", topic=topic, sizes=[20, 21])
        if not observer.wait_for(lambda seen: len(seen) >= 2, _ARRIVAL_S):
            raise CheckFailed(f"expected 2 messages on {topic}, got {len(observer.seen())}")
        if wrong := [seen.topic for seen in observer.seen() if seen.topic != topic]:
            raise CheckFailed(f"expected topic {topic}, got {wrong[0]}")
        result = bench.call(
            "take",
            topic=topic,
            timeout_ms=_RECEIVE_MS,
            on_ready=lambda: host.publish(topic, payload),
        )
    expect_digests(topic, [payload], result["messages"])
    return []


def topics_wildcards(bench: Bench) -> list[Samples]:
    """A level * matches any one level, in subscriptions and in publications, and no other depth."""
    stem = bench.topic("wild")
    # What the board is sent, and under which topic it must hear it; None: not at all.
    published = [
        (f"{stem}/a/t", f"{stem}/a/t"),
        (f"{stem}/a/u", None),
        (f"{stem}/a/b/t", None),
        (f"{stem}/t", None),
        (f"//{stem}/b/t/", f"{stem}/b/t"),
        (f"{stem}/*/t", f"{stem}/*/t"),
        (f"{stem}/x*/t", f"{stem}/x*/t"),
        (f"{stem}/*/u", None),
        (f"{stem}/end/t", f"{stem}/end/t"),
    ]
    with bench.session(), connect_fmqp(bench.broker) as host:

        def publish() -> None:
            for seed, (topic, _) in enumerate(published):
                host.publish(topic, patterned(8, seed))

        wanted = [
            [heard, 8, zlib.crc32(patterned(8, seed))]
            for seed, (_, heard) in enumerate(published)
            if heard is not None
        ]
        result = bench.call(
            "take",
            topic=f"{stem}/*/t",
            count=len(wanted),
            timeout_ms=_RECEIVE_MS,
            quiet_ms=200,
            on_ready=publish,
        )
        if result["messages"] != wanted:
            heard = [topic for topic, _, _ in result["messages"]]
            raise CheckFailed(
                f"subscribed to {stem}/*/t: expected {[topic for topic, _, _ in wanted]}, "
                f"heard {heard}"
            )
        with bench.observe(f"{stem}/one/up") as one, bench.observe(f"{stem}/one/more/up") as deep:
            bench.call("send_sizes", topic=f"{stem}/*/up", sizes=[8])
            one.wait_for(lambda seen: len(seen) >= 1, _ARRIVAL_S)
            deep.wait_for(lambda seen: len(seen) >= 1, _QUIET_S)
            counts = len(one.seen()), len(deep.seen())
    if counts != (1, 0):
        raise CheckFailed(
            f"published to {stem}/*/up: expected 1 message at {stem}/one/up and none a level "
            f"deeper, got {counts[0]} and {counts[1]}"
        )
    return []


def topics_cache(bench: Bench) -> list[Samples]:
    """Retained messages: the board sets, replaces, clears them; gets one when it subscribes."""
    topic = bench.topic("cache")
    with bench.session(), connect_fmqp(bench.broker) as host:
        try:
            for seed, size in ((1, 30), (2, 31), (3, 0)):
                bench.call("send_sizes", topic=topic, sizes=[size], seed=seed, cache=True)
                # An uncached one leaves what is retained alone (FMQP R23).
                bench.call("send_sizes", topic=topic, sizes=[5], seed=9)
                expect_payloads([patterned(size, seed)] if size else [], _retained(bench, topic))
            host.publish(topic, patterned(40, 4), cache=True)
            host.sync()
            result = bench.call("take", topic=topic, timeout_ms=_RECEIVE_MS, quiet_ms=200)
        finally:
            host.publish(topic, b"", cache=True)
    expect_digests(topic, [patterned(40, 4)], result["messages"])
    return []


def _retained(bench: Bench, topic: str) -> list[bytes]:
    with connect_fmqp(bench.broker) as late:
        late.subscribe(topic)
        late.sync()  # what is retained came before the answer to this
        return _received(late)


def _received(client: FmqpClient) -> list[bytes]:
    payloads = []
    while (message := client.receive(0.0)) is not None:
        payloads.append(message.payload)
    return payloads


def topics_unsubscribe(bench: Bench) -> list[Samples]:
    """After unsubscribing nothing comes any more, and other subscriptions still work."""
    topic, other = bench.topic("unsubscribe"), bench.topic("unsubscribe/other")
    with bench.session(), connect_fmqp(bench.broker) as host:

        def publish() -> None:
            for seed in range(5):
                host.publish(topic, patterned(10, seed))
            # The broker works in order: when this is there, so would the others be.
            host.publish(other, patterned(11, 0))

        bench.call("subscribe", topic=other)
        result = bench.call("take", topic=topic, count=6, timeout_ms=_RECEIVE_MS, on_ready=publish)
        if result["count"] != 6:
            raise CheckFailed(f"subscribed: expected 6 messages, heard {result['count']}")
        bench.call("unsubscribe", topic=topic)
        result = bench.call("take", count=1, timeout_ms=_RECEIVE_MS, quiet_ms=200, on_ready=publish)
    expect_digests(other, [patterned(11, 0)], result["messages"])
    # The client gives nobody what nobody subscribed to, so the broker could go on unnoticed.
    if result["discarded"]:
        raise CheckFailed(f"{result['discarded']} messages came after unsubscribing")
    return []


def topics_loopback(bench: Bench) -> list[Samples]:
    """A board that subscribes to its own topic hears its own messages, each once."""
    topic = bench.topic("loopback")
    sizes = [1, 100, 500]
    with bench.session():
        bench.call("subscribe", topic=topic)
        result = bench.call("send_sizes", topic=topic, sizes=sizes)
    wanted = [patterned(size, seed) for seed, size in enumerate(sizes)]
    expect_digests(topic, wanted, result["messages"])
    return []


CHECKS = (
    Check("topics_utf8", topics_utf8, ("fmqp",)),
    Check("topics_wildcards", topics_wildcards, ("fmqp",)),
    Check("topics_cache", topics_cache, ("fmqp",)),
    Check("topics_unsubscribe", topics_unsubscribe, ("fmqp",)),
    Check("topics_loopback", topics_loopback, ("fmqp",)),
)
