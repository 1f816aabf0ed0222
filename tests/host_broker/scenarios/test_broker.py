"""The broker's own contract."""

import pytest

from host_broker.broker import Broker
from host_broker.bus.commands import Publish, Send, Subscribe
from host_broker.bus.publication import pack
from host_broker.settings import Settings
from tests.host_broker.desk import Desk, Done
from tests.host_broker.scripted import Stage


def test_an_unknown_protocol_is_named() -> None:
    with pytest.raises(ValueError, match="'mqtt' is none of fmqp, lightmq"):
        Broker(Settings()).opened(1, "mqtt", 0.0)


def test_a_connection_opens_once() -> None:
    broker = Broker(Settings())
    broker.opened(1, "fmqp", 0.0)
    with pytest.raises(ValueError, match="1 is already open"):
        broker.opened(1, "fmqp", 0.0)


def test_an_unknown_connection_is_ignored() -> None:
    """The edge may read, or report an end, after the broker asked for the close."""
    broker = Broker(Settings())
    broker.received(7, b"x", 0.0)
    broker.closed(7, 0.0)
    broker.proceed(7, 0.0)
    broker.congested(7, True, 0.0)
    broker.tick(1.0)
    done = Done(broker.take())
    assert (done.records, done.sends, done.closes) == ([], {}, [])


def test_ids_without_a_source_are_all_different() -> None:
    """Broker() without random_u16: 65536 SENDs, 65536 ids."""
    desk = Desk()
    board, publisher = desk.lightmq("a"), desk.open()
    desk.got(board)
    seen = set()
    for _ in range(65_536 // 512):
        for _ in range(512):
            desk.pub(publisher, "lightmq/a/down", b"x")
        frames = desk.got(board)
        seen |= {frames[at + 3 : at + 5] for at in range(0, len(frames), 7)}
    assert len(seen) == 65_536


def test_a_session_may_speak_first() -> None:
    stage = Stage()
    early = stage.enter()
    stage.do(early, Subscribe(b"news"))
    stage.servers[0].first = [Send(b"welcome"), Publish(b"news", b"one more"), Subscribe(b"news")]
    late = stage.enter()
    assert stage.sent[late] == b"welcome"
    assert [given.run for given in stage.given(early)] == [pack(0, b"news", b"one more")]
    stage.do(early, Publish(b"news", b"2"))
    assert [given.run for given in stage.given(late)] == [pack(0, b"news", b"2")]
