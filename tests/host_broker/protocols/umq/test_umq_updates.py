"""What waits for a client: nobody waits for it, the newest wins, what is lost is said."""

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.bus.delivery import Delivery
from host_broker.bus.publication import pack
from host_broker.protocols.umq.session import UmqSession
from host_broker.protocols.umq.updates import Topic, Updates
from host_broker.stats import Dropped
from host_broker.wire.budget import Budget
from tests.host_broker.desk import Desk
from tests.host_broker.protocols.umq.peer import UmqPeer, joined, spelled_id, umq_desk, updates


def _slow(desk: Desk, client: UmqPeer) -> None:
    """The client's socket takes nothing from now on."""
    desk.slow.add(client.connection)


def _fast(desk: Desk, client: UmqPeer) -> None:
    """It has taken everything."""
    desk.slow.discard(client.connection)
    desk.broker.proceed(client.connection, desk.now)
    desk.done()


def _texts(client: UmqPeer, topic: str = "A") -> list[Any]:
    return [each.get("text", each) for each in updates(client.heard(), topic)]


def test_what_a_turn_brings_is_one_message() -> None:
    desk = umq_desk()
    client, board = joined(desk), desk.open()
    client.result("subscribe", "a/**", "A")
    _slow(desk, client)
    for number in range(5):
        desk.pub(board, f"a/{number}", b"x")
    _fast(desk, client)
    (message,) = client.heard()
    assert len(updates([message])) == 5


def test_a_slow_client_makes_nobody_wait() -> None:
    """Whatever its listener's policy is: nothing is held, and nothing is sent until it drains."""
    for policy in ("pause", "drop-oldest", "drop-newest", "disconnect"):
        desk = umq_desk({"max_waiting_updates": 10})
        desk.slow_policy = policy  # type: ignore[assignment]
        client = joined(desk)
        desk.slow_policy = "pause"
        board = desk.open()
        client.result("subscribe", "a", "A")
        _slow(desk, client)
        for number in range(100):
            done = desk.pub(board, "a", b"%d" % number)
            assert not done.holds
            assert client.connection not in done.sends
        _fast(desk, client)
        assert _texts(client) == [{"dropped": 90}, *map(str, range(90, 100))]
        assert desk.broker.stats.dropped_of("umq").messages == 90
        desk.pub(board, "a", b"next")
        assert _texts(client) == ["next"]
        assert not client.is_closed


def test_the_loss_is_said_of_the_topic_that_has_it() -> None:
    """And counted for `GET /stats`, `motemq top` and the metrics."""
    desk = umq_desk({"max_waiting_updates": 2})
    client, board = joined(desk), desk.open()
    client.result("subscribe", "a", "A")
    client.result("subscribe", "b", "B")
    _slow(desk, client)
    for number in range(3):
        desk.pub(board, "a", b"%d" % number)
    desk.pub(board, "b", b"x")
    _fast(desk, client)
    heard = client.heard()
    assert updates(heard, "A")[0] == {"dropped": 2}
    assert [each.get("text") for each in updates(heard, "B")] == ["x"]
    assert list(desk.broker.stats.losses()) == [("umq", "slow", 2)]


def test_waiting_bytes_are_bounded_too() -> None:
    """umq.max_waiting_bytes: the newest is kept, however long."""
    desk = umq_desk({"max_waiting_bytes": 1000})
    client, board = joined(desk), desk.open()
    client.result("subscribe", "a", "A")
    _slow(desk, client)
    for size in (300, 300, 300, 5000):
        desk.pub(board, "a", b"x" * size)
    _fast(desk, client)
    lost, kept = updates(client.heard())
    assert (lost, len(kept["text"])) == ({"dropped": 3}, 5000)


def test_all_slow_clients_together_hold_no_more_than_may_be_held() -> None:
    """bus.max_held_bytes."""
    desk = umq_desk(bus={"max_held_bytes": 5000})
    board = desk.open()
    clients = [joined(desk) for _ in range(3)]
    for client in clients:
        client.result("subscribe", "a", "A")
        _slow(desk, client)
    for _ in range(20):
        desk.pub(board, "a", b"x" * 400)
    assert desk.broker.held_bytes <= 5000
    for client in clients:
        _fast(desk, client)
        assert updates(client.heard())
    assert desk.broker.held_bytes == 0
    assert not desk.closes


