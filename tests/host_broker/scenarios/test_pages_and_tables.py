"""What a protocol is asked by HTTP, and told of its tables: the broker's part, without either."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from host_broker.access.principal import Principal
from host_broker.broker import Broker
from host_broker.bus.commands import (
    ChangeTables,
    Command,
    Complain,
    Consume,
    Enqueue,
    OpenQueue,
    Publish,
    Reply,
    Subscribe,
)
from host_broker.outputs import ConnectionId
from host_broker.pages import PageAnswer, PageRequest
from host_broker.protocol import BrokerContext, ProtocolServer, ProtocolSpec, Session
from host_broker.settings import BusSettings, Settings
from host_broker.tables import Rows, Statement
from tests.host_broker.desk import Done

_CLIENT, _ASKING = 1, 2
_WHO = Principal("board", "token")


class _Internal(Session):
    """Publishes what it is asked to, and says how often it was asked."""

    def __init__(self) -> None:
        self.asked_count = 0
        self.ended = False

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        raise AssertionError("nothing is read here")

    def asked(self, request: PageRequest, now: float) -> Sequence[Command]:
        self.asked_count += 1
        if request.path == "/fails":
            raise RuntimeError("a mistake in a protocol")
        commands: list[Command] = []
        if request.path == "/open":
            commands.append(OpenQueue(b"jobs", "block", max_messages=2))
        if request.path in ("/open", "/put"):
            commands.append(Enqueue(b"jobs", request.body or b"?"))
        elif request.body:
            commands.append(Publish(b"t", request.body))
        return [*commands, Reply(lambda: PageAnswer(b"%d" % self.asked_count))]

    def rows(self, found: Mapping[str, Rows], now: float) -> Sequence[Command]:
        change = Statement("UPDATE t SET n = ?", (len(found["t"]),))
        return [ChangeTables([change]), Complain("odd rows")]

    def closed(self, now: float) -> Sequence[Command]:
        self.ended = True
        return ()


class _Listening(Session):
    """Any other connection: it hears all topics."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def opened(self, now: float) -> Sequence[Command]:
        return [Subscribe(b"t")]

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        return [Consume(b"jobs", 10, acknowledged=False)]

    def deliver(self, delivery: Any, now: float) -> Sequence[Command]:
        self.heard.append(delivery)
        return ()


class _Server(ProtocolServer):
    def __init__(self) -> None:
        self.internals: list[_Internal] = []
        self.listening = _Listening()

    def session(self, connection: ConnectionId, now: float, loopback: bool) -> Session:
        return self.listening

    def internal(self, connection: ConnectionId, now: float) -> Session:
        self.internals.append(_Internal())
        return self.internals[-1]


@pytest.fixture
def server() -> _Server:
    return _Server()


@pytest.fixture
def broker(server: _Server) -> Broker:
    def made(settings: Any, context: BrokerContext) -> _Server:
        return server

    spec = ProtocolSpec(name="paged", title="paged", journal_code=200, server=made)
    broker = Broker(Settings.of(bus=BusSettings()), specs={"paged": spec})
    broker.opened(_CLIENT, "paged", 0.0)
    broker.opened(_ASKING, "paged", 0.0, loopback=False, internal=True, principal=_WHO)
    broker.take()
    return broker


def _request(path: str, body: bytes | None = None) -> PageRequest:
    return PageRequest("POST", path, {}, {}, body)


def test_a_page_is_answered_after_what_it_does(broker: Broker, server: _Server) -> None:
    broker.asked(_ASKING, _request("/t", b"on"), 1.0)
    outputs = Done(broker.take())
    assert outputs.answers == [(_ASKING, PageAnswer(b"1"))]
    assert len(server.listening.heard) == 1
    assert [record.connection for record in outputs.records] == [_ASKING]
    broker.closed(_ASKING, 2.0)
    assert server.internals[0].ended
    broker.asked(_ASKING, _request("/t", b"off"), 3.0)
    assert Done(broker.take()).answers == []


def test_one_that_fails_is_closed_and_no_other(broker: Broker) -> None:
    broker.asked(_ASKING, _request("/fails"), 1.0)
    outputs = Done(broker.take())
    assert [close.connection for close in outputs.closes] == [_ASKING]
    assert [failure.part for failure in outputs.failures] == ["session"]
    assert outputs.answers == []


def test_a_full_queue_holds_who_asked(broker: Broker, server: _Server) -> None:
    broker.opened(3, "paged", 0.0, loopback=False, internal=True, principal=_WHO)
    broker.asked(_ASKING, _request("/open", b"x"), 1.0)
    broker.asked(3, _request("/put", b"y"), 1.0)
    outputs = Done(broker.take())
    assert [identity for identity, _ in outputs.answers] == [_ASKING, 3]
    assert outputs.holds == [(3, "queue")]
    broker.received(_CLIENT, b"take", 2.0)
    assert (3, "queue") in Done(broker.take()).releases


def test_tables(broker: Broker) -> None:
    broker.rows_changed(_ASKING, {"t": [(1,), (2,)]}, 1.0)
    outputs = Done(broker.take())
    assert outputs.changes == [("paged", Statement("UPDATE t SET n = ?", (2,)))]
    assert outputs.complaints == ["odd rows"]


def test_nothing_is_answered_at_the_end(broker: Broker, server: _Server) -> None:
    broker.stopping()
    broker.asked(_ASKING, _request("/t"), 1.0)
    broker.rows_changed(_ASKING, {"t": []}, 1.0)
    outputs = Done(broker.take())
    assert (outputs.answers, outputs.changes) == ([], [])
    assert server.internals[0].asked_count == 0
