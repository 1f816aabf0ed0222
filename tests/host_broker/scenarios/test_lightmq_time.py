"""LightMQ's timers, on simulated time (A17)."""

import pytest

from host_broker.protocols.lightmq.codec import Codec
from host_broker.protocols.lightmq.events import Connack, Ping
from tests.host_broker.desk import Desk

_CODEC = Codec("client")


def _heard(desk: Desk, connection: int) -> list[object]:
    return list(Codec("client").receive_data(desk.got(connection)))


def test_connect_timeout() -> None:
    """Settings.lightmq.connect_timeout_s: half a CONNECT does not help."""
    desk = Desk(lightmq={"connect_timeout_s": 3})
    client = desk.open("lightmq")
    desk.advance(2.9)
    desk.send(client, b"\x01\x00")
    assert desk.closes == []
    desk.advance(0.2)
    assert [(close.connection, close.abort) for close in desk.closes] == [(client, False)]
    assert "CONNECT within 3 s" in desk.closes[0].reason
    assert desk.got(client) == b""


def test_silence_is_asked_and_no_answer_ends_it() -> None:
    """R12, Settings.lightmq.ping_interval_s and ping_timeout_s: aborted, and offline."""
    desk = Desk(lightmq={"ping_interval_s": 15, "ping_timeout_s": 10}, random_u16=lambda: 0x1234)
    client, watcher = desk.lightmq("a"), desk.open()
    assert _heard(desk, client) == [Connack(0, accepted=True)]
    desk.advance(14.9)
    assert desk.got(client) == b""
    desk.advance(0.2)
    assert _heard(desk, client) == [Ping(0x1234)]
    desk.advance(9.8)
    assert desk.closes == []
    desk.advance(0.2)
    assert [(close.connection, close.abort) for close in desk.closes] == [(client, True)]
    assert "PONG within 10 s" in desk.closes[0].reason
    desk.close(client)
    desk.sub(watcher, "lightmq/a/status")
    assert desk.messages(watcher) == [(4, "lightmq/a/status", b"offline")]
    desk.advance(100)
    assert len(desk.closes) == 1


@pytest.mark.parametrize("pong", [_CODEC.pong(7), b"\x04\x00\x00"], ids=["R13-same-id", "A5-no-id"])
def test_a_pong_settles_it(pong: bytes) -> None:
    """R13, A5: and the silence begins anew."""
    desk = Desk(random_u16=lambda: 7)
    client = desk.lightmq("a")
    for _ in range(3):
        desk.got(client)
        desk.advance(15)
        assert _heard(desk, client) == [Ping(7)]
        desk.advance(9)
        desk.send(client, pong)
    assert desk.closes == []


def test_a_pong_of_another_id_does_not() -> None:
    """R13."""
    desk = Desk(random_u16=lambda: 7)
    client = desk.lightmq("a")
    desk.advance(15)
    desk.send(client, _CODEC.pong(8))
    desk.advance(10)
    assert len(desk.closes) == 1


def test_whoever_talks_is_not_asked() -> None:
    """A17: the interval counts from the last bytes heard."""
    desk = Desk()
    client = desk.lightmq("a")
    desk.got(client)
    for _ in range(10):
        desk.advance(14)
        desk.send(client, _CODEC.send(1, b"x"))
        assert Ping not in map(type, _heard(desk, client))
    assert desk.closes == []


def test_no_interval_no_ping() -> None:
    """Settings.lightmq.ping_interval_s = 0."""
    desk = Desk(lightmq={"ping_interval_s": 0})
    client = desk.lightmq("a")
    desk.got(client)
    desk.advance(100_000)
    assert desk.got(client) == b""
    assert desk.broker.next_deadline() is None


def test_fmqp_needs_no_tick() -> None:
    desk = Desk()
    desk.open()
    assert desk.broker.next_deadline() is None


def test_many_connections_each_on_time() -> None:
    """``next_deadline`` is never late, whatever moved meanwhile."""
    desk = Desk(lightmq={"connect_timeout_s": 10, "ping_interval_s": 7, "ping_timeout_s": 2})
    silent, talking = [], []
    for number in range(50):
        silent.append((desk.lightmq(f"silent-{number}"), desk.now))
        talking.append(desk.lightmq(f"talking-{number}"))
        desk.advance(0.1)
    asked: dict[int, float] = {}
    ended: dict[int, float] = {}
    for _ in range(300):
        for client in talking:
            desk.send(client, _CODEC.ping(1))
        desk.advance(0.1)
        for client, _ in silent:
            if Ping in map(type, _heard(desk, client)):
                asked[client] = desk.now
        for close in desk.closes:
            ended.setdefault(close.connection, desk.now)
    for client, since in silent:
        assert asked[client] == pytest.approx(since + 7, abs=0.11)
        assert ended[client] == pytest.approx(since + 9, abs=0.21)
    assert not set(talking) & set(ended)