def test_what_waits_goes_with_its_topic_and_its_client() -> None:
    desk = umq_desk()
    client, board = joined(desk), desk.open()
    client.result("subscribe", "a", "A", {"every_ms": 1000})
    client.result("subscribe", "a", "B")
    _slow(desk, client)
    for number in range(3):
        desk.pub(board, "a", b"%d" % number)
    assert client.say("UA:", "UB:") == ["DA:", "DB:"]
    _fast(desk, client)
    assert client.heard() == []
    assert desk.broker.held_bytes == 0
    client.result("subscribe", "a", "A")
    _slow(desk, client)
    desk.pub(board, "a", b"1")
    assert desk.broker.held_bytes > 0
    desk.close(client.connection)
    assert desk.broker.held_bytes == 0


def test_long_retained_answers_come_as_they_are_taken_and_are_never_dropped() -> None:
    """Though far more is retained than may wait."""
    desk = umq_desk({"max_waiting_updates": 10, "max_waiting_bytes": 10_000})
    board = desk.open()
    for number in range(300):
        desk.pub(board, f"a/{number:03}", b"x" * 5000, cache=True)
    client = joined(desk)
    _slow(desk, client)
    client.result("subscribe", "a/**", "A")
    assert desk.sent.keys() <= {board}
    for number in range(20):
        desk.pub(board, "a/live", b"%d" % number)
    found: list[dict[str, Any]] = []
    for _ in range(200):
        desk.broker.proceed(client.connection, desk.now)
        desk.done()
        found += updates(client.heard())
    kept = [each["topic"] for each in found if each.get("retained")]
    assert sorted(kept) == [f"a/{number:03}" for number in range(300)]
    live = [each.get("text", each) for each in found if not each.get("retained")]
    assert live == [{"dropped": 10}, *map(str, range(10, 20))]


def test_no_more_of_a_long_retained_answer_waits_than_the_broker_gives_at_once() -> None:
    """What a client has not taken stays where it is retained."""
    desk = umq_desk()
    board = desk.open()
    for number in range(1000):
        desk.pub(board, f"a/{number:03}", b"x" * 5000, cache=True)
    client = joined(desk)
    _slow(desk, client)
    client.result("subscribe", "a/**", "A")
    session = desk.broker._clients[client.connection].session
    assert isinstance(session, UmqSession)
    found, most = 0, 0
    for _ in range(100):
        most = max(most, sum(each.size for each in session.updates._kept))
        desk.broker.proceed(client.connection, desk.now)
        desk.done()
        found += len(updates(client.heard()))
    assert found == 1000
    assert most < 300 * 1024


def test_many_subscriptions_have_no_more_wait_than_one() -> None:
    """Each of them is told less than the broker gives at once."""
    desk = umq_desk()
    board = desk.open()
    for number in range(20):
        desk.pub(board, f"a/{number:02}", b"x" * 10_000, cache=True)
    client = joined(desk)
    _slow(desk, client)
    client.say(*(f'C{number}:["subscribe", "a/**", "{number}"]' for number in range(1, 10)))
    session = desk.broker._clients[client.connection].session
    assert isinstance(session, UmqSession)
    heard: list[Any] = []
    most = 0
    for _ in range(30):
        most = max(most, sum(each.size for each in session.updates._kept))
        desk.broker.proceed(client.connection, desk.now)
        desk.done()
        heard += client.heard()
    assert [len(updates(heard, str(number))) for number in range(1, 10)] == [20] * 9
    assert most < 300 * 1024


# ---- every_ms ----


