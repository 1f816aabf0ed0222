"""Counting for ``motemq top``, and the waits between tries: without clocks and brokers."""

from host_broker.cli.traffic import PREVIEW_BYTES, Order, Traffic
from host_broker.client import Message
from host_broker.client.backoff import Backoff


def _said(topic: str, payload: bytes = b"x", *, kept: bool = False) -> Message:
    return Message(topic, payload, received_ns=0, kept=kept)


def test_rates_are_of_the_interval_and_totals_of_all_time() -> None:
    traffic = Traffic()
    for _ in range(6):
        traffic.heard(_said("a", b"12345"))
    traffic.heard(_said("b"))
    traffic.next_interval(2.0)
    first = traffic.report(rows=10)
    assert (first.messages_per_second, first.bytes_per_second) == (3.5, 15.5)
    assert [(row.topic, row.messages_per_second) for row in first.rows] == [("a", 3.0), ("b", 0.5)]
    traffic.heard(_said("b"))
    assert traffic.report(rows=10).messages_per_second == 3.5  # the interval is not over
    traffic.next_interval(1.0)
    second = traffic.report(rows=10)
    seen = [(row.topic, row.messages_per_second, row.messages) for row in second.rows]
    assert seen == [("b", 1.0, 2), ("a", 0.0, 6)]


def test_topics_come_in_the_order_asked_for() -> None:
    traffic = Traffic()
    for topic, payload, count in (("a", b"x", 1), ("b", b"xx", 3), ("c", b"x" * 50, 2)):
        for _ in range(count):
            traffic.heard(_said(topic, payload))
    traffic.next_interval(1.0)
    for _ in range(5):
        traffic.heard(_said("a"))
    traffic.next_interval(1.0)
    for _ in range(9):
        traffic.heard(_said("b"))  # the interval is not over: of no influence but on "messages"

    def topics(order: Order, rows: int = 9) -> str:
        return "".join(row.topic for row in traffic.report(rows, order).rows)

    assert topics("rate") == topics("bytes") == "abc"
    assert topics("messages") == "bac"
    assert topics("topic") == "abc"
    traffic.next_interval(1.0)
    assert topics("rate") == "bac"
    traffic.heard(_said("c", b"x" * 50))
    traffic.heard(_said("a"))
    traffic.heard(_said("a"))
    traffic.next_interval(1.0)
    assert (topics("rate"), topics("bytes"), topics("bytes", 1)) == ("acb", "cab", "c")


def test_memory_is_bounded_and_the_silent_are_forgotten_first() -> None:
    traffic = Traffic(most_topics=3)
    for topic in ("a", "b", "c", "a", "d", "e"):
        traffic.heard(_said(topic))
    traffic.next_interval(1.0)
    report = traffic.report(rows=2)
    assert report.messages_per_second == 6
    assert (report.topics, report.forgotten) == (3, 2)
    assert [row.topic for row in report.rows] == ["a", "d"]


def test_a_long_payload_is_not_kept_whole() -> None:
    traffic = Traffic()
    traffic.heard(_said("a", b"y" * 1000))
    (row,) = traffic.report(rows=1).rows
    assert (row.preview, row.last_bytes) == (b"y" * PREVIEW_BYTES, 1000)


def test_the_brokers_numbers_are_no_topics() -> None:
    traffic = Traffic()
    assert traffic.report(rows=1).clients is None
    traffic.heard(_said("$/info/clients", (7).to_bytes(8, "big"), kept=True))
    traffic.heard(_said("$/info/messages/second", (9).to_bytes(8, "big")))
    traffic.heard(_said("$/info/clients", b"broken"))
    report = traffic.report(rows=1)
    assert (report.clients, report.broker_messages_per_second) == (7, 9)
    assert (report.topics, report.messages_per_second) == (0, 0)


def test_waits_double_up_to_a_limit_and_a_random_half_is_taken_off() -> None:
    longest = Backoff(chance=lambda: 1.0)
    assert [longest.next_s() for _ in range(8)] == [0.25, 0.5, 1, 2, 4, 8, 10, 10]
    longest.well()
    assert longest.next_s() == 0.25
    shortest = Backoff(chance=lambda: 0.0)
    assert [shortest.next_s() for _ in range(3)] == [0.125, 0.25, 0.5]
