"""The broker's own contract, and that a sixth protocol is one folder and one line."""

from collections.abc import Sequence

import pytest

from host_broker.broker import Broker
from host_broker.bus.commands import Command, Disconnect, Publish, Send, Subscribe
from host_broker.bus.publication import unpack
from host_broker.bus.subscriptions import Interest
from host_broker.outputs import ConnectionId
from host_broker.protocols.registry import protocols
from host_broker.protocols.session import Translator
from host_broker.settings import Settings
from tests.host_broker.desk import Desk


class LineSession(Translator):
    """A protocol of lines, ``TOPIC BODY``: everything a session has to be."""

    client = "line"
    deadline: float | None = None

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        topic, _, body = data.partition(b" ")
        if topic == b"quit":
            return [Send(b"bye\n"), Disconnect("asked to")]
        return [Subscribe(b"lines/*"), Publish(topic, body)]

    def deliver(self, run: bytes, now: float) -> Sequence[Command]:
        return [Send(topic + b" " + body + b"\n") for _, topic, body in unpack(run)]

    def tick(self, now: float) -> Sequence[Command]:
        return ()

    def closed(self, now: float) -> Sequence[Command]:
        return [Publish(b"lines/gone", b"x")]


class LineServer:
    journal_code = 9

    def session(self, connection: ConnectionId, now: float, loopback: bool) -> LineSession:
        return LineSession()

    def latecomer(self, connection: ConnectionId, now: float) -> None:
        return None

    def interest(self, interest: Interest) -> Sequence[Command]:
        return ()

    def population(self, count: int) -> Sequence[Command]:
        return ()


def test_a_sixth_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "host_broker.broker.protocols",
        lambda settings, random_u16: {**protocols(settings, random_u16), "line": LineServer()},
    )
    desk = Desk()
    line, fmqp = desk.open("line"), desk.open()
    desk.sub(fmqp, "lines/*")
    desk.send(line, b"lines/a hello")
    assert desk.got(line) == b"lines/a hello\n"
    assert desk.messages(fmqp) == [(0, "lines/a", b"hello")]
    desk.pub(fmqp, "lines/b", b"back")
    assert desk.got(line) == b"lines/b back\n"
    desk.send(line, b"quit")
    assert desk.got(line) == b"bye\n"
    assert [(close.connection, close.reason) for close in desk.closes] == [(line, "asked to")]
    desk.journal()
    desk.send(line, b"lines/a after the end")
    desk.send(line, b"quit")
    assert (desk.got(line), desk.journal(), len(desk.closes)) == (b"", [], 1)
    desk.close(line)
    assert desk.journal() == [(line, 9, "line", [(0, "lines/gone", b"x")])]


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
    for outputs in (broker.received(7, b"x", 0.0), broker.closed(7, 0.0), broker.tick(1.0)):
        assert (outputs.records, outputs.sends, outputs.closes) == ([], {}, [])


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
