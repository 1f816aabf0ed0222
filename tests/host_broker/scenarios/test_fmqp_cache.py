"""FMQP: what the broker keeps for later subscribers."""

from tests.host_broker.desk import Desk


def test_nothing_is_kept_without_the_flag() -> None:
    """R19."""
    desk = Desk()
    publisher = desk.open()
    desk.pub(publisher, "a/b", b"x")
    late = desk.open()
    desk.sub(late, "a/b")
    assert desk.messages(late) == []


def test_a_new_subscriber_gets_every_equivalent() -> None:
    """R20, R21, A7: by wildcards on either side, before any later live message."""
    desk = Desk()
    publisher = desk.open()
    for topic in ("a/b", "a/c", "a/*", "b/b", "a"):
        desk.pub(publisher, topic, topic.encode(), cache=True)
    late = desk.open()
    desk.sub(late, "a/b")
    assert sorted(desk.messages(late)) == [(4, "a/*", b"a/*"), (4, "a/b", b"a/b")]
    desk.sub(late, "a/*")
    desk.pub(publisher, "a/b", b"live")
    *kept, last = desk.messages(late)
    assert sorted(topic for _, topic, _ in kept) == ["a/*", "a/b", "a/c"]
    assert last == (0, "a/b", b"live")


def test_one_message_per_topic_and_only_the_flagged_replace_it() -> None:
    """R22, R23."""
    desk = Desk()
    client = desk.open()
    desk.pub(client, "a", b"1", cache=True)
    desk.pub(client, "a", b"2", cache=True)
    desk.pub(client, "a", b"3")
    desk.sub(client, "a")
    assert desk.messages(client) == [(4, "a", b"2")]


def test_an_empty_flagged_message_clears_its_literal_topic() -> None:
    """A6, A7: an empty one without the flag clears nothing."""
    desk = Desk()
    client = desk.open()
    desk.pub(client, "a/b", b"1", cache=True)
    desk.pub(client, "a/c", b"1", cache=True)
    desk.pub(client, "a/*", b"", cache=True)
    desk.pub(client, "a/c", b"")
    desk.pub(client, "a/b", b"", cache=True)
    desk.sub(client, "a/*")
    assert desk.messages(client) == [(4, "a/c", b"1")]


def test_a_retained_message_outlives_its_publisher() -> None:
    """R20."""
    desk = Desk()
    publisher = desk.open()
    desk.pub(publisher, "a", b"1", cache=True)
    desk.close(publisher)
    late = desk.open()
    desk.sub(late, "*")
    assert desk.messages(late) == [(4, "a", b"1")]


def test_max_cached() -> None:
    """Settings.bus.max_retained: the new topic is refused, delivered all the same; a known topic is
    still replaced. One place is taken by ``$/info/clients``."""
    desk = Desk(bus={"max_retained": 3})
    client = desk.open()
    desk.sub(client, "live/*", debug=True)
    for number in range(3):
        desk.pub(client, f"live/{number}", b"old", cache=True)
    assert len(desk.messages(client)) == 3
    desk.pub(client, "live/0", b"new", cache=True)
    assert desk.broker.retained_count == 3
    assert desk.broker.retained_refused == 1
    late = desk.open()
    desk.sub(late, "live/*", debug=True)
    assert sorted(desk.messages(late)) == [(4, "live/0", b"new"), (4, "live/1", b"old")]


def test_max_cached_bytes() -> None:
    """Settings.bus.max_retained_bytes bounds bodies, and the index of deep topics."""
    desk = Desk(bus={"max_retained_bytes": 20_000})
    client = desk.open()
    desk.pub(client, "big", bytes(30_000), cache=True)
    desk.pub(client, "fits", bytes(10_000), cache=True)
    desk.pub(client, "fits-not", bytes(10_000), cache=True)
    desk.pub(client, "/".join("d" * 120), b"x", cache=True)
    desk.sub(client, "*")
    assert [(topic, len(body)) for _, topic, body in desk.messages(client)] == [("fits", 10_000)]
    assert desk.broker.retained_refused == 3
    # A replacement that does not fit displaces all the same: R22.
    desk.pub(client, "fits", bytes(20_000), cache=True)
    late = desk.open()
    desk.sub(late, "*")
    assert desk.messages(late) == []


def test_nothing_gives_way_to_what_can_never_fit() -> None:
    """A5."""
    desk = Desk(bus={"max_retained_bytes": 10_000})
    client = desk.open()
    desk.sub(client, "a")
    desk.sub(client, "a", unsubscribe=True)
    desk.pub(client, "big", bytes(20_000), cache=True)
    watcher = desk.open()
    desk.sub(watcher, "a", feedback=True)
    assert desk.messages(watcher) == [(0x24, "a", b"")]


def test_feedback_wanted_again_does_not_give_way() -> None:
    """A5, R46: a topic that was idle and is wanted again is as good as any."""
    desk = Desk(bus={"max_retained": 4})
    client = desk.open()
    desk.sub(client, "back")
    desk.sub(client, "back", unsubscribe=True)
    desk.sub(client, "back")
    for number in range(10):
        desk.sub(client, f"gone/{number}")
        desk.sub(client, f"gone/{number}", unsubscribe=True)
    watcher = desk.open()
    desk.sub(watcher, "back", feedback=True)
    assert desk.messages(watcher) == [(0x24, "back", (1).to_bytes(8, "big"))]


def test_idle_feedback_gives_way_to_what_is_wanted() -> None:
    """A5: feedback of topics nobody wants any more is evicted, oldest first, at the limit."""
    desk = Desk(bus={"max_retained": 4})
    client = desk.open()
    for number in range(50):
        desk.sub(client, f"gone/{number}")
        desk.sub(client, f"gone/{number}", unsubscribe=True)
    desk.pub(client, "a", b"kept", cache=True)
    assert desk.broker.retained_refused == 0
    watcher = desk.open()
    desk.sub(watcher, "gone/*", feedback=True)
    assert [topic for _, topic, _ in desk.messages(watcher)] == ["gone/48", "gone/49"]
    desk.sub(watcher, "a", debug=True)
    assert desk.messages(watcher) == [(4, "a", b"kept")]
