"""The whole broker, pure: bytes and times in, ``Outputs`` out. It names no protocol."""

from collections.abc import Callable, Iterable

from host_broker.bus.commands import Command, PublishRun
from host_broker.bus.exchange import Exchange
from host_broker.bus.publication import HEADER, RETAINED, SERVICE, WILL, unpack_one
from host_broker.bus.routes import Group
from host_broker.clients import Client
from host_broker.deadlines import Deadlines
from host_broker.departures import Departures
from host_broker.execution import Execution, Stats, World
from host_broker.gathering import Gathering, body_of
from host_broker.outputs import Close, ConnectionId, Gathered, Outputs
from host_broker.protocols.registry import protocols
from host_broker.protocols.session import Session, Translator
from host_broker.settings import Settings

_header = HEADER.unpack_from
_LOOK_AGAIN_S = 1.0  # at the time of a connection that was not read


def _client(connection: ConnectionId, session: Session, journal_code: int) -> Client:
    translator = session if isinstance(session, Translator) else None
    return Client(connection, session, journal_code, translator)


def _counting() -> Callable[[], int]:
    """Ids without randomness: an odd stride visits all 65536 before it repeats one."""
    state = 0

    def following() -> int:
        nonlocal state
        state = (state + 40_503) & 0xFFFF
        return state

    return following


