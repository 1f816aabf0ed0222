"""A protocol whose sessions say what a test tells them to: the bus's commands, without a codec.

It is a protocol like any other to the broker. What it is given is kept, as it comes.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from host_broker.bus.commands import Command
from host_broker.bus.delivery import Delivery, QueueDelivery
from host_broker.bus.publication import Run, pack
from host_broker.bus.subscriptions import Interest
from host_broker.outputs import ConnectionId
from host_broker.protocol import BrokerContext, ProtocolServer, ProtocolSpec, Session
from tests.host_broker.desk import Desk, Done

Given = Delivery | QueueDelivery
READ = b"."  # each has a session say the next of its lines


@dataclass
class ScriptedSession(Session):
    """``lines``: what it says at each read. ``reply``: what it says to what it is given."""

    verbatim: bool
    client: str = ""
    deadline: float | None = None
    latest: float | None = None
    lines: deque[Sequence[Command]] = field(default_factory=deque)
    given: list[Given] = field(default_factory=list)
    reply: Callable[[Given], Sequence[Command]] = lambda given: ()
    due: Sequence[Command] = ()
    last: Sequence[Command] = ()
    first: Sequence[Command] = ()
    fails: bool = False  # whatever it is asked
    refusals: list[tuple[str, bytes]] = field(default_factory=list)

    def opened(self, now: float) -> Sequence[Command]:
        return self.first

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        self._fail()
        if len(data) == 1:
            return self.lines.popleft()
        return [command for _ in range(len(data)) for command in self.lines.popleft()]

    def deliver(self, delivery: Given, now: float) -> Sequence[Command]:
        self._fail()
        self.given.append(delivery)
        return self.reply(delivery)

    def refused(self, action: str, topic: bytes) -> Sequence[Command]:
        self._fail()
        self.refusals.append((action, topic))
        return ()

    def tick(self, now: float) -> Sequence[Command]:
        self._fail()
        self.deadline = None
        return self.due

    def closed(self, now: float) -> Sequence[Command]:
        self._fail()
        return self.last

    def _fail(self) -> None:
        if self.fails:
            raise RuntimeError("a mistake in a protocol")


class ScriptedServer(ProtocolServer):
    """``heard``: called with what it is told of interests and of the number of clients."""

    idle_timeout_s = 0.0
    stored_form = False

    def __init__(self, verbatim: bool) -> None:
        self._verbatim = verbatim
        self.sessions: dict[ConnectionId, ScriptedSession] = {}
        self.heard: Callable[[Interest | int], Sequence[Command]] = lambda news: ()
        self.first: Sequence[Command] = ()  # what its sessions say before they are asked

    def session(self, connection: ConnectionId, now: float, loopback: bool) -> ScriptedSession:
        made = self.sessions[connection] = ScriptedSession(self._verbatim, first=self.first)
        return made

    def refusing(self, connection: ConnectionId, now: float) -> Session | None:
        return None

    def interest(self, interest: Interest) -> Sequence[Command]:
        return self.heard(interest)

    def client_count(self, count: int) -> Sequence[Command]:
        return self.heard(count)


def specs(*servers: ScriptedServer) -> Mapping[str, ProtocolSpec]:
    """Return ``translating`` and ``verbatim``, of these servers in this order."""

    def made(server: ScriptedServer) -> Callable[[Any, BrokerContext], ScriptedServer]:
        return lambda settings, context: server

    names = ("translating", "verbatim")
    return {
        name: ProtocolSpec(name=name, title=name, journal_code=200 + number, server=made(server))
        for number, (name, server) in enumerate(zip(names, servers, strict=True))
    }


class Stage(Desk):
    """A broker whose clients speak the scripted protocol."""

    def __init__(self, bus: dict[str, Any] | None = None, **more: Any) -> None:
        self.servers = ScriptedServer(verbatim=False), ScriptedServer(verbatim=True)
        super().__init__(bus=bus, specs=specs(*self.servers), **more)

    def enter(self, verbatim: bool = False) -> int:
        return self.open("verbatim" if verbatim else "translating")

    def session(self, connection: int) -> ScriptedSession:
        for server in self.servers:
            if connection in server.sessions:
                return server.sessions[connection]
        raise LookupError(connection)

    def do(self, connection: int, *commands: Command) -> Done:
        """Have a session say these in one read."""
        self.session(connection).lines.append(commands)
        return self.send(connection, READ)

    def given(self, connection: int) -> list[Given]:
        """Take what a session was given since the last time."""
        session = self.session(connection)
        given, session.given = session.given, []
        return given

    def queued(self, connection: int) -> list[bytes]:
        """Take the bodies of the queues' messages that a session was given."""
        return [
            message.body
            for each in self.given(connection)
            if isinstance(each, QueueDelivery)
            for message in each.messages
        ]

    def congested(self, connection: int, congested: bool) -> Done:
        self.broker.congested(connection, congested, self.now)
        return self.done()


def run(*publications: tuple[bytes, bytes]) -> Run:
    """Return plain publications (topic, body) of one read."""
    data = b"".join(pack(0, topic, body) for topic, body in publications)
    return Run(data, 0, len(data), len(publications))
