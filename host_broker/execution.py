"""One call of the broker: runs the sessions' commands and gathers ``Outputs``."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from host_broker.bus.commands import (
    Announce,
    Command,
    Discard,
    Disconnect,
    Publish,
    PublishRun,
    Send,
    Signal,
    Subscribe,
    Unsubscribe,
    Wake,
)
from host_broker.bus.exchange import Exchange, Translation
from host_broker.bus.publication import RETAINED, WILL, is_service, pack
from host_broker.bus.subscriptions import Interest
from host_broker.clients import Client
from host_broker.deadlines import Deadlines
from host_broker.departures import Departures
from host_broker.outputs import Close, ConnectionId, Outputs, Record
from host_broker.protocols.session import ProtocolServer

# A record is at most 16 MiB (docs/journal.md): a run is ended as soon as it is this long, and
# what makes it so is at most a read and the longest body, 8 MiB.
_LONG_RUN = 4 * 1024 * 1024
_LENIENCE_S = 0.1  # of discarded packets at once: a mistake is none to rest for
_WORTH_A_RECORD = 32 * 1024  # bytes; more is not copied to be in one record with what came before


@dataclass(slots=True)
class Stats:
    """Counts since the start."""

    publications: int = 0  # accepted from clients, wills included when they are published
    discarded: Counter[str] = field(default_factory=Counter)  # packets, by rule or limit
    closes: int = 0  # connections the broker asked to close


@dataclass(slots=True)
class World:
    """What all calls of one broker share."""

    clients: dict[ConnectionId, Client]
    servers: Mapping[str, ProtocolServer]
    exchange: Exchange
    deadlines: Deadlines
    departures: Departures
    stats: Stats
    max_steps_per_s: int
    max_discards_per_s: int
    journalled: bool = True  # records are wanted
    ending: bool = False  # a signal has come, or Broker.stop: nothing more is read

    def end(self) -> None:
        """Read nothing more."""
        self.ending = True
        self.exchange.forget()  # for an edge that passes on what it knows the way of


class Execution:
    """Executes commands in order. The short runs of one client in one call share a record."""

    __slots__ = ("_now", "_pieces", "_run_bytes", "_run_count", "_world", "outputs")

    def __init__(self, world: World, now: float) -> None:
        self.outputs = Outputs()
        self._world = world
        self._now = now
        self._pieces: list[bytes] = []
        self._run_count = 0
        self._run_bytes = 0
        world.exchange.work.left = world.max_steps_per_s

    def run(self, client: Client, commands: Iterable[Command]) -> None:
        """Execute a session's commands on behalf of its connection, up to a signal (R34).

        A client that makes the broker search more than ``fmqp.max_steps_per_s`` is disconnected:
        wildcards can ask for thousands of times what they cost to send.
        """
        work = self._world.exchange.work
        if client.steps:
            self._pay_off(client)
        before = work.left = self._world.max_steps_per_s - client.steps
        for command in commands:
            _EXECUTE[type(command)](self, client, command)
            if self.outputs.signal or work.left <= 0:
                break
        if work.left != before:
            if not client.steps:
                client.paid = self._now
            client.steps += before - work.left
            if work.left <= 0:
                self._overworked(client)
        if self._run_count:
            self._end_record(client)

    def population(self, client: Client) -> None:
        """Tell the protocols that the number of clients has changed, because of this one."""
        for server in self._world.servers.values():
            self._all(client, server.population(len(self._world.clients)))

    def leave(self, client: Client) -> None:
        """Take a connection off the bus: from now on it gets nothing.

        With many subscriptions that goes on step by step, whenever the broker is called.
        """
        client.closing = True
        client.steps = 0  # its wills are searched for as anybody's
        departures = self._world.departures
        if client.connection in departures:
            return
        if departures.worth_it(client.connection):
            departures.begin(client, self._now)
            return
        work = self._world.exchange.work
        left, work.left = work.left, self._world.max_steps_per_s
        for interest in list(self._world.exchange.detach(client.connection)):
            self.interest(client, interest)
        work.left = left

    def go_on_leaving(self) -> None:
        """End the next subscriptions of those who leave step by step."""
        for client, interest in self._world.departures.step(self._now):
            self.interest(client, interest)

    def _pay_off(self, client: Client) -> None:
        passed = self._now - client.paid
        client.steps = max(0, client.steps - int(passed * self._world.max_steps_per_s))
        client.paid = self._now

    def _overworked(self, client: Client) -> None:
        if client.closing:
            return
        limit = self._world.max_steps_per_s
        reason = f"it asked for more than fmqp.max_steps_per_s = {limit} steps through the index"
        self._world.stats.discarded["fmqp.max_steps_per_s"] += 1
        self._disconnect(client, Disconnect(reason, abort=True))
        self.outputs.sends.pop(client.connection, None)

    def _all(self, client: Client, commands: Iterable[Command]) -> None:
        for command in commands:
            _EXECUTE[type(command)](self, client, command)

    def _publish_run(self, client: Client, command: PublishRun) -> None:
        data, start = command.data, command.start
        run = data[start : command.end]
        self._journal(client, run, command.count)
        translations = self._world.exchange.publish_run(self.outputs.sends, run, command.topics)
        if translations:
            self._translate(translations)

    def _publish(self, client: Client, command: Publish) -> None:
        topic, body, retain, own = command.topic, command.body, command.retain, command.own
        if is_service(topic) and not own:
            self._world.stats.discarded["R30"] += 1  # the broker's own: never forwarded
            return
        if not body:
            # FMQP R18: never delivered; A6: with the flag it clears.
            if retain:
                self._clear(topic)
            return
        packet = pack(WILL * command.will | RETAINED * retain, topic, body)
        if not own:
            if not command.again:
                self._journal(client, packet, 1)
        elif self._world.journalled and not is_service(topic):
            self.outputs.records.append(Record(0, 0, "", 1, packet))
        if retain:
            kept = self._world.exchange.retained.put(topic, packet)
            if not own:
                self.outputs.retained[topic] = packet if kept else None
        self._translate(self._world.exchange.publish(self.outputs.sends, topic, packet))

    def _clear(self, topic: bytes) -> None:
        if self._world.exchange.retained.clear(topic):
            self.outputs.retained[topic] = None

    def _signal(self, client: Client, command: Signal) -> None:
        if not self._world.ending:
            self._world.end()
            self.outputs.signal = command.kind

    def _announce(self, client: Client, command: Announce) -> None:
        sends, topic = self.outputs.sends, command.topic
        exchange = self._world.exchange
        self._translate(exchange.announce(sends, topic, command.body, command.idle))
        if command.forget:
            exchange.retained.clear(topic, feedback=True)

    def _subscribe(self, client: Client, command: Subscribe) -> None:
        topic, feedback, exchange = command.topic, command.feedback, self._world.exchange
        connection = client.connection
        accepted, interest = exchange.subscribe(connection, topic, feedback, command.quiet)
        if not accepted:
            self._world.stats.discarded["fmqp.max_subscriptions"] += 1
            return
        self.interest(client, interest)
        retained = exchange.retained.equivalent(topic, feedback=feedback)
        if client.translator is not None:
            self._translate((connection, packet) for packet in retained)
        elif retained:
            self.outputs.sends.setdefault(connection, []).extend(retained)

    def _unsubscribe(self, client: Client, command: Unsubscribe) -> None:
        exchange = self._world.exchange
        ended = exchange.unsubscribe(client.connection, command.topic, command.feedback)
        self.interest(client, ended)

    def _send(self, client: Client, command: Send) -> None:
        self.outputs.sends.setdefault(client.connection, []).append(command.data)

    def _disconnect(self, client: Client, command: Disconnect) -> None:
        ended: Client | None = client
        if command.connection is not None:
            ended = self._world.clients.get(command.connection)
        if ended is None or ended.closing:
            return
        self._world.stats.closes += 1
        self.outputs.closes.append(Close(ended.connection, command.reason, command.abort))
        self.leave(ended)

    def _wake(self, client: Client, command: Wake) -> None:
        woken = self._world.clients.get(command.connection)
        if woken is not None and not woken.closing:
            self._all(woken, woken.session.tick(self._now))
            self._world.deadlines.renew(woken.connection, woken.session.deadline)

    def _discard(self, client: Client, command: Discard) -> None:
        self._world.stats.discarded[command.rule] += command.count
        self._charge(client, command.distinct)

    def _charge(self, client: Client, packets: int) -> None:
        """Let a client rest that sends more to be discarded than ``fmqp.max_discards_per_s``.

        R4 forbids no more than the effect: its connection is kept, it only waits its turn.
        """
        limit = self._world.max_discards_per_s
        passed = self._now - client.discards_paid
        client.discards_paid = self._now
        client.discards = max(0.0, client.discards - passed * limit) + packets
        if client.discards > limit * _LENIENCE_S:
            self.outputs.rest_s = client.discards / limit

    def interest(self, client: Client, interest: Interest | None) -> None:
        """Tell the protocols that an interest began or ended, because of this client."""
        if interest is not None:
            for server in self._world.servers.values():
                self._all(client, server.interest(interest))

    def _translate(self, translations: Iterable[Translation]) -> None:
        for connection, run in translations:
            receiver = self._world.clients.get(connection)
            if receiver is not None and receiver.translator is not None:
                self._all(receiver, receiver.translator.deliver(run, self._now))
                self._world.deadlines.renew(connection, receiver.session.deadline)

    def _journal(self, client: Client, run: bytes, count: int) -> None:
        self._world.stats.publications += count
        if not self._world.journalled:
            return
        if self._run_count and len(run) > _WORTH_A_RECORD:
            self._end_record(client)
        self._pieces.append(run)
        self._run_count += count
        self._run_bytes += len(run)
        if self._run_bytes > _LONG_RUN:
            self._end_record(client)

    def _end_record(self, client: Client) -> None:
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        name = client.session.client
        self.outputs.records.append(
            Record(client.connection, client.journal_code, name, self._run_count, body)
        )
        self._pieces, self._run_count, self._run_bytes = [], 0, 0


_EXECUTE: dict[type[Any], Callable[[Execution, Client, Any], None]] = {
    PublishRun: Execution._publish_run,
    Publish: Execution._publish,
    Announce: Execution._announce,
    Subscribe: Execution._subscribe,
    Unsubscribe: Execution._unsubscribe,
    Send: Execution._send,
    Disconnect: Execution._disconnect,
    Wake: Execution._wake,
    Discard: Execution._discard,
    Signal: Execution._signal,
}
