"""What an edge that keeps retained messages across restarts is told, and gives back."""

import pytest

from host_broker.bus.publication import pack
from tests.host_broker.desk import Desk


def test_changes() -> None:
    """R20, R22, A6: the last change of a topic in one call; nothing for nothing."""
    desk = Desk()
    client = desk.open()
    assert desk.pub(client, "a", b"1").retained == {}
    assert desk.pub(client, "a", b"", cache=True).retained == {}
    old, new = pack(4, b"a", b"1"), pack(4, b"a", b"2")
    assert desk.send(client, old + new).retained == {b"a": (new, b"")}
    assert desk.pub(client, "a", b"", cache=True).retained == {b"a": None}
    assert desk.pub(client, "a", b"x", will=True, cache=True).retained == {}
    assert desk.close(client).retained == {b"a": (pack(12, b"a", b"x"), b"")}


def test_what_the_broker_says_is_not_kept() -> None:
    """R41, R46: numbers of clients, feedback and presence are about this run only."""
    desk = Desk()
    outputs = [desk.done(desk.broker.opened(1, "fmqp", 0.0))]
    outputs.append(desk.sub(1, "a"))
    outputs.append(desk.done(desk.broker.opened(2, "lightmq", 0.0)))
    outputs.append(desk.send(2, b"\x01\x00\x02\x01x"))
    outputs.append(desk.close(2))
    assert [each.retained for each in outputs] == [{}] * 5


def test_a_displaced_message_that_had_no_successor_is_forgotten() -> None:
    """R22, Settings.bus.max_retained_bytes."""
    desk = Desk(bus={"max_retained_bytes": 5_000})
    client = desk.open()
    desk.pub(client, "a", b"1", cache=True)
    assert desk.pub(client, "a", bytes(6_000), cache=True).retained == {b"a": None}


def test_restored() -> None:
    """R21: as if it had been published just now."""
    first, second = Desk(), Desk()
    client = first.open()
    kept = {}
    for topic in ("a/b", "a/c", "d"):
        kept.update(first.pub(client, topic, b"x", cache=True).retained)
    kept.update(first.pub(client, "d", b"bye", cache=True, will=True).retained)
    kept.update(first.close(client).retained)
    entries = [(topic, *entry) for topic, entry in kept.items() if entry is not None]
    assert second.broker.restore(entries) == 0
    late = second.open()
    second.sub(late, "a/*")
    second.sub(late, "d")
    assert second.messages(late) == [(4, "a/b", b"x"), (4, "a/c", b"x"), (12, "d", b"bye")]


def test_restoring_obeys_the_limits() -> None:
    """Settings.bus.max_retained: what is too much is counted."""
    desk = Desk(bus={"max_retained": 2})
    entries = [(b"%d" % number, pack(4, b"%d" % number, b"x"), b"") for number in range(5)]
    assert desk.broker.restore(entries) == 3
    assert desk.broker.retained_count == 2


@pytest.mark.parametrize(
    "packet", [b"", b"\4", pack(4, b"b", b"x"), pack(0, b"a", b"x"), pack(4, b"a", b"x") + b"y"]
)
def test_only_what_was_given_is_taken_back(packet: bytes) -> None:
    with pytest.raises(ValueError, match=r"publication|no retained message"):
        Desk().broker.restore([(b"a", packet, b"")])
