"""FMQP: last wills, at every kind of ending."""

from collections.abc import Callable

import pytest

from host_broker.bus.publication import pack
from tests.host_broker.desk import Desk


def _leaves(desk: Desk, client: int) -> None:
    """FIN, RST and timeouts all come to the core as this (R26, R27)."""


def _breaks_the_hard_limit(desk: Desk, client: int) -> None:
    desk.send(client, pack(0, b"a", b"")[:2] + b"\xff\xff\xff\xff")
    assert [close.connection for close in desk.closes] == [client]


def _leaves_inside_a_packet(desk: Desk, client: int) -> None:
    desk.send(client, pack(0, b"a", b"never finished")[:-1])


@pytest.mark.parametrize("ending", [_leaves, _breaks_the_hard_limit, _leaves_inside_a_packet])
def test_a_will_is_published_once_after_the_end(ending: Callable[[Desk, int], None]) -> None:
    """R24 to R27, A17."""
    desk = Desk()
    watcher, client = desk.open(), desk.open()
    desk.sub(watcher, "a/*")
    desk.pub(client, "a/b", b"bye", will=True)
    desk.pub(client, "a/b", b"live")
    assert desk.messages(watcher) == [(0, "a/b", b"live")]
    ending(desk, client)
    assert desk.messages(watcher) == []
    desk.close(client)
    assert desk.messages(watcher) == [(8, "a/b", b"bye")]
    desk.close(client)
    assert desk.messages(watcher) == []


def test_every_will_in_order() -> None:
    """R28: also several under one topic; flags as published."""
    desk = Desk()
    watcher, client = desk.open(), desk.open()
    desk.sub(watcher, "*")
    wills = [(8, "b", b"1"), (8, "a", b"2"), (8, "b", b"3")]
    desk.send(client, b"".join(pack(f, t.encode(), body) for f, t, body in wills))
    desk.close(client)
    assert desk.messages(watcher) == wills


def test_a_cached_will_is_cached_at_that_time() -> None:
    """R29."""
    desk = Desk()
    client, watcher = desk.open(), desk.open()
    desk.pub(client, "a", b"bye", will=True, cache=True)
    desk.sub(watcher, "a")
    assert desk.messages(watcher) == []
    desk.close(client)
    desk.messages(watcher)
    late = desk.open()
    desk.sub(late, "a")
    assert desk.messages(late) == [(12, "a", b"bye")]


def test_wills_obey_the_rules_of_publications() -> None:
    """R18, R30, A6: an empty one clears or does nothing, a service topic is not forwarded."""
    desk = Desk()
    watcher, client = desk.open(), desk.open()
    desk.pub(client, "a", b"kept", cache=True)
    desk.sub(watcher, "a")
    desk.sub(watcher, "$/x")
    desk.messages(watcher)
    desk.pub(client, "a", b"", will=True)
    desk.pub(client, "a", b"", will=True, cache=True)
    desk.pub(client, "$/x", b"forged", will=True, cache=True)
    desk.close(client)
    assert desk.messages(watcher) == []
    late = desk.open()
    desk.sub(late, "a")
    desk.sub(late, "$/x")
    assert desk.messages(late) == []


def test_a_client_does_not_get_its_own_will() -> None:
    """R25: it is published to those still connected."""
    desk = Desk()
    client = desk.open()
    desk.sub(client, "a")
    desk.pub(client, "a", b"bye", will=True)
    desk.close(client)
    assert desk.messages(client) == []


def test_the_end_goes_in_order() -> None:
    """A18, A21: feedback of the gone subscriptions, then wills, then the number of clients."""
    desk = Desk()
    watcher, client = desk.open(), desk.open()
    desk.sub(watcher, "a", feedback=True)
    desk.sub(watcher, "a", debug=True)
    desk.sub(watcher, "$/*/*", debug=True)
    desk.sub(client, "a")
    desk.pub(client, "a", b"bye", will=True)
    desk.messages(watcher)
    desk.close(client)
    one = (1).to_bytes(8, "big")
    assert desk.messages(watcher) == [
        (0x24, "a", b""),
        (8, "a", b"bye"),
        (4, "$/info/clients", one),
    ]


def test_max_wills() -> None:
    """Settings.fmqp.max_wills: more are discarded."""
    desk = Desk(fmqp={"max_wills": 2})
    watcher, client = desk.open(), desk.open()
    desk.sub(watcher, "*")
    for number in range(4):
        desk.pub(client, "a", b"%d" % number, will=True)
    desk.close(client)
    assert [body for _, _, body in desk.messages(watcher)] == [b"0", b"1"]
    assert desk.discarded == {"fmqp.max_wills": 2}
