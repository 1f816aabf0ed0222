"""What the broker benchmark sends and expects, and what it prints: the parts without a broker."""

import math
import socket
import statistics
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.broker import report
from benchmarks.broker.generator import Load, Publisher
from benchmarks.broker.metering import Measured
from benchmarks.broker.mixture import MAX_LEVELS, SPREAD, Mixture
from benchmarks.broker.peers import BY_NAME, MOTEMQ, NATS, RELAY
from benchmarks.broker.rounds import Result, in_turn
from benchmarks.broker.wires import FMQP, LIGHTMQ, MQTT, Wire
from benchmarks.broker.wires import NATS as NATS_WIRE
from benchmarks.broker.workloads import (
    NUMBERED,
    WORKLOADS,
    Goal,
    Matching,
    Traffic,
    Workload,
    numbered,
)


def test_a_seed_draws_the_same_and_another_seed_does_not() -> None:
    def drawn(seed: int, salt: str) -> object:
        mixture = Mixture(seed, salt)
        topics = mixture.topics(20)
        return topics, mixture.publications(topics, 50, 64)

    assert drawn(1, "a") == drawn(1, "a")
    assert drawn(1, "a") != drawn(2, "a")
    assert drawn(1, "a") != drawn(1, "b")


@given(st.integers(), st.sampled_from(["", "fleet"]))
def test_topics_are_legal_different_and_of_all_depths(seed: int, first_level: str) -> None:
    topics = Mixture(seed, "topics").topics(300, first_level)
    assert len(set(topics)) == 300
    depths = {len(topic.split("/")) for topic in topics}
    assert depths == set(range(2 if first_level else 1, MAX_LEVELS + 1))
    assert len({len(topic) for topic in topics}) > 20
    for topic in topics:
        levels = topic.split("/")
        assert all(levels)
        assert len(topic) <= 255
        assert not set(topic) & set("*+#$>. \0\r\n")
        assert not first_level or levels[0] == first_level


@pytest.mark.parametrize("median_bytes", [64, 1024])
@pytest.mark.parametrize("seed", [0, 15, 99])
def test_payload_lengths_are_log_normal(median_bytes: int, seed: int) -> None:
    mixture = Mixture(seed, "payloads")
    publications = mixture.publications(("a", "b"), 5_000, median_bytes)
    logs = [math.log(len(body)) for _, body in publications]
    assert math.exp(statistics.median(logs)) == pytest.approx(median_bytes, rel=0.07)
    assert statistics.stdev(logs) == pytest.approx(SPREAD, rel=0.05)
    # Symmetric in its logarithm: as much below as above.
    low, middle, high = statistics.quantiles(logs, n=4)
    assert high - middle == pytest.approx(middle - low, rel=0.15)
    assert {topic for topic, _ in publications} == {"a", "b"}


def test_a_pattern_is_found_by_name_and_by_wildcard() -> None:
    matching = Matching(("a/b", "a/*/c", "*"))
    found = [matching.number(topic) for topic in ("a/b", "a/x/c", "z", "a/c", "a/x/d", "a/x/c/d")]
    assert found == [0, 1, 2, None, None, None]


def test_a_number_is_the_end_of_a_payload_and_nowhere_else() -> None:
    body = numbered(7, b"#0001; and #0002; and more")
    assert len(body) == 26
    assert NUMBERED.findall(body) == [b"0007"]
    assert body.endswith(b"#0007;")


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_a_workload_is_one_that_can_be_counted(workload: Workload) -> None:
    """Each publication has as many receivers as the first; goals are about who is measured."""
    traffic = workload.traffic(3)
    matchings = [Matching(patterns) for patterns in traffic.subscribers]
    topics = {topic for publications in traffic.publishers for topic, _ in publications}
    for topic in topics:
        got = sum(matching.number(topic) is not None for matching in matchings)
        assert got == traffic.fan_out
    assert traffic.fan_out > 0
    for patterns in traffic.subscribers:
        for topic in topics:
            assert sum(Matching((p,)).number(topic) is not None for p in patterns if "*" in p) <= 1
    for goal in workload.goals:
        assert {goal.ours, goal.theirs} <= {*workload.brokers, 100_000}
    columns = [BY_NAME[name].column for name in workload.brokers]
    assert len(set(columns)) == len(columns)