def test_of_each_topic_only_the_last() -> None:
    """every_ms: the first at once, then at most so often."""
    desk = umq_desk()
    client, board = joined(desk), desk.open()
    client.result("subscribe", "a/*", "A", {"every_ms": 250})
    desk.pub(board, "a/x", b"1")
    assert _texts(client) == ["1"]
    for number in range(2, 6):
        desk.pub(board, "a/x", b"%d" % number)
    assert client.heard() == []
    desk.advance(0.24)
    assert client.heard() == []
    desk.advance(0.02)
    (latest,) = updates(client.heard())
    assert (latest["topic"], latest["text"], latest["replaced"]) == ("a/x", "5", 3)
    desk.advance(10.0)
    assert client.heard() == []
    desk.pub(board, "a/x", b"6")
    (at_once,) = updates(client.heard())
    assert (at_once["text"], "replaced" in at_once) == ("6", False)


def test_a_topic_does_not_wait_for_the_time_of_another() -> None:
    """every_ms is of each topic; the client hears of all in parts of it."""
    desk = umq_desk()
    client, board = joined(desk), desk.open()
    client.result("subscribe", "a/*", "A", {"every_ms": 1000})
    desk.pub(board, "a/x", b"1")
    desk.pub(board, "a/y", b"2")
    desk.pub(board, "a/y", b"3")
    assert _texts(client) == ["1"]
    desk.advance(0.1)
    assert _texts(client) == ["3"]
    desk.pub(board, "a/x", b"4")
    desk.pub(board, "a/y", b"5")
    desk.advance(0.85)
    assert client.heard() == []
    desk.advance(0.1)
    assert _texts(client) == ["4"]
    desk.advance(0.1)
    assert _texts(client) == ["5"]


def _told(
    waiting: Updates, publish: Callable[[int], list[int]], steps: int
) -> tuple[dict[str, list[float]], list[int]]:
    """Publish topics by number in steps of 10 ms, and return when each was told and how many at
    once."""
    told: dict[str, list[float]] = defaultdict(list)
    at_once = []
    for step in range(steps):
        now = step / 100
        for number in publish(step):
            waiting.add(Delivery(pack(0, b"t/%d" % number, b"%d" % step), (0,)), now, 1)
        count = 0
        while waiting.due(now):
            for _, payload, _ in waiting.take(now):
                for each in updates([f"TA:{payload}"]):
                    told[each["topic"]].append(now)
                    count += 1
        at_once.append(count)
    return told, at_once


def test_many_topics_are_told_a_share_at_a_time_and_each_in_its_time() -> None:
    """every_ms: a burst of all would delay the others, who come behind it."""
    waiting = Updates(10_000, 1 << 30, Budget(1 << 30), Dropped())
    waiting.topics[0] = Topic(0, "all", 1.0)
    # Each topic ten times a second, all of them in the beginning of each 100 ms.
    told, at_once = _told(waiting, lambda step: [*range(1000)] if step % 10 == 0 else [], 600)
    assert len(told) == 1000
    assert max(at_once) <= 100
    for times in told.values():
        between = [later - before for before, later in pairwise(times)]
        assert times[0] < 1.1
        assert len(times) >= 4
        assert min(between) > 0.999
        assert max(between) < 1.25


def test_a_topic_that_is_published_all_the_time_gets_its_turn_and_no_more() -> None:
    waiting = Updates(10_000, 1 << 30, Budget(1 << 30), Dropped())
    waiting.topics[0] = Topic(0, "all", 1.0)
    told, _ = _told(waiting, lambda step: [0, *range(1, 500, 1 + step % 3)], 1000)
    times = told["t/0"]
    assert len(times) >= 8
    assert min(b - a for a, b in pairwise(times)) > 0.999


def test_of_how_many_topics_it_is_remembered_that_they_were_told() -> None:
    """umq.max_waiting_updates."""
    waiting = Updates(100, 1 << 30, Budget(1 << 30), Dropped())
    topic = waiting.topics[0] = Topic(0, "all", 1e9)
    told, _ = _told(waiting, lambda step: [3 * step, 3 * step + 1, 3 * step + 2], 500)
    assert len(told) > 1400
    assert len(topic.told) == 100


class _Unlooked(dict[int, Topic]):
    """Subscriptions, among which nobody may search."""

    def values(self) -> Any:
        raise AssertionError("somebody looks at all subscriptions")

    __iter__ = items = values