class Broker:
    """Every protocol on one bus.

    ``now`` is seconds on any clock that never goes back, the same for all calls. ``random_u16``
    returns 0 to 65535; the edge passes a real source, without one ids are a fixed sequence.
    ``journalled``: the edge wants ``Outputs.records``.
    """

    def __init__(
        self,
        settings: Settings,
        random_u16: Callable[[], int] | None = None,
        journalled: bool = True,
    ) -> None:
        limits = settings.fmqp
        random_u16 = random_u16 or _counting()
        self._servers = protocols(settings, random_u16)
        self._exchange = Exchange(
            limits.max_subscriptions,
            limits.max_cached,
            limits.max_cached_bytes,
            apart=None if limits.wildcard_matches_service else SERVICE,
        )
        self.max_body = limits.max_body  # bytes
        self._known = self._exchange.known
        self._clients: dict[ConnectionId, Client] = {}
        self._latecomers: dict[ConnectionId, Client] = {}  # to be told that the broker is ending
        self._deadlines = Deadlines()
        self._departures = Departures(self._exchange)
        self._gathering = Gathering(journalled)
        self.stats = Stats()
        self._world = World(
            self._clients,
            self._servers,
            self._exchange,
            self._deadlines,
            self._departures,
            self.stats,
            limits.max_steps_per_s,
            limits.max_discards_per_s,
            journalled,
        )

    def restore(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        """Take back retained messages that ``Outputs.retained`` gave (topic, stored form).

        Call it before anything else. Returns how many did not fit the limits; ValueError if one
        is not a retained message of its topic.
        """
        refused = self.retained_refused
        for topic, packet in entries:
            if unpack_one(packet)[:2] not in ((RETAINED, topic), (RETAINED | WILL, topic)):
                raise ValueError(f"what was kept for {topic!r} is no retained message of it")
            self._exchange.retained.put(topic, packet)
        return self.retained_refused - refused

    def opened(
        self, connection: ConnectionId, protocol: str, now: float, loopback: bool = True
    ) -> Outputs:
        """Begin a connection; ``connection`` is from 1 and never used again.

        ``loopback``: its peer is on this machine (``fmqp.signals``). While the broker is ending it
        is only told so, if its protocol has a word for that (LightMQ), or closed. ValueError if the
        protocol is unknown or the connection is already open.
        """
        server = self._servers.get(protocol)
        if server is None:
            raise ValueError(f"protocol {protocol!r} is none of {', '.join(self._servers)}")
        if connection in self._clients:
            raise ValueError(f"connection {connection} is already open")
        if self._world.ending:
            late = server.latecomer(connection, now)
            if late is None:
                return Outputs(closes=[Close(connection, "the broker is stopping", abort=True)])
            self._latecomers[connection] = _client(connection, late, server.journal_code)
            return Outputs()
        session = server.session(connection, now, loopback)
        client = self._clients[connection] = _client(connection, session, server.journal_code)
        self._exchange.attach(connection, verbatim=client.translator is None)
        execution = Execution(self._world, now)
        execution.population(client)
        self._deadlines.renew(connection, client.session.deadline)
        return execution.outputs

    def received(self, connection: ConnectionId, data: bytes, now: float) -> Outputs:
        """Take one read, immutable and at most 1 MiB; ignored for a connection being closed, and
        once the broker is ending (R34) for all that were open before."""
        clients = self._latecomers if self._world.ending else self._clients
        client = clients.get(connection)
        execution = Execution(self._world, now)
        if client is not None and not client.closing:
            self._run(execution, client, client.received(data, now))
        return execution.outputs

    def direct(self, connection: ConnectionId, data: bytes) -> Group | None:
        """Take one read, if it is one plain publication that its receivers get as it is.

        That is most of what boards say, and all that decides about it is in its first bytes: so it
        costs a few lookups, and is the shortest way from one socket to another. Returns who gets
        it. None if it was not taken; then it is for ``received`` or ``gather``. For an edge that
        keeps a journal there are no records of it.
        """
        client = self._clients.get(connection)
        size = len(data)
        if client is None or size <= HEADER.size or client.closing or self._world.ending:
            return None
        session = client.verbatim
        if session is None:
            return None
        flags, topic_length, body_length = _header(data)
        body = HEADER.size + topic_length
        if flags or not 0 < body_length <= session.max_body or body + body_length != size:
            return None
        topic = data[HEADER.size : body]
        group = self._known.get(topic)
        if group is None or group.translated or topic not in session.plain_topics:
            return None
        self.stats.publications += 1
        session.passed(1, size)
        return group

    def passed(self, connection: ConnectionId, count: int, size: int) -> None:
        """Count what the edge has passed on by itself: ``count`` whole publications, ``size`` bytes
        together, each as ``direct`` would have taken it.

        It may for a topic that ``direct`` has taken of any connection, as long as ``routes`` is the
        same, and for a connection whose reads since one of those were all taken so.
        """
        client = self._clients[connection]
        self.stats.publications += count
        if client.verbatim is not None:
            client.verbatim.passed(count, size)

    @property
    def routes(self) -> int:
        """Changes when an answer of ``direct`` may have become wrong."""
        return self._exchange.changes

    def gather(self, connection: ConnectionId, data: bytes, now: float) -> Outputs | None:
        """Take one read as ``received`` does, but keep what can be forwarded as it is.

        Returns None if that was all. Otherwise nothing of this read is kept, and what is to be done
        is to be done after what was kept before: take ``gathered`` first. It must be taken before
        any other method is called, and soon, because it is memory.
        """
        client = self._clients.get(connection)
        if client is None or client.closing or self._world.ending:
            return self.received(connection, data, now) if self._latecomers else None
        group = self.direct(connection, data)
        if group is not None:
            self._gathering.put(client, 1, data, group)
            return None
        commands = client.received(data, now)
        runs: list[tuple[PublishRun, Group]] = []
        for command in commands:
            if (
                type(command) is not PublishRun
                or (route := self._exchange.verbatim(command.topics)) is None
            ):
                execution = Execution(self._world, now)
                self._run(execution, client, commands)
                return execution.outputs
            runs.append((command, route))
        for run, route in runs:
            self.stats.publications += run.count
            self._gathering.put(client, run.count, body_of(run), route)
        if client.session.deadline is not None:
            self._deadlines.renew(connection, client.session.deadline)
        return None

    def gathered(self) -> Gathered | None:
        """Return what ``gather`` has kept since the last time."""
        return self._gathering.take()

    def closed(self, connection: ConnectionId, now: float) -> Outputs:
        """End a connection, whatever ended it: first its interests, then wills and presence, once,
        then the count of clients. Nothing is to be sent to it any more.

        Of one with many subscriptions the interests come last, and most of them when ``tick`` is
        called: wills do not wait, or they would replace what the same client says when it is back.
        """
        self._latecomers.pop(connection, None)
        client = self._clients.pop(connection, None)
        execution = Execution(self._world, now)
        if client is None:
            return execution.outputs
        execution.leave(client)
        self._run(execution, client, client.session.closed(now))
        execution.population(client)
        if connection in self._departures:
            execution.go_on_leaving()
            execution.outputs.sends.pop(connection, None)  # it is not off the bus yet
        return execution.outputs

    def wanted(self, topic: bytes) -> bool:
        """Whether anybody is subscribed to a topic equivalent to ``topic``."""
        self._exchange.work.left = self._world.max_steps_per_s
        return self._exchange.wanted(topic)

    def stopping(self) -> None:
        """Begin the end (R33, R34): nothing more is read, and whoever comes is told so."""
        self._world.end()

    def stop(self, now: float) -> Outputs:
        """End all connections together: every will runs while everyone is still subscribed.

        FMQP R36 and R37: all wills are sent, and received. Afterwards the broker knows nobody.
        """
        self.stopping()
        execution = Execution(self._world, now)
        while self._departures.due is not None:
            execution.go_on_leaving()
        for client in list(self._clients.values()):
            client.steps = 0
            self._run(execution, client, client.session.closed(now))
        self._clients.clear()
        return execution.outputs

    def tick(
        self, now: float, unread: Callable[[ConnectionId], bool] = lambda connection: False
    ) -> Outputs:
        """Do what is due; call it when ``next_deadline()`` has come.

        ``unread``: whether something that a connection's peer has sent may still be unread, because
        the edge lets it wait. Then nobody knows whether it is silent, and it is looked at later.
        """
        execution = Execution(self._world, now)
        if self._world.ending:
            return execution.outputs
        if self._departures.due is not None:
            execution.go_on_leaving()
        for connection in self._deadlines.due(now):
            client = self._clients.get(connection)
            if client is None or client.closing:
                continue
            if unread(connection):
                self._deadlines.renew(connection, now + _LOOK_AGAIN_S)
            else:
                self._run(execution, client, client.session.tick(now))
        return execution.outputs

    def next_deadline(self) -> float | None:
        """When ``tick`` is wanted; may come a little before anything is due."""
        if self._world.ending:
            return None
        due = self._departures.due
        return self._deadlines.next() if due is None else due

    @property
    def retained_count(self) -> int:
        """The number of retained messages, of both topic systems."""
        return self._exchange.retained.count

    @property
    def retained_refused(self) -> int:
        """Messages that were to be retained and did not fit the limits, since the start."""
        return self._exchange.retained.refused

    def _run(self, execution: Execution, client: Client, commands: Iterable[Command]) -> None:
        execution.run(client, commands)
        self._deadlines.renew(client.connection, client.session.deadline)
