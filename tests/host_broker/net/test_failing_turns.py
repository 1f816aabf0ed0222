"""An exception in one step of a turn: that connection ends, the others of the turn are served."""

from collections.abc import Sequence
from typing import Any

import pytest

from host_broker.bus.commands import Disconnect, Subscribe
from host_broker.bus.publication import pack
from host_broker.net.connection.connection import Connection
from host_broker.protocols.lightmq.codec import Codec
from tests.host_broker.net.served import Served, exactly, served, there
from tests.host_broker.scripted import READ, ScriptedServer, run, specs

_TOPIC = b"lightmq/board/down"
_SUBSCRIBE = pack(0x80, _TOPIC, b"")
_PACKET = pack(0, _TOPIC, b"x")


def _raises(*_: object, **__: object) -> Any:
    raise RuntimeError("a mistake")


def _errors(broker: Served) -> Sequence[str]:
    """Take what was logged."""
    errors = broker.call(broker.errors.copy)
    broker.errors.clear()
    return [f"{each['message']}: {each['exception']}" for each in errors]


@pytest.mark.parametrize("method", ["writelines", "get_write_buffer_size"])
def test_a_send_that_raises(broker: Served, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    receivers = [broker.connect() for _ in range(3)]
    publisher = broker.connect()
    for receiver in receivers:
        broker.say(receiver, _SUBSCRIBE)
    failing, _ = broker.ours(receivers[1])
    if method == "writelines":
        failing.transport = _Failing(failing.transport)  # type: ignore[assignment]
    else:
        flush = Connection.flush
        monkeypatch.setattr(
            Connection, "flush", lambda self: _raises() if self is failing else flush(self)
        )
    broker.say(publisher, _PACKET)
    for receiver in (receivers[0], receivers[2]):
        assert exactly(receiver, len(_PACKET)) == _PACKET
    assert receivers[1].recv(100) == b""
    errors = _errors(broker)
    assert len(errors) == 1
    assert "could not be written to" in errors[0]
    assert "a mistake" in errors[0]
    broker.say(publisher, _PACKET)
    assert there(receivers[0]) == _PACKET
    assert _errors(broker) == []


class _Failing:
    """A transport that writes nothing."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    writelines = _raises


def test_a_session_that_raises(broker: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is given something: its own connection ends, not that of who published it."""
    before, board, after, publisher = (
        broker.connect(),
        broker.connect(protocol="lightmq"),
        broker.connect(),
        broker.connect(),
    )
    board.sendall(Codec("client").connect("board"))
    assert board.recv(100)
    for receiver in (before, after):
        broker.say(receiver, _SUBSCRIBE)
    connection = broker.ours(board)[0].id
    session = broker.broker._clients[connection].session
    monkeypatch.setattr(session, "deliver", _raises)
    broker.say(publisher, _PACKET * 3)
    for receiver in (before, after):
        assert exactly(receiver, 3 * len(_PACKET)) == _PACKET * 3
    assert board.recv(100) == b""
    errors = _errors(broker)
    assert errors == [f"a session failed (connection {connection}): a mistake"]
    broker.say(publisher, _PACKET)
    assert there(before) == _PACKET


def test_a_filter_that_raises_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """However many publications it fails for; a filter may be what a user has written."""
    servers = ScriptedServer(verbatim=False), ScriptedServer(verbatim=True)
    with served(specs=specs(*servers)) as broker:
        peer = broker.connect(protocol="translating")
        session = servers[0].sessions[broker.ours(peer)[0].id]
        session.lines.append([Subscribe(b"a", filter=_raises)])
        broker.say(peer, READ)
        for _ in range(3):
            session.lines.append([run(*([(b"a", b"x")] * 300))])
            broker.say(peer, READ)
    assert [message for message in caplog.messages if "filter" in message] == [
        "a filter of connection 1 failed, which counts as unwanted: RuntimeError('a mistake')"
    ]


def test_an_extension_that_fails_for_many_is_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also if each time it says something else, which its peer may have chosen."""
    servers = ScriptedServer(verbatim=False), ScriptedServer(verbatim=True)
    with served(specs=specs(*servers)) as broker:
        for number in range(5):
            peer = broker.connect(protocol="translating")
            session = servers[0].sessions[broker.ours(peer)[0].id]
            failure = ValueError(f"no number: {number}")
            session.lines.append([Disconnect("it failed", failure=failure)])
            peer.sendall(READ)
            assert peer.recv(100) == b""
        assert broker.call(lambda: broker.server.failures["extension"]) == 5
        assert broker.call(lambda: len(broker.server._extensions_log._last)) == 1
    assert [message for message in caplog.messages if "no number" in message] == [
        "connection 1 is closed: no number: 0"
    ]


def test_a_turn_that_cannot_be_ended_does_not_end_the_loop(broker: Served) -> None:
    receiver, publisher = broker.connect(), broker.connect()
    broker.say(receiver, _SUBSCRIBE)
    server = broker.server
    take = server._broker.take
    server._broker.take = _once_raising(take)  # type: ignore[method-assign]
    broker.say(publisher, _PACKET)
    broker.say(publisher, _PACKET)
    assert exactly(receiver, 2 * len(_PACKET)) == _PACKET * 2
    assert len(_errors(broker)) == 1


def _once_raising(function: Any) -> Any:
    calls = iter([_raises])
    return lambda: next(calls, function)()


def test_others_of_the_same_moment_have_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of clients whose deadline comes at once, one fails."""
    with served(pure=False, lightmq={"ping_interval_s": 0.2}) as broker:
        boards = [broker.connect(protocol="lightmq") for _ in range(3)]
        for number, board in enumerate(boards):
            board.sendall(Codec("client").connect(f"board{number}"))
        connack = 4
        for board in boards:
            exactly(board, connack)
        failing = broker.broker._clients[broker.ours(boards[0])[0].id].session
        broker.call(lambda: monkeypatch.setattr(failing, "tick", _raises))
        for board in boards[1:]:
            assert exactly(board, 5)[0] == 3  # PING
        assert boards[0].recv(100) == b""
        assert len(_errors(broker)) == 1