def test_a_publication_costs_no_look_at_every_subscription() -> None:
    """A client may have a thousand, each with a time of its own."""
    desk = umq_desk({"max_waiting_updates": 400, "ping_interval_s": 0})
    client, board = joined(desk), desk.open()
    for number in range(1, 500):
        options = {"every_ms": 10_000 - number}
        client.result("subscribe", f"a/{number}", spelled_id(number), options)
    session = desk.broker._clients[client.connection].session
    assert isinstance(session, UmqSession)
    session.updates.topics = _Unlooked(session.updates.topics)
    for number in range(1, 500):
        desk.pub(board, f"a/{number}", b"first")
    assert len(client.heard()) == 499
    for number in range(1, 500):  # the first 99 are dropped, as those that are due last
        desk.pub(board, f"a/{number}", b"%d" % number)
        desk.advance(0.001)
    assert client.heard() == []
    desk.advance(10.0)
    heard = [each for each in client.heard() if isinstance(each, str)]
    assert len(heard) == 400
    assert desk.broker.stats.dropped_of("umq").messages == 99
    desk.advance(100.0)
    assert client.heard() == []


def test_times_of_ended_subscriptions_are_forgotten() -> None:
    desk = umq_desk()
    client, board = joined(desk), desk.open()
    session = desk.broker._clients[client.connection].session
    assert isinstance(session, UmqSession)
    for _ in range(50):
        client.result("subscribe", "a", "A", {"every_ms": 10_000})
        desk.pub(board, "a", b"1")
        desk.pub(board, "a", b"2")
        client.say("UA:")
    assert session.updates._timed == []
    client.result("subscribe", "a", "A", {"every_ms": 1000})
    desk.pub(board, "a", b"1")
    desk.pub(board, "a", b"2")
    client.heard()
    desk.advance(1.1)
    assert _texts(client) == ["2"]


def test_a_slow_client_loses_nothing_but_the_replaced_with_every_ms() -> None:
    desk = umq_desk({"max_waiting_updates": 100})
    client, board = joined(desk), desk.open()
    client.result("subscribe", "a/*", "A", {"every_ms": 10})
    desk.pub(board, "a/0", b"first")
    client.heard()
    _slow(desk, client)
    for number in range(1000):
        desk.pub(board, f"a/{number % 50}", b"%d" % number)
        desk.advance(0.002)
    _fast(desk, client)
    desk.advance(0.02)
    found = {each["topic"]: each for each in updates(client.heard()) if "topic" in each}
    assert {topic: each["text"] for topic, each in found.items()} == {
        f"a/{number}": str(950 + number) for number in range(50)
    }
    assert desk.broker.stats.dropped_of("umq").messages == 0


def test_more_topics_than_may_wait_lose_the_oldest_with_every_ms() -> None:
    desk = umq_desk({"max_waiting_updates": 10})
    client, board = joined(desk), desk.open()
    client.result("subscribe", "a/**", "A", {"every_ms": 1000})
    desk.pub(board, "a/first", b"x")
    client.heard()
    for number in range(30):
        desk.pub(board, f"a/{number:02}", b"x")
    desk.advance(1.1)
    lost, *found = updates(client.heard())
    assert lost == {"dropped": 20}
    assert [each["topic"] for each in found] == [f"a/{number:02}" for number in range(20, 30)]


def test_kept_messages_do_not_wait_for_their_time() -> None:
    desk = umq_desk()
    client, board = joined(desk), desk.open()
    desk.pub(board, "a/x", b"kept", cache=True)
    client.result("subscribe", "a/*", "A", {"every_ms": 10_000})
    assert [each["text"] for each in updates(client.others)] == ["kept"]


def test_bodies_may_always_be_attachments() -> None:
    """binary."""
    desk = umq_desk()
    client, board = joined(desk), desk.open()
    client.result("subscribe", "a", "A", {"binary": True})
    desk.pub(board, "a", b"text")
    message, body = client.heard()
    assert body == b"text"
    assert str(message).startswith("A1:TA:")
    assert "text" not in updates([message])[0]