def test_no_two_rows_have_the_same_name_or_title() -> None:
    assert len({workload.name for workload in WORKLOADS}) == len(WORKLOADS)
    assert len({workload.title for workload in WORKLOADS}) == len(WORKLOADS)


_PUBLICATIONS = st.lists(
    st.tuples(st.sampled_from(["a", "b/c", "b/dd", "e"]), st.binary(min_size=1, max_size=300)),
    min_size=1,
    max_size=6,
)
_TRAFFIC = st.builds(
    Traffic,
    st.lists(_PUBLICATIONS.map(tuple), min_size=1, max_size=3).map(tuple),
    st.just((("a", "b/*"), ("e",), ("a", "b/*"))),
)


def _expected(traffic: Traffic, wire: Wire, subscriber: int, publisher: int, count: int) -> bytes:
    matching = Matching(traffic.subscribers[subscriber])
    said = b""
    for topic, body in islice(cycle(traffic.publishers[publisher]), count):
        number = matching.number(topic)
        if number is not None:
            said += wire.delivery(topic, body, number)
    return said


@given(_TRAFFIC, st.sampled_from([FMQP, MQTT, NATS_WIRE]), st.data())
def test_the_bytes_due_are_those_of_all_deliveries(
    traffic: Traffic, wire: Wire, data: st.DataObject
) -> None:
    load = Load(wire, wire, traffic)
    publishers = len(traffic.publishers)
    count = st.integers(0, 20)
    sent = data.draw(st.lists(count, min_size=publishers, max_size=publishers))
    for subscriber in range(len(traffic.subscribers)):
        said = [_expected(traffic, wire, subscriber, p, n) for p, n in enumerate(sent)]
        assert load.bytes_due(subscriber, sent) == sum(map(len, said))
        assert load.difference(subscriber, sent, b"".join(said)) == ""
    assert load.answers_due(sent) == []


def test_a_lightmq_publisher_is_answered() -> None:
    load = Load(
        LIGHTMQ, FMQP, Traffic(((("lightmq/source/up", b"x"),),), (("lightmq/source/up",),))
    )
    assert load.answers_due([3]) == [15]
    assert load.blocks[0].data == b"\x05\x00\x04\x00\x00\x00x"


_TWO = Traffic(((("a", b"1"), ("a", b"2")), (("b", b"33"),)), (("a", "b"),))
_A1, _A2, _B = (FMQP.delivery(*each, 0) for each in (("a", b"1"), ("a", b"2"), ("b", b"33")))


@pytest.mark.parametrize(
    ("heard", "different"),
    [
        (_A1 + _A2 + _B, ""),
        (_B + _A1 + _A2, ""),
        (_A1 + _B + _A2, ""),
        (_A2 + _A1 + _B, "after 0 bytes"),
        (_A1 + _A2, "after 16 bytes"),
        (_A1 + _A2 + _B + _B, "too much"),
        (_A1 + _A2[:-1] + b"9" + _B, "after 8 bytes"),
    ],
)
def test_deliveries_are_compared_in_the_order_of_each_publisher(
    heard: bytes, different: str
) -> None:
    found = Load(FMQP, FMQP, _TWO).difference(0, [2, 1], heard)
    assert found.startswith(different)
    assert bool(found) == bool(different)


def test_the_id_that_a_broker_chooses_may_be_any() -> None:
    load = Load(
        FMQP, LIGHTMQ, Traffic(((("lightmq/sink/down", b"x"),),), (("lightmq/sink/down",),))
    )
    assert load.difference(0, [1], b"\x05\x00\x04\xab\xcd\x00x") == ""
    assert load.difference(0, [1], b"\x05\x00\x04\xab\xcd\x01x") != ""


