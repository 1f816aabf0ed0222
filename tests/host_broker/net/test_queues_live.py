"""Queues at real sockets: backlogs stay in their queues, full ones have their publishers wait."""

import socket
from collections.abc import Iterator, Sequence

import pytest

from host_broker.bus.commands import Command, Consume, Enqueue, OpenQueue, Send, Subscribe
from host_broker.bus.delivery import QueueDelivery
from host_broker.bus.publication import pack
from host_broker.bus.queue import Queue
from host_broker.net.http.publishing import Busy, Publishing
from host_broker.registry import protocols
from tests.host_broker.net.broker_process import until
from tests.host_broker.net.served import Served, exactly, served
from tests.host_broker.scripted import READ, Given, ScriptedServer, ScriptedSession, specs

_Q = b"work"
_BODY = 64 * 1024
_NET = {"outbox_high_bytes": 500_000, "outbox_low_bytes": 100_000, "stalled_receiver_s": 60.0}


class Scripted:
    """A broker whose connections speak the scripted protocol, and say bodies as they are."""

    def __init__(self, broker: Served, server: ScriptedServer) -> None:
        self.broker = broker
        self._server = server

    def enter(self) -> tuple[socket.socket, ScriptedSession]:
        peer = self.broker.connect(protocol="translating")
        session = self._server.sessions[self.broker.ours(peer)[0].id]
        session.reply = _bodies
        return peer, session

    def do(self, peer: socket.socket, session: ScriptedSession, *commands: Command) -> None:
        self.broker.call(lambda: session.lines.append(commands))
        self.broker.say(peer, READ)

    @property
    def queue(self) -> Queue:
        return self.broker.broker.queues[_Q]

    def waiting_in_outbox(self, peer: socket.socket) -> int:
        transport = self.broker.ours(peer)[0].transport
        return self.broker.call(transport.get_write_buffer_size)


def _bodies(given: Given) -> Sequence[Command]:
    assert isinstance(given, QueueDelivery)
    return [Send(b"".join(message.body for message in given.messages))]


def _numbered(first: int, count: int) -> list[Enqueue]:
    return [
        Enqueue(_Q, number.to_bytes(4, "big") + bytes(_BODY - 4))
        for number in range(first, first + count)
    ]


def _numbers(peer: socket.socket, count: int) -> list[int]:
    return [int.from_bytes(exactly(peer, _BODY)[:4], "big") for _ in range(count)]


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    servers = ScriptedServer(verbatim=False), ScriptedServer(verbatim=True)
    with served(net=_NET, specs={**protocols(), **specs(*servers)}) as broker:
        yield Scripted(broker, servers[0])


@pytest.mark.parametrize("before", [True, False], ids=["backlog", "as it comes"])
def test_what_a_consumer_does_not_take_stays_in_the_queue(scripted: Scripted, before: bool) -> None:
    """32 MB for one that reads nothing at first; then it gets all of it, in order."""
    consumer, consuming = scripted.enter()
    publisher, publishing = scripted.enter()
    count = 512
    if not before:
        scripted.do(consumer, consuming, Consume(_Q, 0, acknowledged=False))
    for first in range(0, count, 16):
        scripted.do(publisher, publishing, *_numbered(first, 16))
    if before:
        scripted.do(consumer, consuming, Consume(_Q, 0, acknowledged=False))
    assert scripted.waiting_in_outbox(consumer) < 2 * 1024 * 1024
    assert scripted.queue.waiting > count // 2
    other, taking = scripted.enter()
    scripted.do(publisher, publishing, Enqueue(b"another", b"x"))
    scripted.do(other, taking, Consume(b"another", 1))
    assert exactly(other, 1) == b"x"  # nobody else waits
    assert _numbers(consumer, count) == list(range(count))
    until(lambda: len(scripted.queue) == 0)


def test_a_full_queue_has_only_its_publishers_wait(scripted: Scripted) -> None:
    consumer, consuming = scripted.enter()
    publisher, publishing = scripted.enter()
    other, talking = scripted.enter()
    scripted.do(consumer, consuming, OpenQueue(_Q, "block", max_messages=10))
    broker = scripted.broker
    broker.call(lambda: publishing.lines.extend(_numbered(first, 5) for first in range(0, 500, 5)))
    publisher.sendall(READ)
    until(lambda: len(scripted.queue) == 5)
    publisher.sendall(READ)
    until(lambda: len(scripted.queue) == 10)
    publisher.sendall(READ * 98)
    scripted.do(other, talking, Enqueue(b"another", b"x"))
    scripted.do(other, talking, Consume(b"another", 1))
    assert exactly(other, 1) == b"x"
    assert len(scripted.queue) == 10
    assert broker.ours(publisher)[0].on_hold
    assert not broker.ours(other)[0].on_hold
    scripted.do(consumer, consuming, Consume(_Q, 0, acknowledged=False))
    assert _numbers(consumer, 500) == list(range(500))
    until(lambda: not broker.ours(publisher)[0].on_hold)


@pytest.mark.parametrize("name", ["", "numbered 1.0"])
def test_who_has_no_connection_is_told_that_a_queue_is_full(scripted: Scripted, name: str) -> None:
    """And nothing of what it brought is published; what others want is."""
    consumer, consuming = scripted.enter()
    listener, listening = scripted.enter()
    listening.reply = lambda given: ()
    scripted.do(
        consumer,
        consuming,
        OpenQueue(_Q, "block", max_messages=10),
        Subscribe(b"jobs/1", queue=_Q),
    )
    scripted.do(listener, listening, Subscribe(b"jobs/2"))
    server, broker = scripted.broker.server, scripted.broker.broker
    publishing = scripted.broker.call(lambda: Publishing(server, broker, None, 1_000_000))
    job = pack(0, b"jobs/1", b"x")
    assert scripted.broker.wait(publishing.publish(job * 10, name)) == 10
    with pytest.raises(Busy, match="the queue work is full"):
        scripted.broker.wait(publishing.publish(pack(0, b"jobs/2", b"y") + job, name))
    assert len(scripted.queue) == 10
    assert listening.given == []
    assert scripted.broker.wait(publishing.publish(pack(0, b"jobs/2", b"y") * 3, name)) == 3
    scripted.do(consumer, consuming, Consume(_Q, 0, acknowledged=False))
    assert exactly(consumer, 10) == b"x" * 10
    assert scripted.broker.wait(publishing.publish(job, name)) == 1
    assert exactly(consumer, 1) == b"x"