def test_the_bodies_of_one_message_come_in_order() -> None:
    """R26: text and binary in any mixture, and never more than base 36 can say in two digits."""
    desk = umq_desk()
    client, board = joined(desk), desk.open()
    client.result("subscribe", "a", "A")
    _slow(desk, client)
    bodies = [bytes([number % 256]) * 2 for number in range(3000)]
    for body in bodies:
        desk.pub(board, "a", body)
    desk.slow.clear()
    for _ in range(50):
        desk.broker.proceed(client.connection, desk.now)
        desk.done()
    heard = client.heard()
    found: list[bytes] = []
    position = 0
    while position < len(heard):
        message = heard[position]
        position += 1
        assert isinstance(message, str)
        for each in updates([message]):
            if each.get("attachment"):
                binary = heard[position]
                assert isinstance(binary, bytes)
                found.append(binary)
                position += 1
            else:
                found.append(each["text"].encode())
    assert found == bodies


# ---- a model ----

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 3), st.integers(0, 60)),
        st.tuples(st.just("take"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("end"), st.integers(0, 1), st.just(0)),
    ),
    max_size=80,
)


@settings(max_examples=200)
@given(
    _STEPS,
    st.integers(1, 8),
    st.integers(100, 2000),
    st.sampled_from([0.0, 0.5]),
    st.integers(300, 3000),
)
def test_nothing_is_told_twice_or_out_of_order_and_all_is_told_or_counted(
    steps: list[tuple[str, int, int]], most: int, most_bytes: int, every_s: float, memory: int
) -> None:
    """Every publication of each topic is told, replaced, dropped, or gone with its topic."""
    held, dropped = Budget(memory), Dropped()
    waiting = Updates(most, most_bytes, held, dropped)
    topics = [Topic(0, "all", every_s), Topic(1, "all")]
    waiting.topics.update({0: topics[0], 1: topics[1]})
    now = 0.0
    number = 0
    published: dict[int, int] = defaultdict(int)
    accounted: dict[int, int] = defaultdict(int)
    last: dict[tuple[int, str], int] = {}

    def take() -> None:
        for topic, payload, attachments in waiting.take(now):
            assert not attachments
            assert topic.is_open
            for each in updates([f"TA:{payload}"]):
                if "dropped" in each:
                    accounted[topic.id] += each["dropped"]
                    continue
                accounted[topic.id] += 1 + each.get("replaced", 0)
                said = int(each["text"].split()[0])
                assert said > last.get((topic.id, each["topic"]), -1)
                last[topic.id, each["topic"]] = said

    for step, one, other in steps:
        if step == "publish":
            packet = pack(0, b"t/%d" % one, b"%d %s" % (number, b"x" * other))
            waiting.add(Delivery(packet, (0, 1)), now, 1)
            for topic in topics:
                published[topic.id] += topic.is_open
            number += 1
        elif step == "take":
            now += one / 10
            take()
        elif topics[one].is_open:
            waiting.end(topics[one])
            published.pop(one, None)
        assert waiting.waiting_bytes <= max(most_bytes, 200)
        assert held.left == memory - waiting.waiting_bytes >= 0
    now += 100.0
    while waiting.due(now):
        take()
    for topic in topics:
        if topic.is_open:
            # What was dropped is said with the next update, so perhaps not yet.
            assert accounted[topic.id] + topic.dropped == published[topic.id]
    waiting.close()
    assert held.left == memory


@pytest.mark.parametrize("every_s", [0.0, 1.0])
def test_ten_thousand_updates_are_taken_in_good_time(every_s: float) -> None:
    """Not a measurement: what is quadratic would take minutes."""
    waiting = Updates(20_000, 1 << 30, Budget(1 << 30), Dropped())
    waiting.topics[0] = Topic(0, "all", every_s)
    for number in range(10_000):
        waiting.add(Delivery(pack(0, b"t/%d" % (number % 1000), b"x"), (0,)), 0.0, 1)
    count = 0
    now = 5.0
    while waiting.due(now):
        count += sum(len(updates([f"TA:{payload}"])) for _, payload, _ in waiting.take(now))
        now += 0.1
    assert count == (1000 if every_s else 10_000)