@given(_PUBLICATIONS, st.integers(1, 400), st.integers(0, 30))
def test_a_publisher_ends_with_a_whole_publication(
    publications: list[tuple[str, bytes]], write_bytes: int, writes: int
) -> None:
    load = Load(FMQP, FMQP, Traffic((tuple(publications),), (("a", "b/*", "e"),)))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        publisher = Publisher(ours, load.blocks[0], write_bytes)
        for _ in range(writes):
            assert publisher.send(more=True)
        while publisher.send(more=False):
            pass
        ours.shutdown(socket.SHUT_WR)
        heard = b"".join(iter(lambda: theirs.recv(65536), b""))
    spelled = [FMQP.publication(topic, body, 0) for topic, body in publications]
    assert heard == b"".join(islice(cycle(spelled), publisher.sent))
    assert load.difference(0, [publisher.sent], heard) == ""


def test_everybody_is_measured_at_every_place_and_after_others() -> None:
    turns = [in_turn("abcd", number) for number in range(8)]
    for place in range(4):
        assert {turn[place] for turn in turns} == set("abcd")
    followed = {pair for turn in turns for pair in pairwise(turn)}
    assert ("a", "b") in followed
    assert ("b", "a") in followed


def _measured(rates: list[float]) -> list[Measured]:
    return [Measured(rate, 1e6 / rate, 1.0, 0.5, 0.0, 0.0) for rate in rates]


def _result(goals: tuple[Goal, ...], **measured: list[float]) -> Result:
    names = {"motemq": MOTEMQ.name, "relay": RELAY.name, "nats": NATS.name}
    workload = Workload("row", "a row", "burst", lambda _: _TWO, tuple(names.values()), goals)
    found = {names[name]: _measured(rates) for name, rates in measured.items()}
    return Result(workload, 2, found)


def test_a_ratio_is_taken_round_by_round() -> None:
    """Of the medians it would be 3; in each round it was 4, 2 and 10."""
    goal = Goal("motemq", "nats-server", 4)
    result = _result((goal,), motemq=[8e6, 2e6, 3e6], nats=[2e6, 1e6, 3e5])
    assert result.ratios(goal) == [4.0, 2.0, 10.0]
    assert report.verdict(result, goal) == "4.00 (2.00–10.00) | 4 | yes"  # noqa: RUF001
    more = Goal("motemq", "nats-server", 4.1)
    assert report.verdict(result, more).endswith("| 4.1 | **no**")


def test_a_rate_can_be_the_goal_and_a_ratio_can_have_none() -> None:
    result = _result((), motemq=[2e5, 3e5, 1e5], relay=[1e6, 1e6, 1e6])
    assert report.verdict(result, Goal("motemq", 100_000, 1)) == "2.00 (1.00–3.00) | 1 | yes"  # noqa: RUF001
    assert report.verdict(result, Goal("motemq", "byte relay", None)).endswith("|  | ")


def _tables() -> Iterator[list[str]]:
    goals = (Goal("motemq", "nats-server", 3), Goal("motemq", "byte relay", 0.5))
    results = [
        _result(goals, motemq=[4e6, 2e6, 3e6], relay=[5e6, 5e6, 5e6]),
        _result((Goal("motemq", 100_000, 1),), motemq=[1e6]),
    ]
    (once,) = results[1].measured[MOTEMQ.name]
    results[1].measured[MOTEMQ.name] = [replace(once, stolen_share=0.5)]
    yield from (table.splitlines() for table in report.tables(results).split("\n\n"))


def test_who_was_not_measured_has_an_empty_cell_and_no_verdict() -> None:
    head, rates, costs, ratios = _tables()
    assert head[1] == "1 of 7 measurements were disturbed."
    assert rates[0] == "| deliveries, M/s | motemq | byte relay | nats-server | disturbed |"
    assert rates[2:] == [
        "| a row | 3.000 | 5.000 |  | 0 of 6 |",
        "| a row | 1.000 |  |  | 1 of 1 |",
    ]
    assert costs[2] == "| a row | 0.3333 | 0.2000 |  | 0 of 6 |"
    assert ratios[2:] == [
        "| a row | motemq / nats-server | not measured | 3 |  |",
        "|  | motemq / byte relay | 0.60 (0.40–0.80) | 0.5 | yes |",  # noqa: RUF001
        "| a row | motemq / 100,000/s | 10.00 (10.00–10.00) | 1 | yes |",  # noqa: RUF001
    ]
