"""Durable queues at real sockets: what a consumer without acks was given is stored until the socket
has taken all of it."""

import functools
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_broker.bus.commands import Consume, Enqueue, OpenQueue, Pace
from host_broker.registry import protocols
from tests.host_broker.net.broker_process import until
from tests.host_broker.net.served import exactly, served
from tests.host_broker.net.test_queues_live import Scripted
from tests.host_broker.scripted import READ, ScriptedServer, ScriptedSession, specs

_Q = b"work"
_STALLED_S = 600.0
_LARGE = bytes(100_000)
_OPEN = OpenQueue(_Q, "block", durable=True, permanent=True)
_TAKE = Consume(_Q, 0, acknowledged=False)


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Scripted]:
    servers = ScriptedServer(verbatim=False), ScriptedServer(verbatim=True)
    net = {"stalled_receiver_s": _STALLED_S}
    with served(net=net, specs={**protocols(), **specs(*servers)}, data=tmp_path) as broker:
        yield Scripted(broker, servers[0])


@pytest.fixture
def consumer(scripted: Scripted) -> tuple[socket.socket, ScriptedSession]:
    """Who takes what is in the queue, and has a kernel that takes little."""
    peer, session = scripted.enter()
    scripted.broker.ours(peer)[1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    scripted.do(peer, session, _OPEN, _TAKE)
    return peer, session


def _numbers(scripted: Scripted) -> list[int]:
    """Return what is stored of the queue; after what is to be done soon has been done."""
    for _ in range(3):
        scripted.broker.call(lambda: None)
    return scripted.broker.call(lambda: scripted.queue.numbers)


@pytest.mark.parametrize("same_turn", [True, False])
def test_what_comes_after_the_end_of_what_was_sent(
    scripted: Scripted, consumer: tuple[socket.socket, ScriptedSession], same_turn: bool
) -> None:
    """The socket has taken all; before the broker is told so it gives more, which is not taken."""
    publisher, publishing = scripted.enter()
    publishing.lines += [[Enqueue(_Q, b"x")], [Enqueue(_Q, _LARGE)]]
    server = scripted.broker.server
    receive = functools.partial(server.received, scripted.broker.ours(publisher)[0].id, READ)

    def give() -> None:
        receive()
        server._run()
        receive()
        if not same_turn:
            server._run()

    scripted.broker.call(give)
    assert _numbers(scripted) == [2]
    assert exactly(consumer[0], 1 + len(_LARGE)) == b"x" + _LARGE
    until(lambda: _numbers(scripted) == [])


def test_who_waits_for_something_else_waits_for_all_the_same(
    scripted: Scripted, consumer: tuple[socket.socket, ScriptedSession]
) -> None:
    """A session goes on when nearly all is sent, a durable queue when all is."""
    peer, session = consumer
    publisher, publishing = scripted.enter()
    scripted.do(publisher, publishing, Enqueue(_Q, _LARGE[:30_000]))
    assert scripted.waiting_in_outbox(peer) > 0
    scripted.do(peer, session, Pace())
    assert _numbers(scripted) == [1]
    assert exactly(peer, 30_000) == _LARGE[:30_000]
    until(lambda: _numbers(scripted) == [])


def _time_is_over(scripted: Scripted, peer: socket.socket) -> bool:
    """Have a consumer be looked at as if its time had passed; whether it was disconnected."""
    connection, _ = scripted.broker.ours(peer)

    def look() -> bool:
        timer = connection._stall_timer
        assert timer is not None
        arguments = timer._args  # type: ignore[attr-defined]
        timer.cancel()
        assert arguments[0] == _STALLED_S
        connection._look_for_stall(*arguments)
        return connection.transport.is_closing()

    return scripted.broker.call(look)


def test_who_takes_something_has_not_stalled_though_more_waits(
    scripted: Scripted, consumer: tuple[socket.socket, ScriptedSession]
) -> None:
    """Net.stalled_receiver_s: more may have come than it took meanwhile."""
    peer, _ = consumer
    publisher, publishing = scripted.enter()
    scripted.do(publisher, publishing, Enqueue(_Q, _LARGE))
    for _ in range(2):
        exactly(peer, 50_000)
        scripted.do(publisher, publishing, Enqueue(_Q, _LARGE))
        assert not _time_is_over(scripted, peer)
    assert _time_is_over(scripted, peer)


def test_for_whom_nobody_waits_has_its_time_each_time(
    scripted: Scripted, consumer: tuple[socket.socket, ScriptedSession]
) -> None:
    """However often its host has had publishers wait; and the next has no less time for it."""
    peer, _ = consumer
    publisher, publishing = scripted.enter()
    where, stalls = scripted.broker.ours(peer)[0].peer, scripted.broker.server._stalls
    now = time.monotonic()
    stalls.add(where, now)
    before = stalls.grace_s(where, now)
    assert before < _STALLED_S
    scripted.do(publisher, publishing, Enqueue(_Q, _LARGE))
    assert _time_is_over(scripted, peer)
    assert stalls.grace_s(where, now) == before
