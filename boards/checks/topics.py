"""Topics of FMQP as a board uses them: UTF-8, wildcards, retained messages, unsubscribing."""

import zlib

from boards.checks.declared import Check
from boards.checks.payloads import patterned
from boards.checks.pubsub import expect_digests, expect_payloads
from boards.session.board_session import BoardSession, CheckFailed
from boards.session.observer import connect_fmqp
from host_broker.client import Client

_ARRIVAL_S = 15.0
_RECEIVE_MS = 15_000
_QUIET_S = 0.3


def topics_utf8(board: BoardSession) -> None:
    """Topics outside of ASCII arrive both ways as they were written."""
    topic = board.topic("Prüfstand/温度/🌡")
    payload = "größer als 20 °C".encode()
    with board.observe(topic) as observer, board.session(), connect_fmqp(board.broker) as host:
        board.call("send_sizes", topic=topic, sizes=[20, 21])
        if not observer.wait_for(lambda seen: len(seen) >= 2, _ARRIVAL_S):
            raise CheckFailed(f"expected 2 messages on {topic}, got {len(observer.seen())}")
        if wrong := [seen.topic for seen in observer.seen() if seen.topic != topic]:
            raise CheckFailed(f"expected topic {topic}, got {wrong[0]}")
        result = board.call(
            "take",
            topic=topic,
            timeout_ms=_RECEIVE_MS,
            on_ready=lambda: host.publish(topic, payload),
        )
    expect_digests(topic, [payload], result["messages"])


def topics_wildcards(board: BoardSession) -> None:
    """A level * matches any one level, in subscriptions and in publications, and no other depth."""
    stem = board.topic("wild")
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
    with board.session(), connect_fmqp(board.broker) as host:

        def publish() -> None:
            for seed, (topic, _) in enumerate(published):
                host.publish(topic, patterned(8, seed))

        wanted = [
            [heard, 8, zlib.crc32(patterned(8, seed))]
            for seed, (_, heard) in enumerate(published)
            if heard is not None
        ]
        result = board.call(
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
        with board.observe(f"{stem}/one/up") as one, board.observe(f"{stem}/one/more/up") as deep:
            board.call("send_sizes", topic=f"{stem}/*/up", sizes=[8])
            one.wait_for(lambda seen: len(seen) >= 1, _ARRIVAL_S)
            deep.wait_for(lambda seen: len(seen) >= 1, _QUIET_S)
            counts = len(one.seen()), len(deep.seen())
    if counts != (1, 0):
        raise CheckFailed(
            f"published to {stem}/*/up: expected 1 message at {stem}/one/up and none a level "
            f"deeper, got {counts[0]} and {counts[1]}"
        )


def topics_cache(board: BoardSession) -> None:
    """Retained messages: the board sets, replaces, clears them; gets one when it subscribes."""
    topic = board.topic("cache")
    with board.session(), connect_fmqp(board.broker) as host:
        try:
            for seed, size in ((1, 30), (2, 31), (3, 0)):
                board.call("send_sizes", topic=topic, sizes=[size], seed=seed, retain=True)
                # An uncached one leaves what is retained alone (FMQP R23).
                board.call("send_sizes", topic=topic, sizes=[5], seed=9)
                expect_payloads([patterned(size, seed)] if size else [], _retained(board, topic))
            host.publish(topic, patterned(40, 4), retain=True)
            host.sync()
            result = board.call("take", topic=topic, timeout_ms=_RECEIVE_MS, quiet_ms=200)
        finally:
            host.publish(topic, b"", retain=True)
    expect_digests(topic, [patterned(40, 4)], result["messages"])


def _retained(board: BoardSession, topic: str) -> list[bytes]:
    with connect_fmqp(board.broker) as late:
        late.subscribe(topic)
        late.sync()  # what is retained came before the answer to this
        return _received(late)


def _received(client: Client) -> list[bytes]:
    payloads = []
    while (message := client.receive(0.0)) is not None:
        payloads.append(message.payload)
    return payloads


def topics_unsubscribe(board: BoardSession) -> None:
    """After unsubscribing nothing comes any more, and other subscriptions still work."""
    topic, other = board.topic("unsubscribe"), board.topic("unsubscribe/other")
    with board.session(), connect_fmqp(board.broker) as host:

        def publish() -> None:
            for seed in range(5):
                host.publish(topic, patterned(10, seed))
            # The broker works in order: when this is there, so would the others be.
            host.publish(other, patterned(11, 0))

        board.call("subscribe", topic=other)
        result = board.call("take", topic=topic, count=6, timeout_ms=_RECEIVE_MS, on_ready=publish)
        if result["count"] != 6:
            raise CheckFailed(f"subscribed: expected 6 messages, heard {result['count']}")
        board.call("unsubscribe", topic=topic)
        result = board.call("take", count=1, timeout_ms=_RECEIVE_MS, quiet_ms=200, on_ready=publish)
    expect_digests(other, [patterned(11, 0)], result["messages"])
    # The client gives nobody what nobody subscribed to, so the broker could go on unnoticed.
    if result["discarded"]:
        raise CheckFailed(f"{result['discarded']} messages came after unsubscribing")


def topics_loopback(board: BoardSession) -> None:
    """A board that subscribes to its own topic hears its own messages, each once."""
    topic = board.topic("loopback")
    sizes = [1, 100, 500]
    with board.session():
        board.call("subscribe", topic=topic)
        result = board.call("send_sizes", topic=topic, sizes=sizes)
    wanted = [patterned(size, seed) for seed, size in enumerate(sizes)]
    expect_digests(topic, wanted, result["messages"])


CHECKS = (
    Check("topics_utf8", topics_utf8, ("fmqp",)),
    Check("topics_wildcards", topics_wildcards, ("fmqp",)),
    Check("topics_cache", topics_cache, ("fmqp",)),
    Check("topics_unsubscribe", topics_unsubscribe, ("fmqp",)),
    Check("topics_loopback", topics_loopback, ("fmqp",)),
)
