"""One call of the broker: runs the sessions' commands and gathers ``Outputs``."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from host_broker.bus.commands import (
    Announce,
    Command,
    Discard,
    Disconnect,
    Publish,
    PublishRun,
    Send,
    Subscribe,
    Unsubscribe,
)
from host_broker.bus.exchange import Exchange, Translation
from host_broker.bus.publication import RETAINED, WILL, pack
from host_broker.bus.subscriptions import Interest
from host_broker.outputs import Close, ConnectionId, Outputs, Record
from host_broker.protocols.session import ProtocolServer, Session

# A record is at most 16 MiB (docs/journal.md); a run is ended well before.
_LONG_RUN = 8 * 1024 * 1024


@dataclass(slots=True)
class Client:
    """A connection: its session, and whether the broker has asked to close it."""

    connection: ConnectionId
    session: Session
    journal_code: int
    closing: bool = False


@dataclass(slots=True)
class Stats:
    """Counts since the start."""

    publications: int = 0  # accepted from clients, wills included when they are published
    discarded: Counter[str] = field(default_factory=Counter)  # packets, by rule or limit
    closes: int = 0  # connections the broker asked to close


class Execution:
    """Executes commands in order. One record holds all publications of one client in one call."""

    def __init__(
        self,
        clients: Mapping[ConnectionId, Client],
        servers: Mapping[str, ProtocolServer],
        exchange: Exchange,
        stats: Stats,
        now: float,
    ) -> None:
        self.outputs = Outputs()
        self._clients = clients
        self._servers = servers
        self._exchange = exchange
        self._stats = stats
        self._now = now
        self._run_pieces: list[bytes] = []
        self._run_count = 0
        self._run_bytes = 0

    def run(self, client: Client, commands: Iterable[Command]) -> None:
        """Execute a session's commands on behalf of its connection."""
        for command in commands:
            self._execute(client, command)
        self._end_record(client)

    def population(self) -> None:
        """Tell the protocols that the number of clients has changed."""
        for server in self._servers.values():
            self._as_broker(server.population(len(self._clients)))

    def leave(self, client: Client) -> None:
        """Take a connection off the bus: from now on it gets nothing."""
        client.closing = True
        for interest in self._exchange.detach(client.connection):
            self._interest(interest)

    def _execute(self, client: Client, command: Command) -> None:
        match command:
            case PublishRun(data, start, end, count, parts):
                run = data[start:end]
                self._journal(client, run, count)
                sends = self.outputs.sends
                self._translate(self._exchange.publish_run(sends, run, data, start, parts))
            case Publish():
                self._publish(client, command)
            case Send(data):
                self.outputs.sends.setdefault(client.connection, []).append(data)
            case Subscribe(topic, feedback, quiet):
                self._subscribe(client, topic, feedback, quiet)
            case Unsubscribe(topic, feedback):
                self._interest(self._exchange.unsubscribe(client.connection, topic, feedback))
            case Discard(rule):
                self._stats.discarded[rule] += 1
            case Disconnect(reason, abort, connection):
                self._disconnect(connection or client.connection, reason, abort)
            case Announce():
                self._announce(command)

    def _publish(self, client: Client, command: Publish) -> None:
        if command.own:
            self._publish_own(command)
            return
        topic, body = command.topic, command.body
        if topic == b"$" or topic.startswith(b"$/"):
            self._stats.discarded["R30"] += 1  # the broker's own topics: never forwarded
            return
        flags = WILL * command.will | RETAINED * command.retain
        if body:
            self._journal(client, pack(flags, topic, body), 1)
        self._translate(self._exchange.publish(self.outputs.sends, flags, topic, body))

    def _publish_own(self, command: Publish) -> None:
        flags, topic, body = RETAINED * command.retain, command.topic, command.body
        if not topic.startswith(b"$/"):
            self.outputs.records.append(Record(0, 0, "", 1, pack(flags, topic, body)))
        self._translate(self._exchange.publish(self.outputs.sends, flags, topic, body))

    def _announce(self, command: Announce) -> None:
        sends = self.outputs.sends
        self._translate(self._exchange.announce(sends, command.topic, command.body, command.idle))

    def _subscribe(self, client: Client, topic: bytes, feedback: bool, quiet: bool) -> None:
        accepted, interest = self._exchange.subscribe(client.connection, topic, feedback, quiet)
        if not accepted:
            self._stats.discarded["fmqp.max_subscriptions"] += 1
            return
        self._interest(interest)
        retained = self._exchange.retained.equivalent(topic, feedback=feedback)
        if not retained:
            return
        if client.session.verbatim:
            self.outputs.sends.setdefault(client.connection, []).extend(retained)
        else:
            self._translate([(client.connection, packet) for packet in retained])

    def _disconnect(self, connection: ConnectionId, reason: str, abort: bool) -> None:
        client = self._clients.get(connection)
        if client is None or client.closing:
            return
        self._stats.closes += 1
        self.outputs.closes.append(Close(connection, reason, abort))
        self.leave(client)

    def _interest(self, interest: Interest | None) -> None:
        if interest is not None:
            for server in self._servers.values():
                self._as_broker(server.interest(interest))

    def _as_broker(self, commands: Iterable[Command]) -> None:
        for command in commands:
            if isinstance(command, Announce):
                self._announce(command)
            elif isinstance(command, Publish):
                self._publish_own(command)

    def _translate(self, translations: Iterable[Translation]) -> None:
        for connection, run in translations:
            client = self._clients.get(connection)
            if client is not None:
                for command in client.session.deliver(run, self._now):
                    self._execute(client, command)

    def _journal(self, client: Client, run: bytes, count: int) -> None:
        self._stats.publications += count
        self._run_pieces.append(run)
        self._run_count += count
        self._run_bytes += len(run)
        if self._run_bytes > _LONG_RUN:
            self._end_record(client)

    def _end_record(self, client: Client) -> None:
        if not self._run_count:
            return
        pieces = self._run_pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        session = client.session
        self.outputs.records.append(
            Record(client.connection, client.journal_code, session.client, self._run_count, body)
        )
        self._run_pieces, self._run_count, self._run_bytes = [], 0, 0
