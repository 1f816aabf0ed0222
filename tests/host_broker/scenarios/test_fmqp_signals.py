"""FMQP: the core's side of ``$/signals/stop`` and ``$/signals/terminate``."""

import pytest

from host_broker.bus.publication import pack
from tests.host_broker.desk import Desk

_STOP, _TERMINATE = b"$/signals/stop", b"$/signals/terminate"


@pytest.mark.parametrize(("topic", "signal"), [(_STOP, "stop"), (_TERMINATE, "terminate")])
@pytest.mark.parametrize("body", [b"", b"now"])
def test_any_message_is_a_signal(topic: bytes, signal: str, body: bytes) -> None:
    """R30, R31, R32: once, never forwarded, never journalled."""
    desk = Desk()
    watcher, client = desk.open(), desk.open()
    desk.sub(watcher, "*/*/*", debug=True)
    desk.messages(watcher)
    assert desk.send(client, pack(0x57, topic, body)).signal == signal
    assert (desk.messages(watcher), desk.journal()) == ([], [])
    assert desk.send(client, pack(0, _TERMINATE, b"")).signal == ""


def test_a_stop_in_simulated_time() -> None:
    """R33 to R38: what came before is delivered, nothing that comes later, then all wills."""
    desk = Desk()
    watcher, client = desk.open(), desk.open()
    desk.sub(watcher, "*", debug=True)
    desk.pub(watcher, "w", b"will of the watcher", will=True)
    desk.pub(client, "c", b"will of the client", will=True)
    before, after = pack(0, b"a", b"before"), pack(0, b"a", b"after")
    assert desk.send(client, before + pack(0, _STOP, b"") + after).signal == "stop"
    assert desk.messages(watcher) == [(0, "a", b"before")]
    assert [messages for *_, messages in desk.journal()] == [[(0, "a", b"before")]]
    desk.advance(3)  # the edge drains (R35)
    desk.pub(client, "a", b"late")
    desk.pub(watcher, "a", b"late")
    refused = desk.open()
    assert [(close.connection, close.abort) for close in desk.closes] == [(refused, True)]
    assert desk.messages(watcher) == []
    desk.done(desk.broker.stop(desk.now))
    assert desk.messages(watcher) == [
        (8, "w", b"will of the watcher"),
        (8, "c", b"will of the client"),
    ]
    for connection in (watcher, client, refused):
        desk.close(connection)
    assert (desk.got(watcher), desk.got(client)) == (b"", b"")


def test_one_who_leaves_while_a_stop_drains_is_no_exception() -> None:
    """R36, A17: his wills are published at once, and not again."""
    desk = Desk()
    watcher, client = desk.open(), desk.open()
    desk.sub(watcher, "*", debug=True)
    desk.pub(client, "c", b"bye", will=True)
    desk.pub(watcher, _STOP.decode(), b"")
    desk.close(client)
    desk.done(desk.broker.stop(desk.now))
    assert desk.messages(watcher) == [(8, "c", b"bye")]


@pytest.mark.parametrize(
    ("setting", "loopback", "heard"),
    [
        ("loopback", True, True),
        ("loopback", False, False),
        ("on", False, True),
        ("off", True, False),
        ("acl", True, False),
    ],
)
def test_whose_signals_count(setting: str, loopback: bool, heard: bool) -> None:
    """A16: Settings.fmqp.signals."""
    desk = Desk(fmqp={"signals": setting})
    client = desk.open(loopback=loopback)
    outputs = desk.send(client, pack(0, _STOP, b"") + pack(0, _TERMINATE, b""))
    assert outputs.signal == ("stop" if heard else "")
    rule = "fmqp.signals" if setting == "off" else "access.signal"
    assert desk.discarded == ({} if heard else {rule: 2})
    desk.sub(client, "a")
    desk.pub(client, "a", b"x")
    assert desk.messages(client) == ([] if heard else [(0, "a", b"x")])


def test_a_signal_as_last_will() -> None:
    """R24, R32, A17: it counts when its client is gone, and ends the broker only once."""
    desk = Desk()
    client, other = desk.open(), desk.open()
    for connection in (client, other):
        assert desk.send(connection, pack(8, _STOP, b"")).signal == ""
    assert desk.close(client).signal == "stop"
    assert desk.done(desk.broker.stop(desk.now)).signal == ""


def test_only_exactly_these_topics() -> None:
    """R30: other service topics, and deeper ones, do nothing."""
    desk = Desk()
    client = desk.open()
    for topic in ("$/signals", "$/signals/stop/now", "$/signals/*", "signals/stop"):
        assert desk.pub(client, topic, b"x").signal == ""


def test_after_a_stop_the_core_wants_nothing_more() -> None:
    """R38, R39: no deadline, no answer, so that the process can end."""
    desk = Desk()
    fmqp, lightmq = desk.open(), desk.lightmq("board")
    desk.sub(fmqp, "$/info/messages/second")
    desk.pub(fmqp, "$/signals/stop", b"")
    desk.done(desk.broker.stop(desk.now))
    desk.got(fmqp)
    desk.got(lightmq)
    assert desk.broker.next_deadline() is None
    desk.pub(fmqp, "$/info/x", b"x")
    desk.close(lightmq)
    desk.done(desk.broker.stop(desk.now))
    assert (desk.got(fmqp), desk.got(lightmq)) == (b"", b"")
