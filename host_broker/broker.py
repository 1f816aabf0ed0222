"""The whole broker, pure: bytes and times in, ``Outputs`` out. It names no protocol.

Every publication takes one way: a session's commands come to ``_run``, a run of plain publications
to ``_publish_run`` (split by route, dealt to receivers), a single one to ``_publish``; both end in
``_forward`` for those who take the stored form and in ``_match`` for all others. What many reads
have for the same receivers is gathered until the edge takes it, once a turn of its event loop.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import nsmallest
from itertools import chain, islice
from typing import Any
from weakref import ref

from host_broker.access.access import Accepted, Access, Peer, Refused, Undecided
from host_broker.access.principal import ANONYMOUS, INTERNAL, Principal
from host_broker.access.rights import Decision
from host_broker.access.rules import Action
from host_broker.access.sessions import LoginSession, LoginSessions
from host_broker.broker_view import CallTopics, ClientFacts, WillFacts
from host_broker.bus.batch import Batch, at, only
from host_broker.bus.bus import Bus
from host_broker.bus.commands import (
    Acknowledge,
    ActAs,
    Announce,
    Ask,
    Authenticate,
    ChangeTables,
    Checkpoint,
    Command,
    Complain,
    Consume,
    DeleteQueue,
    Dial,
    Discard,
    Disconnect,
    Enqueue,
    HoldPublishers,
    OpenQueue,
    Pace,
    Ping,
    Ponged,
    Publish,
    PublishMany,
    Remember,
    Reply,
    Send,
    Signal,
    StopConsuming,
    Subscribe,
    Suspect,
    Unsubscribe,
    Wake,
)
from host_broker.bus.delivery import (
    Delivery,
    Filter,
    QueueDelivery,
    QueuedMessage,
    SubscriptionId,
)
from host_broker.bus.ordered import OrderedKeys
from host_broker.bus.outcomes import Outcomes
from host_broker.bus.permitted import PermittedTables, PermittedTopics
from host_broker.bus.publication import (
    FEEDBACK,
    HEADER,
    NO_PROPERTIES,
    PACKETS,
    RETAINED,
    SERVICE,
    WILL,
    WITH_PROPERTIES,
    Properties,
    Run,
    is_service,
    pack,
    pack_properties,
    pack_with_properties,
    property_fault,
    topic_fault,
    unpack,
    unpack_one,
    unpack_properties,
)
from host_broker.bus.queue import (
    Queue,
    read_attributes,
    read_place,
    read_remembered,
    spell_attributes,
    spell_place,
    spell_remembered,
    spell_state,
)
from host_broker.bus.retained import RetainedMessage
from host_broker.bus.routes import Match, Route
from host_broker.bus.subscriptions import Interest, SubscriberId, SubscriptionKey
from host_broker.bus.topic_table import TopicTable, deal
from host_broker.deadlines import Deadlines
from host_broker.gradual_unsubscribe import GradualUnsubscribe
from host_broker.outputs import (
    LONGEST_CLIENT,
    Buffer,
    Close,
    ConnectionId,
    Denial,
    ExtraOutputs,
    Failure,
    Forward,
    Login,
    Outgoing,
    Outputs,
    Record,
)
from host_broker.pages import PageRequest
from host_broker.protocol import BrokerContext, ProtocolServer, ProtocolSpec, Session
from host_broker.registry import RegistryError, protocols
from host_broker.settings import HttpSettings, Settings, SlowPolicy, live_names
from host_broker.stats import Stats
from host_broker.tables import Rows
from host_broker.wire.budget import Budget

_header = HEADER.unpack_from
_LOOK_AGAIN_S = 1.0  # at the time of a connection that was not read
_MOST_LOOKS = 256  # at consumers, to find out whether one waits for itself; then it does not
# A record is at most 16 MiB (docs/journal.md): a run is ended as soon as it is this long, and
# what makes it so is at most a read and the longest body, 8 MiB.
_LONG_RECORD = 4 * 1024 * 1024
_SHARED_RECORD = 32 * 1024  # bytes; more is not copied to be in one record with what came before
_LENIENCE_S = 0.1  # of discarded packets at once: a mistake is none to rest for
# Dealing copies what a receiver gets; above so many times the run's length slices are shared.
_MOST_COPIES = 8
# Retained answers, and what waits in queues, are handed out this much at a time; the rest waits
# until it has drained.
_STEP_BYTES = 256 * 1024
# Steps through the index that a part of this process makes at once: some 5 ms, then others have
# their turn.
STEPS_AT_ONCE = 8_000
_MOST_FAILURES = 100  # of filters, told in one turn: one may fail for each publication
_MOST_DENIALS = 20  # told in one turn
_STEPS_OF_A_FILTER = 4  # it takes so many times as long as a step
_MOST_MAKERS = 16  # for whom one subscription of a queue is made: the latest
_MOST_PINGS = 1000  # that are not answered yet; the oldest gives way to one more
_SHOWN_PATTERNS = 20  # of a client's subscriptions
_STEPS_OF_A_LOOK = 4  # at a topic or a client, among all
_JUDGED_AT_ONCE = 256  # subscriptions, when the rules have changed: a few ms
_LOOKS_AT_ONCE = 1000  # at clients, among all: about 1 ms; then others have their turn
_HELD_LOGIN = "login"  # why a connection is not read


@dataclass(slots=True, eq=False)
class _RetainedAnswer:
    """What a client is still to be told about a subscription that it has just made."""

    messages: deque[ref[RetainedMessage]]  # one that was replaced is not kept for this
    subscription: Subscribe


@dataclass(slots=True, eq=False)
class Client:
    """One connection.

    ``alone`` is the connection as the only receiver. ``internal``: it is a part of this process,
    counted by nobody. ``recorded_as`` is the name that its records have: one that they can have.
    ``answers`` are what it is still to be told of retained messages; meanwhile, or while it pays
    for steps, what it asks for waits in ``suspended``. ``told``: bytes of answers
    since it has drained. ``published`` counts its publications. ``queues`` are those it consumes,
    ``own_queues``
    those of them for which it needs no right. ``held_by``: full queues it has to wait for.
    ``congested``: its connection takes no more for now; ``paced``: its session waits until that has
    taken what it was given; ``is_sent``: what was on its way to it from queues when it ended counts
    as sent, None: nobody knows yet; ``holds``: its session takes no more, so
    that ``slow`` says what happens to what is published to it. ``principal`` is who it is.
    ``topics`` are those it may publish, with their routes: that is one table for all who may the
    same. ``permitted`` has the table if it is not the bus's own. ``login``: what waits for a
    verdict. ``peer``: what the edge knows of the other end; ``since_ms``: when it came, since 1970.
    """

    connection: ConnectionId
    spec: ProtocolSpec
    session: Session
    alone: tuple[ConnectionId, ...]
    internal: bool = False
    recorded_as: str = ""
    closing: bool = False
    published: int = 0
    congested: bool = False
    paced: bool = False
    is_sent: bool | None = True
    holds: bool = False
    slow: SlowPolicy = "pause"
    answers: deque[_RetainedAnswer] | None = None
    told: int = 0
    suspended: deque[Command] | None = None
    queues: set[bytes] | None = None
    own_queues: frozenset[bytes] = frozenset()
    held_by: set[bytes] | None = None
    principal: Principal = ANONYMOUS
    topics: TopicTable[Route] | dict[bytes, Route] | None = None  # not looked for yet
    permitted: PermittedTopics[Route] | None = None
    login: tuple[Authenticate, Undecided] | None = None
    peer: Peer = Peer()  # noqa: RUF009 - it is frozen
    since_ms: int = 0
    steps: int = 0  # through the index, made for it and not yet paid off
    steps_paid: float = 0.0  # until when they were
    discards: float = 0.0  # packets, not yet paid off
    discards_paid: float = 0.0  # until when they were


@dataclass(frozen=True, slots=True)
class _Pinged:
    """Somebody waits for a client's sign of life."""

    asker: ConnectionId
    pinged: ConnectionId
    began: float
    answer: Callable[[float | None, str], Sequence[Command]]


@dataclass(slots=True)
class _Search:
    """A client that is to be asked for a sign of life is looked for among all, by what it is
    called. ``before``: those who came since were looked at (None: nobody was yet). ``mute``: one is
    called so, and cannot be asked."""

    client: Client
    command: Ping
    before: ConnectionId | None = None
    mute: ProtocolSpec | None = None


class _NoSession(Session):
    """Of a client whose own is just being made."""

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        return ()


_NO_SESSION = _NoSession()


def _why(decision: Decision) -> str:
    return str(decision.rule) if decision.rule is not None else decision.reason


def _behind(connection: ConnectionId) -> bytes:
    """Return what publishers are held by that wait for a session: no queue is called so."""
    return b"\0%d" % connection


def _places(routes: Sequence[Route]) -> dict[Route, Sequence[int]]:
    """Return where the messages of each route are."""
    if len(set(routes)) == 1:
        return {routes[0]: range(len(routes))}
    places: dict[Route, list[int]] = {}
    for place, route in enumerate(routes):
        its = places.get(route)
        if its is None:
            places[route] = [place]
        else:
            its.append(place)
    return dict(places)


def _topic_at(data: bytes, position: int) -> tuple[bytes, int]:
    """Return the topic of the packet at ``position``, and where the next one begins."""
    _, topic_length, body_length = _header(data, position)
    topic = position + HEADER.size
    body = topic + topic_length
    return data[topic:body], body + body_length


def _id_sequence() -> Callable[[], int]:
    """Ids without randomness: an odd stride visits all 65536 before it repeats one."""
    state = 0

    def next_id() -> int:
        nonlocal state
        state = (state + 40_503) & 0xFFFF
        return state

    return next_id


class Broker:
    """Every protocol on one bus.

    ``now`` is seconds on any clock that never goes back, the same for all calls. What the calls
    want done gathers until ``take`` gives it. ``random_u16`` returns 0 to 65535; the edge passes a
    real source, without one ids are a fixed sequence. ``journalled``: the edge wants
    ``Outputs.records``, and keeps what durable queues have. ``specs``: the protocols, by name; the
    registered ones by default. ``access``: users and their rights; by default there are no users.
    ``node``: 4 bytes that tell this broker from others. ``clock_ns``: nanoseconds, to measure how
    long something takes; nothing else depends on it. ``wall_ns``: the time of day, since 1970, for
    people. ``remembers``: the edge wants ``Outputs.records`` without a journal, too, from the first
    client on whose protocol may ask for the past.

    ``http`` are the settings of HTTP as they are now.
    Raises ``RegistryError`` if a protocol's server cannot be made.
    """

    def __init__(
        self,
        settings: Settings,
        random_u16: Callable[[], int] | None = None,
        journalled: bool = True,
        specs: Mapping[str, ProtocolSpec] | None = None,
        access: Access | None = None,
        node: bytes = b"\x7f\0\0\1",
        clock_ns: Callable[[], int] = lambda: 0,
        wall_ns: Callable[[], int] = lambda: 0,
        remembers: bool = False,
    ) -> None:
        self.stats = Stats()
        self.http: HttpSettings = settings.http
        self._specs = protocols() if specs is None else specs
        if access is None:
            access = Access(
                paths=[each.client_paths for each in self._specs.values() if each.client_paths]
            )
        self.access = access
        self._servers: dict[str, ProtocolServer] = {}
        self._limits = settings.bus
        self._bus = Bus(
            settings.bus, SERVICE, lambda topic: access.rights.is_guarded(topic), stores=journalled
        )
        self._work = self._bus.work
        self._topics = self._bus.topics
        self._recording = self._stores = journalled
        self._remembers = remembers
        self._wall_ns = wall_ns
        self._questions: dict[int, tuple[Client, Callable[[Any], Sequence[Command]]]] = {}
        self._last_question = 0
        self._pings: dict[int, _Pinged] = {}
        self._last_ping = 0
        self._searches: deque[_Search] = deque()
        self._judging: Iterator[None] | None = None  # what was made before the rules changed
        self._clients: dict[ConnectionId, Client] = {}
        # Without those of this process: their ids, and how many there are by protocol.
        self._in_order: OrderedKeys[ConnectionId] = OrderedKeys()
        self._counts: Counter[str] = Counter()
        self._refused: dict[ConnectionId, Client] = {}  # to be told that the broker is ending
        self._deadlines = Deadlines()
        self._leaving: GradualUnsubscribe[Client] = GradualUnsubscribe(self._bus)
        self._behind_count = 0  # clients that have publishers wait
        self._held: dict[bytes, dict[ConnectionId, Client]] = {}  # who waits for full queues
        self._permitted: PermittedTables[tuple[Principal, str], Route] = PermittedTables(
            self._bus.forget_permitted
        )
        # For whom queues are subscribed, and as whose clients.
        self._makers: dict[SubscriberId, dict[SubscriptionKey, dict[Principal, ProtocolSpec]]] = {}
        self._arriving: Client | None = None  # its session is being made
        self._delivering: set[Queue] = set()  # they are giving messages to consumers
        self._undelivered: dict[bytes, Queue] = {}  # they got many messages in this turn
        self._blocking: dict[bytes, Queue] = {}  # they were full: their publishers may have to wait
        self._ending = False  # a signal has come, or stop: nothing more is read
        self._held_memory = Budget(settings.bus.max_held_bytes)
        self._remembered: dict[bytes, bytes] = {}  # by protocols, across restarts
        context = BrokerContext(
            settings.bus,
            random_u16 or _id_sequence(),
            self._held_memory,
            self.stats,
            self._topics,
            self._servers,
            self._topics_of_connection,
            self._bus.queues,
            journalled,
            self._address_of_connection,
            node,
            clock_ns,
            wall_ns,
            self,
            self._remembered,
        )
        for name, spec in self._specs.items():
            section = spec.section or name
            own = None if spec.settings is None else settings.section(section, spec.settings)
            try:
                self._servers[name] = spec.server(own, context)
            except RegistryError:
                raise
            except Exception as error:  # whatever somebody else's protocol may raise
                raise RegistryError(f"the protocol {name!r} cannot start: {error!r}") from error
        # Of the call under way: its time, and whose read it is about.
        self._now = 0.0
        self._cause: ConnectionId = 0
        self._outputs = Outputs()
        self._last_forward: Forward | None = None  # of the outputs
        # The last record of the outputs, if the next short run of its client in the same call is to
        # be in it, too; the bodies of all of them if there are several, and their bytes.
        self._shared_record: Record | None = None
        self._shared_bodies: list[Buffer] = []
        self._shared_bytes = 0

    # ---- what the edge says ----

    def restore(self, entries: Iterable[tuple[bytes, bytes, bytes]]) -> int:
        """Take back what ``ExtraOutputs.retained`` gave (topic, packet, properties).

        Call it before anything else. Returns how many did not fit the limits; ValueError if one
        is not a retained message of its topic.
        """
        refused = self.retained_refused
        for topic, packet, spelled in entries:
            if unpack_one(packet)[:2] not in ((RETAINED, topic), (RETAINED | WILL, topic)):
                raise ValueError(f"what was kept for {topic!r} is no retained message of it")
            self._bus.retained.put(topic, packet, unpack_properties(spelled))
        return self.retained_refused - refused

    def restore_queues(self, entries: Iterable[tuple[bytes, bytes, bytes]]) -> int:
        """Take back what ``ExtraOutputs.queued`` gave (key, and the two parts), in the order of
        queues and numbers.

        Call it before anything else. Returns how many messages there are; ValueError if one is
        none.
        """
        count = 0
        for key, first, second in entries:
            name, number = read_place(key)
            remembered = read_remembered(name)
            if remembered is not None:
                self._remembered[remembered] = first
                continue
            if number == 0:
                how = read_attributes(first)
                queue = self._bus.open_queue(name, durable=True, restored=True, **how)
                if queue is not None:
                    queue.restore_state(second)
                    queue.is_stored = True
                continue
            queue = self._bus.queues.get(name)
            if queue is None:
                raise ValueError(f"a message of the queue {name!r}, which is not there")
            _, topic, body = unpack_one(first)
            queue.restore(number, topic, body, unpack_properties(second))
            count += 1
        for queue in self._bus.queues.values():
            self._note_blocking(queue)
        return count

    def opened(
        self,
        connection: ConnectionId,
        protocol: str,
        now: float,
        loopback: bool = True,
        internal: bool = False,
        peer: Peer | None = None,
        principal: Principal | None = None,
        slow: SlowPolicy = "pause",
        dialed: object = None,
    ) -> None:
        """Begin a connection; ``connection`` is from 1 and never used again.

        ``loopback``: its peer is on this machine. ``internal``: it is a part of this process, which
        acts for ``principal``. ``peer`` is what is known of the other end of any other one, and
        ``slow`` what is done if it takes too little. ``dialed``: we have connected, for this tag,
        and what comes is ours to publish, whatever the ACL says of others. While the broker is
        ending it is only told so, if its protocol has a word for that, or closed.
        ValueError if the protocol is unknown or the connection is already open.
        """
        spec = self._specs.get(protocol)
        if spec is None:
            raise ValueError(f"protocol {protocol!r} is none of {', '.join(self._specs)}")
        if connection in self._clients:
            raise ValueError(f"connection {connection} is already open")
        server = self._servers[protocol]
        self._begin(connection, now)
        if self._ending:
            refusing = server.refusing(connection, now)
            if refusing is None:
                close = Close(connection, "the broker is stopping", abort=True)
                self._extra.closes.append(close)
            else:
                self._refused[connection] = Client(connection, spec, refusing, (connection,))
            return
        if principal is None:
            ours = internal or dialed is not None
            principal = INTERNAL if ours else self.access.identify(peer or Peer())
        if not (self.access.is_open or spec.authenticates or internal or dialed is not None):
            decision = self.access.allows(principal, "connect", spec.name)
            if not decision:
                self.stats.discard(spec.name, "access.connect")
                self._note_stranger(principal, spec, _why(decision))
                reason = f"{principal} may not connect by {spec.title}: {_why(decision)}"
                self._extra.closes.append(Close(connection, reason, abort=True))
                return
        if not spec.authenticates or internal or dialed is not None:
            self._look_back(spec)
        client = Client(
            connection, spec, _NO_SESSION, (connection,), internal, principal=principal, slow=slow
        )
        client.since_ms = self._wall_ns() // 1_000_000
        if peer is not None:
            client.peer = peer
        self._arriving = client
        if dialed is not None:
            session = client.session = server.dialed(connection, dialed, now)
        elif internal:
            session = client.session = server.internal(connection, now)
        else:
            session = client.session = server.session(connection, now, loopback)
        self._arriving = None
        self._clients[connection] = client
        self._bus.attach(connection, session.verbatim)
        if not internal:
            self._in_order.add(connection)
            self._counts[protocol] += 1
        self._tell_client_count(client)
        self._run(client, self._ask(client, session.opened, now))
        self._renew(client)

    def _look_back(self, spec: ProtocolSpec) -> None:
        """Have what is published remembered from now on: somebody is there who may ask for it."""
        self._recording = self._recording or (spec.looks_back and self._remembers)

    def received(self, connection: ConnectionId, data: bytes, now: float) -> None:
        """Take one read, immutable and at most 1 MiB; ignored for a connection being closed, and
        once the broker is ending (FMQP R34) for all that were open before."""
        client = (self._refused if self._ending else self._clients).get(connection)
        if client is None or client.closing:
            return
        session = client.session
        self._cause, self._now = connection, now
        try:
            commands = session.received(data, now)
        except Exception as error:
            self._fail(client, error)
            return
        if client.suspended is None:
            self._run(client, commands)
        else:
            self._suspend(client, commands)
        if session.deadline is not None:
            self._renew(client)

    def asked(self, connection: ConnectionId, request: PageRequest, now: float) -> None:
        """Have a connection of this process answer a page: ``ExtraOutputs.answers``.

        Nothing is answered once the broker is ending, or if the session fails, which is among the
        closes then. What asks for many steps goes on by ``proceed``, as for anybody.
        """
        client = self._internal(connection, now)
        if client is not None:
            self._run(client, self._ask(client, client.session.asked, request, now))

    def rows_changed(self, connection: ConnectionId, found: Mapping[str, Rows], now: float) -> None:
        """Tell a connection of this process what is in its protocol's tables now.

        Not while it is suspended (``is_suspended``): what it asked for before comes first.
        """
        client = self._internal(connection, now)
        if client is not None:
            self._run(client, self._ask(client, client.session.rows, found, now))
            self._renew(client)

    def not_reached(self, connection: ConnectionId, tag: object, reason: str, now: float) -> None:
        """Tell a connection that what it wanted dialed (``ExtraOutputs.outgoing``) is not there."""
        client = self._internal(connection, now)
        if client is not None:
            commands = self._ask(client, client.session.not_reached, tag, reason, now)
            if client.suspended is None:
                self._run(client, commands)
            else:
                self._suspend(client, commands)
            self._renew(client)

    def _internal(self, connection: ConnectionId, now: float) -> Client | None:
        client = self._clients.get(connection)
        if client is None or client.closing or self._ending:
            return None
        self._begin(connection, now)
        return client

    def closed(self, connection: ConnectionId, now: float, *, is_sent: bool = True) -> None:
        """End a connection, whatever ended it: first its interests, then wills and presence, once,
        then the count of clients. Nothing is to be sent to it any more.

        Of one with many subscriptions the interests come last, and most of them when ``tick`` is
        called: wills do not wait, or they would replace what the same client says when it is back.

        Not ``is_sent``: what of durable queues is on its way to it waits again when they are
        restored; else it was sent, or is lost with it.
        """
        self._refused.pop(connection, None)
        client = self._clients.get(connection)
        if client is None:
            return
        client.is_sent = is_sent
        self._begin(connection, now)
        self._run_suspended(client, at_once=True)
        del self._clients[connection]
        if not client.internal:
            self._in_order.discard(connection)
            self._counts[client.spec.name] -= 1
        self._leave(client)
        self._run(client, self._ask(client, client.session.closed, now))
        self._forget_topics(client)
        self._deadlines.renew(connection, None)
        self._tell_client_count(client)
        if connection in self._leaving:
            self._go_on_leaving()

    def proceed(self, connection: ConnectionId, now: float) -> None:
        """Go on with a connection that ``ExtraOutputs.paced`` or ``rests`` named, and that is
        drained or has rested."""
        client = self._clients.get(connection)
        if client is None or client.closing or self._ending:
            return
        self._begin(connection, now)
        client.told = 0
        if client.paced:
            client.paced = False
            self._run_all(client, self._ask(client, client.session.drained, now))
        self._run_suspended(client)
        for queue in self._consumed_by(client):
            queue.proceed(connection)
            self._deliver_queue(queue)
        self._renew(client)

    def sent(self, connection: ConnectionId) -> list[bytes]:
        """Say that all is sent that a connection of ``ExtraOutputs.paced`` was given; returns the
        places in queues that are done with by that, as of the turn that was taken last."""
        client = self._clients.get(connection)
        done: list[bytes] = []
        for queue in [] if client is None else self._consumed_by(client):
            if queue.durable and not queue.checkpoints:  # else what is stored of it changes, too
                queue.sent(connection)
                done += [spell_place(queue.name, number) for number in queue.take_forgotten()]
        return done

    def answered(self, number: int, answer: object, now: float) -> None:
        """Tell whoever has asked what the answer to one of ``ExtraOutputs.questions`` is."""
        client, tell = self._questions.pop(number)
        if client.closing or self._ending:
            return
        self._begin(client.connection, now)
        self._run_all(client, self._ask(client, tell, answer))
        self._renew(client)

    def congested(self, connection: ConnectionId, congested: bool, now: float) -> None:
        """Say that a connection takes no more for now, or takes more again: queues wait for it."""
        client = self._clients.get(connection)
        if client is None:
            return
        client.congested = congested
        if not client.queues or self._ending:
            return
        self._begin(connection, now)
        for queue in self._consumed_by(client):
            queue.ready(connection, not congested)
            self._deliver_queue(queue)

    def stalled(self, connection: ConnectionId, waited_s: float, now: float) -> None:
        """Disconnect a client that had publishers wait for so long (``ExtraOutputs.behind``)."""
        client = self._clients.get(connection)
        if client is None or client.closing or self._ending:
            return
        self._begin(connection, now)
        reason = f"publishers had to wait {waited_s:g} s for this client; it did not catch up"
        self._run_all(client, self._ask(client, client.session.stalled, reason))
        self._disconnect(client, Disconnect(f"net.stalled_receiver_s: {reason}"))

    def logged_in(self, connection: ConnectionId, right: bool | None, now: float) -> None:
        """Go on with a connection of ``ExtraOutputs.logins``: whether its secret was right; None:
        nobody had the time to look."""
        client = self._clients.get(connection)
        if client is None or client.login is None:
            return
        (command, undecided), client.login = client.login, None
        if client.closing or self._ending:
            return
        self._begin(connection, now)
        if right is None:
            self._log_in(
                client, command, Refused("too many logins wait (access.max_pending_logins)")
            )
        else:
            address = client.principal.address
            self._log_in(client, command, self.access.settle(undecided, right, address, now))
        self._extra.releases[connection, _HELD_LOGIN] = None
        self._renew(client)

    def access_changed(self, now: float) -> None:
        """Users or rules have changed: who is connected stays, with what it may from now on.

        What is published and subscribed to is judged anew at once. Of many subscriptions that there
        are already, those that may not be any more end while others are served (``tick``).
        """
        self._begin(0, now)
        self._permitted.forget()
        self._judging = self._judge_all()
        self._judge_some()

    def _judge_some(self) -> None:
        """Go on with those subscriptions that were made before the rules changed."""
        if self._judging is not None and sum(1 for _ in islice(self._judging, _JUDGED_AT_ONCE)) < (
            _JUDGED_AT_ONCE
        ):
            self._judging = None

    def _judge_all(self) -> Iterator[None]:
        """Judge all subscriptions and consumers, one for each step; much may change in between."""
        connection: ConnectionId = 0
        while connection := next(self._in_order.behind(connection), 0):
            client = self._clients[connection]
            for key in self._bus.subscriptions_of(connection):
                if client.closing:
                    break
                if not self._decide(
                    client, "subscribe", key.topic, prefix=key.prefix
                ) and self._bus.has_subscription(connection, key):
                    interest = self._bus.unsubscribe(connection, key)
                    self._tell_interest(client, interest)
                    self._tell_lost(client, key.topic)
                yield
            for queue in sorted(client.queues or ()):
                if client.closing or queue not in (client.queues or ()):
                    continue
                if queue not in client.own_queues and not self._decide(client, "subscribe", queue):
                    self._stop_consuming(client, StopConsuming(queue))
                    self._tell_lost(client, queue)
                yield
            yield
        for subscriber in list(self._makers):
            for key in list(self._makers.get(subscriber, ())):
                self._judge_makers(subscriber, key)
                yield

    def web_session_ended(self, session: LoginSession, now: float) -> None:
        """Somebody has logged out, or was: those connections end that are theirs by that."""
        if self._ending:
            return
        self._begin(0, now)
        for connection in sorted(session.connections):
            self._wake_up(connection)

    def _judge_makers(self, subscriber: SubscriberId, key: SubscriptionKey) -> None:
        """End a subscription of a queue unless somebody for whom it was made may have it still."""
        queue, makers = self._bus.queue_of(subscriber), self._makers.get(subscriber, {}).get(key)
        if queue is None or not makers:
            return
        for who, spec in list(makers.items()):
            if not self._decide_for(who, spec, "subscribe", key.topic, prefix=key.prefix):
                del makers[who]
        if makers:
            return
        del self._makers[subscriber][key]
        self.stats.discard(spec.name, "access.subscribe")
        nobody = Client(0, spec, _NO_SESSION, ())  # whoever it was may be gone
        self._tell_interest(nobody, self._bus.unsubscribe(subscriber, key))
        try:
            lost = self._servers[spec.name].subscription_lost(queue.name, key.topic, key.id)
            self._execute(nobody, lost)
        except Exception as error:
            self._extra.failures.append(Failure("server", 0, error))

    def _tell_lost(self, client: Client, path: bytes) -> None:
        """Say to a client that it may hear this no more."""
        self.stats.discard(client.spec.name, "access.subscribe")
        if client.spec.client_paths is None:  # any other would end, having no word
            refused = client.session.refused
            self._run_all(client, self._ask(client, refused, "subscribe", path))

    def wanted(self, topics: Iterable[bytes], steps: int) -> Iterator[bool | None]:
        """Give, for each topic, whether anybody is subscribed to one that is equivalent.

        Gives None whenever it has made so many ``steps`` through the index since the last time:
        others are to be served before the next. What changes meanwhile may be overlooked.
        """
        made = 0
        for topic in topics:
            found = False
            self._work.left = self._limits.max_steps_per_s
            for found in self._bus.look_for_subscribers(topic):
                made += 1
                if made >= steps:
                    made = 0
                    yield None
                if found:
                    break
            yield found

    @property
    def is_ending(self) -> bool:
        """Whether nothing is read any more."""
        return self._ending

    @property
    def makes_publishers_wait(self) -> bool:
        """Whether there is a full ``block`` queue, or a receiver that is behind."""
        blocking = self._blocking
        while blocking and not next(iter(blocking.values())).is_blocking:
            del blocking[next(iter(blocking))]
        return self._behind_count > 0 or bool(blocking)

    def waits_for(self, topics: Iterable[bytes]) -> str:
        """Return what a publisher of one of these topics would have to wait for: a full ``block``
        queue, or a receiver that is behind; "" if for nothing.

        For a publisher that cannot be held, because it has no connection.
        """
        self._work.left = self._limits.max_steps_per_s
        for topic in topics:
            for match in self._bus.route(topic).matches:
                queue = self._bus.queue_of(match.subscriber)
                if queue is not None and queue.is_blocking:
                    return f"the queue {queue.name.decode(errors='replace')} is full"
                receiver = self._clients.get(match.subscriber)
                if receiver is not None and receiver.holds and receiver.slow == "pause":
                    return f"a receiver of {topic.decode(errors='replace')} is behind"
        return ""

    def published(self, connection: ConnectionId) -> int:
        """Return how many publications of a connection were accepted since it was opened."""
        return self._clients[connection].published

    def is_suspended(self, connection: ConnectionId) -> bool:
        """Whether something that a connection asked for still waits to be done."""
        client = self._clients.get(connection)
        return client is not None and client.suspended is not None

    def stopping(self) -> None:
        """Begin the end (FMQP R33, R34): nothing more is read, and whoever comes is told so.

        From now on what of durable queues is on its way waits again when they are restored, unless
        ``closed`` or ``sent_all`` says that it was sent.
        """
        self._ending = True
        for client in self._clients.values():
            client.is_sent = None

    def stop(self, now: float) -> None:
        """End all connections together: every will runs while everyone is still subscribed.

        FMQP R36 and R37: all wills are sent, and received. Afterwards the broker knows nobody.
        """
        self.stopping()
        self._begin(0, now)
        clients = list(self._clients.values())
        for client in clients:
            self._run_suspended(client, at_once=True)
        while self._leaving.due is not None:
            self._go_on_leaving()
        for client in clients:
            client.steps = 0
            self._cause = client.connection
            self._run(client, self._ask(client, client.session.closed, now))
        self._clients.clear()
        self._in_order = OrderedKeys()
        self._counts.clear()

    def sent_all(self, sent: Collection[ConnectionId]) -> None:
        """Since ``stopping``: these connections were sent all that they were given."""
        for queue in self._bus.queues.values():
            if queue.durable:
                for connection in queue.receivers:
                    if connection in sent:
                        queue.sent(connection)
                self._forget_done(queue)

    def tick(
        self,
        now: float,
        unread: Callable[[ConnectionId], bool] = lambda connection: False,
        hung_up: Callable[[ConnectionId], bool] = lambda connection: False,
    ) -> None:
        """Do what is due; call it when ``next_deadline()`` has come.

        ``unread``: whether something that a connection's peer has sent may still be unread, because
        the edge lets it wait. Then nobody knows whether it is silent, and it is looked at later;
        but see ``_keeps_others_waiting``. ``hung_up``: whether the peer of one of those has gone.
        """
        if self._ending:
            return
        self._begin(0, now)
        if self._leaving.due is not None:
            self._go_on_leaving()
        if self._searches:
            self._search()
        self._judge_some()
        for connection in self._deadlines.due(now):
            client = self._clients.get(connection)
            if client is None or client.closing:
                continue
            if unread(connection) and not self._keeps_others_waiting(client, hung_up):
                latest = client.session.latest
                if latest is None or now < latest:
                    self._deadlines.renew(connection, now + _LOOK_AGAIN_S)
                    continue
            self._cause = connection
            try:
                commands = client.session.tick(now)
                if client.suspended is None:
                    self._run(client, commands)
                else:
                    self._run_all(client, commands)  # time does not wait for what it has asked for
            except Exception as error:
                self._fail(client, error)  # the others of this moment have their turn
            self._renew(client)

    def _keeps_others_waiting(
        self, client: Client, hung_up: Callable[[ConnectionId], bool]
    ) -> bool:
        """Whether time goes on for a consumer although what it has said may be unread.

        It does for one that has gone. And for one that is in a circle: it waits for a full queue,
        whose messages others have who wait for others, and so on to a queue of which it has some
        itself. Nobody reads that it is done with them, so all would wait for ever.
        """
        owed = {each.name for each in self._consumed_by(client) if each.owes(client.connection)}
        if not owed:
            return False
        seen: set[bytes] = set()
        todo = [*(client.held_by or ())]
        looks = _MOST_LOOKS
        while todo:
            name = todo.pop()
            queue = self._bus.queues.get(name)
            if name in seen or queue is None:
                continue
            if name in owed:
                return True
            seen.add(name)
            for consumer in islice(queue.owing(), looks):
                looks -= 1
                todo += self._clients[consumer].held_by or ()
        return hung_up(client.connection)

    def next_deadline(self) -> float | None:
        """When ``tick`` is wanted; may come a little before anything is due."""
        if self._ending:
            return None
        goes_on = self._searches or self._judging is not None
        due = self._now if goes_on else self._leaving.due
        return self._deadlines.next() if due is None else due

    def take(self) -> Outputs:
        """Return what is to be done for all calls since the last time."""
        if self._shared_record is not None:
            self._end_record()  # of a call that failed before its end
        while self._undelivered:
            queues, self._undelivered = self._undelivered, {}
            for queue in queues.values():
                self._deliver_queue(queue)
        outputs = self._outputs
        self._outputs = Outputs()
        self._last_forward = None
        return outputs

    def settings_changed(self, settings: Settings) -> None:
        """Tell protocols that those of their settings have changed that can (``LIVE``)."""
        self.http = settings.http
        for name, spec in self._specs.items():
            kind = spec.settings
            if kind is not None and live_names(kind):
                self._servers[name].settings_changed(settings.section(spec.section or name, kind))

    # ---- what the edge asks ----

    @property
    def idle_timeouts(self) -> Mapping[str, float]:
        """Seconds without a byte after which a connection is to be closed, by protocol."""
        return {
            name: server.idle_timeout_s
            for name, server in self._servers.items()
            if server.idle_timeout_s
        }

    @property
    def client_count(self) -> int:
        """How many clients are connected, of all protocols."""
        return self._counts.total()

    @property
    def retained_count(self) -> int:
        """The number of retained messages, of both topic systems."""
        return self._bus.retained.count

    @property
    def retained_refused(self) -> int:
        """Messages that were to be retained and did not fit the limits, since the start."""
        return self._bus.retained.refused

    @property
    def retained_bytes(self) -> int:
        """Memory of the retained messages, of both topic systems."""
        return self._bus.retained.memory

    @property
    def held_bytes(self) -> int:
        """Memory of what connections have begun to send, and of their last wills."""
        return self._limits.max_held_bytes - self._held_memory.left

    @property
    def queues(self) -> Mapping[bytes, Queue]:
        """The queues, by name; nobody else changes them."""
        return self._bus.queues

    def is_stored_form(self, protocol: str) -> bool:
        """Whether all that a protocol's connections are sent are publications in encoding 1."""
        return self._servers[protocol].stored_form

    def clients_by_protocol(self) -> Mapping[str, int]:
        """Return how many clients speak each protocol."""
        return +self._counts

    # ---- what protocols look at (``BrokerView``) ----

    @property
    def call_topics(self) -> Sequence[CallTopics]:
        """How clients are called, of each protocol that has that."""
        return [spec.call_topics for spec in self._specs.values() if spec.call_topics is not None]

    @property
    def is_open(self) -> bool:
        """Whether nobody needs to say who it is."""
        return self.access.is_open

    @property
    def _extra(self) -> ExtraOutputs:
        """What few turns want done, of this one: made when something is."""
        outputs = self._outputs
        if outputs.extra is None:
            outputs.extra = ExtraOutputs()
        return outputs.extra

    def _client_of(self, connection: ConnectionId) -> Client | None:
        """Return a client, also the one whose session is being made."""
        return self._clients.get(connection) or self._arriving

    def peer_of(self, connection: ConnectionId) -> Peer:
        """Return what the edge knows of a connection's other end."""
        client = self._client_of(connection)
        return Peer() if client is None else client.peer

    def principal_of(self, connection: ConnectionId) -> Principal:
        """Return who a connection is."""
        client = self._client_of(connection)
        return ANONYMOUS if client is None else client.principal

    @property
    def web_sessions(self) -> LoginSessions:
        """Those who have logged in at the edge's pages."""
        return self.access.sessions

    def may(
        self, connection: ConnectionId, action: Action, path: bytes, *, prefix: bool = False
    ) -> str:
        """Return why a connection may not do that, "" if it may. Nothing is counted or logged."""
        client = self._clients[connection]
        decision = self._decide(client, action, path, prefix=prefix)
        return "" if decision else _why(decision)

    def deny(self, connection: ConnectionId, action: Action, path: bytes) -> None:
        """Count and log that a connection may not do that."""
        client = self._clients[connection]
        self._discard(client, Discard(f"access.{action}"))
        self._note_denial(client, action, path)

    def clients(self, after: ConnectionId, most: int) -> list[ClientFacts]:
        """Return clients in the order in which they came, those behind ``after``."""
        found: list[ClientFacts] = []
        for connection in islice(self._in_order.behind(after), most):
            client = self._clients[connection]
            keys = self._bus.subscriptions_of(connection)
            shown = [
                (key.topic + b"**" * key.prefix).decode(errors="replace")
                for key in keys[:_SHOWN_PATTERNS]
            ]
            found.append(
                ClientFacts(
                    connection,
                    client.spec.name,
                    client.session.client or client.session.label,
                    client.principal,
                    len(keys),
                    shown,
                    client.published,
                    client.since_ms,
                )
            )
        self._work.left -= _STEPS_OF_A_LOOK * len(found)
        return found

    def wills(self, after: ConnectionId, most: int) -> tuple[list[WillFacts], ConnectionId | None]:
        """Return last wills of clients behind ``after``, all of a client together, and the client
        behind which there may be more."""
        found: list[WillFacts] = []
        behind = self._in_order.behind(after)
        looked_at: ConnectionId | None = None
        # What a session says may end it: those to look at are known before.
        for looked_at in list(islice(behind, _LOOKS_AT_ONCE)):
            client = self._clients[looked_at]
            self._work.left -= _STEPS_OF_A_LOOK
            found += [
                WillFacts(
                    looked_at,
                    client.spec.name,
                    client.session.client or client.session.label,
                    will.topic,
                    will.body,
                    will.retain,
                )
                for will in self._said(client, client.session.wills)
            ]
            if len(found) >= most:
                break
        if looked_at is not None and next(self._in_order.behind(looked_at), None) is None:
            looked_at = None
        return found, looked_at

    def _said(
        self, client: Client, ask: Callable[..., Any], *arguments: Any, otherwise: Any = ()
    ) -> Any:
        """Return what a session says of itself; one that raises is disconnected."""
        try:
            return ask(*arguments)
        except Exception as error:
            self._fail(client, error)
            return otherwise

    def retained(self, prefix: bytes, after: bytes, most: int) -> list[RetainedMessage]:
        """Return retained messages in the order of their topics, which begin with ``prefix``."""
        return self._bus.retained.page(prefix, after, most)

    def topics(self, prefix: bytes, after: bytes, most: int) -> list[bytes]:
        """Return topics that are retained or were published lately, in order."""
        kept = [each.topic for each in self._bus.retained.page(prefix, after, most)]
        lately = self._bus.topics_lately()
        self._work.left -= _STEPS_OF_A_LOOK * len(lately)
        found = {each for each in lately if each > after and each.startswith(prefix)}
        return nsmallest(most, {*kept, *found})

    def queues_behind(self, prefix: bytes, after: bytes, most: int) -> list[Queue]:
        """Return queues in the order of their names, which begin with ``prefix``."""
        return self._bus.queues_behind(prefix, after, most)

    def is_retained(self, topic: bytes) -> bool:
        """Whether a message of a topic is retained."""
        return self._bus.retained.get(topic) is not None

    # ---- running commands ----

    def _begin(self, cause: ConnectionId, now: float) -> None:
        self._cause = cause
        self._now = now
        self._work.left = self._limits.max_steps_per_s

    def _run(self, client: Client, commands: Iterable[Command]) -> None:
        """Execute a session's commands on behalf of its connection, up to a signal (FMQP R34).

        A client that makes the broker search more than ``bus.max_steps_per_s`` is disconnected:
        wildcards can ask for thousands of times what they cost to send. One of this process is
        suspended instead, after ``STEPS_AT_ONCE`` already, and nothing that it asks for is lost:
        the search in which these are used up goes on, as far as anybody's.
        """
        work = self._work
        limit = self._limits.max_steps_per_s
        more = limit if client.internal else 0
        if client.steps:
            self._pay_off(client)
            if client.steps >= limit:
                self._suspend(client, commands)
                self._overdrawn(client)
                return
        budget = limit - client.steps
        if client.internal:
            budget = min(budget, STEPS_AT_ONCE)
        before = work.left = budget + more
        try:
            waiting = iter(commands)
            for command in waiting:
                if type(command) is Run:
                    self._publish_run(client, command)
                else:
                    _EXECUTE[type(command)](self, client, command)
                if type(command) is Signal and self._ending:
                    break
                if work.left <= more or client.answers:
                    client.suspended = deque([*(client.suspended or ()), *waiting])
                    break
        except Exception as error:
            self._fail(client, error)
        if work.left != before:
            if not client.steps:
                client.steps_paid = self._now
            client.steps += before - work.left
            if work.left <= more:
                self._overdrawn(client)
        if self._shared_record is not None:
            self._end_record()

    def _suspend(self, client: Client, commands: Iterable[Command]) -> None:
        """Have commands wait behind those that do; a generator is made to say all of them now."""
        if client.suspended is None:
            client.suspended = deque()
        try:
            client.suspended.extend(commands)
        except Exception as error:
            self._fail(client, error)

    def _run_suspended(self, client: Client, at_once: bool = False) -> None:
        """Go on with what a client is to be told, and then with what it asked for meanwhile.

        ``at_once``: it is told nothing more, and does not rest.
        """
        if at_once:
            client.answers = None
        elif client.answers:
            self._send_retained(client)
            if client.answers:
                return
        while client.suspended is not None:
            commands, client.suspended = client.suspended, None
            if at_once:
                client.steps = 0
            self._run(client, commands)
            if not at_once:
                break
            client.answers = None
        if client.suspended is None and not client.closing:
            self._extra.releases[client.connection, "retained"] = None

    def _run_all(self, client: Client, commands: Iterable[Command]) -> None:
        """Execute what follows from somebody else's commands, who must not pay for it if it fails:
        the client is disconnected."""
        try:
            self._execute(client, commands)
        except Exception as error:
            self._fail(client, error)

    def _execute(self, client: Client, commands: Iterable[Command]) -> None:
        for command in commands:
            if type(command) is Run:
                self._publish_run(client, command)
            else:
                _EXECUTE[type(command)](self, client, command)

    def _hold(self, client: Client, reason: str) -> None:
        """Have a connection read no further until it is released for the same reason."""
        pair = client.connection, reason
        self._extra.releases.pop(pair, None)  # they are done after the holds; this comes later
        self._extra.holds.append(pair)

    def _answer(
        self,
        client: Client,
        command: Subscribe | OpenQueue | Enqueue | Consume | Checkpoint | Publish,
        limit: str,
    ) -> None:
        """Say that a limit refused a command, or with "" that it was accepted."""
        if limit:
            self.stats.discard(client.spec.name, limit)
        if command.answer is not None:
            self._run_all(client, self._ask(client, command.answer, limit))

    def _refuse(
        self,
        client: Client,
        command: Subscribe | OpenQueue | Enqueue | Consume | Checkpoint | Publish,
        action: Action,
        path: bytes,
    ) -> None:
        """Refuse what the client may not do; a command that has an answer gets it."""
        if command.answer is None:
            self._deny(client, action, path)
        else:
            self._note_denial(client, action, path)
            self._answer(client, command, f"access.{action}")

    def _may_use_queue(
        self, client: Client, command: OpenQueue | Enqueue | Consume | Checkpoint, action: Action
    ) -> bool:
        """Whether a client may do that to a queue; it is told so if not."""
        if self.access.is_open or (isinstance(command, OpenQueue | Consume) and command.own):
            return True
        if self._decide(client, action, command.queue):
            return True
        self._refuse(client, command, action, command.queue)
        return False

    def _pay_off(self, client: Client) -> None:
        passed = self._now - client.steps_paid
        client.steps = max(0, client.steps - int(passed * self._limits.max_steps_per_s))
        client.steps_paid = self._now

    def _overdrawn(self, client: Client) -> None:
        if client.closing:
            return
        limit = self._limits.max_steps_per_s
        if client.internal:
            self._extra.rests[client.connection] = client.steps / limit
            return
        self.stats.discard(client.spec.name, "bus.max_steps_per_s")
        reason = f"bus.max_steps_per_s: it asked for more than {limit} steps through the index"
        client.suspended = None
        # The answers to all that it asked for are not worth sending.
        forwards = self._outputs.forwards
        forwards[:] = [each for each in forwards if each.receivers is not client.alone]
        self._last_forward = None
        self._disconnect(client, Disconnect(reason, abort=True))

    # ---- publications ----

    def _publish_run(self, client: Client, run: Run) -> None:
        if client.internal:
            run = self._affordable(client, run)
        data, end = run.data, run.end
        if client.topics is None:
            self._find_topics(client)
        topics = self._topics if client.permitted is None else client.permitted.table
        position, stretches = topics.split(data, run.start, end)
        while position < end:
            topic, position = _topic_at(data, position)
            permitted = self._permitted_route(client, topic)
            if permitted is None:
                self._publish_permitted(client, run)
                return
            route = permitted
            if stretches and stretches[-1][0] is route:
                stretches[-1] = route, position
            else:
                stretches.append((route, position))
            position, found = topics.split(data, position, end)
            stretches += found
        count = run.count
        self.stats.publications += count
        client.published += count
        body = run.body()
        if self._recording:
            self._record(client, body, count, PACKETS)
        first = stretches[0][0]
        if len(stretches) == 1 or all(route is first for route, _ in stretches):
            if first.verbatim:
                self._forward(first.verbatim, body)
            if first.matches:
                self._match_all(client, first, bytes(body), NO_PROPERTIES)
            return
        self._deal(data, run.start, stretches)
        position = run.start
        for route, end in stretches:
            if route.matches:
                self._match_all(client, route, data[position:end], NO_PROPERTIES)
            position = end

    def _publish_permitted(self, client: Client, run: Run) -> None:
        """Publish those of a run that may be published: what is refused is in nobody's way."""
        parts: list[bytes] = []
        refused: Counter[bytes] = Counter()
        position = run.start
        while position < run.end:
            start = position
            topic, position = _topic_at(run.data, position)
            if topic not in refused and self._permitted_route(client, topic) is not None:
                parts.append(run.data[start:position])
            else:
                refused[topic] += 1
        if parts:
            data = b"".join(parts)
            self._publish_run(client, Run(data, 0, len(data), len(parts)))
        for topic, count in refused.items():
            self._deny(client, "publish", topic, count)

    def _affordable(self, client: Client, run: Run) -> Run:
        """Return the beginning of a run for which the steps suffice, and the publication in which
        they run out; the rest is suspended."""
        enough = self._limits.max_steps_per_s  # what ``_run`` has added
        position, count = run.start, 0
        while position < run.end and (not count or self._work.left > enough):
            topic, position = _topic_at(run.data, position)
            self._bus.route(topic)
            count += 1
        if position < run.end:
            rest = Run(run.data, position, run.end, run.count - count)
            client.suspended = deque([rest])
        return Run(run.data, run.start, position, count)

    def _deal(self, data: bytes, start: int, stretches: list[tuple[Route, int]]) -> None:
        """Give each receiver of the stored form its stretches of a run, in order, with one buffer
        if that is cheap."""
        routes = dict.fromkeys([route for route, _ in stretches])
        # Receivers of the same routes get the same bytes: a bit for each route.
        routes_of: dict[ConnectionId, int] = {}
        for index, route in enumerate(routes):
            for receiver in route.verbatim:
                routes_of[receiver] = routes_of.get(receiver, 0) | 1 << index
        receivers: dict[int, list[ConnectionId]] = {}
        for receiver, mask in routes_of.items():
            receivers.setdefault(mask, []).append(receiver)
        groups = {
            route: tuple([group for group, mask in enumerate(receivers) if mask >> index & 1])
            for index, route in enumerate(routes)
        }
        most = _MOST_COPIES * (stretches[-1][1] - start)
        dealt = deal(data, start, stretches, groups, len(receivers), most)
        if dealt is not None:
            for group, buffer in zip(receivers.values(), dealt, strict=True):
                self._forward(group, buffer)
            return
        position = start
        for route, end in stretches:
            if route.verbatim:
                self._forward(route.verbatim, data[position:end])
            position = end

    def _publish(self, client: Client, command: Publish) -> None:
        topic, body, retain, own = command.topic, command.body, command.retain, command.own
        if is_service(topic) and not own:
            self._answer(client, command, "R30")  # the broker's own: never forwarded
            return
        properties = command.properties
        if properties and property_fault(properties):
            self._answer(client, command, "bus.properties")
            return
        topics = self._topics if own else client.topics
        if topics is None:
            topics = self._find_topics(client)
        route = topics.get(topic)
        if not body:
            # FMQP R18: never delivered; A6: with the flag it clears.
            if retain and not (own or route is not None or self._may_publish(client, topic)):
                self._refuse(client, command, "publish", topic)
                return
            if retain:
                self._clear(client, topic)
            self._answer(client, command, "")
            return
        if route is None:
            if topic_fault(topic):  # who has a route is known to have none
                self._answer(client, command, "bus.topic")
                return
            route = self._bus.route(topic) if own else self._permitted_route(client, topic)
            if route is None:
                self._refuse(client, command, "publish", topic)
                return
        packet = pack(WILL * command.will | RETAINED * retain, topic, body)
        if not own:
            if not command.again:
                self.stats.publications += 1
                client.published += 1
                self._record_one(client, packet, properties)
        elif self._recording and not is_service(topic):
            self._outputs.records.append(Record(0, 0, "", 1, packet))
        if retain:
            at_ms = self._wall_ns() // 1_000_000
            kept = self._bus.retained.put(topic, packet, properties, at_ms=at_ms)
            if not own:
                entry = (packet, pack_properties(properties)) if kept else None
                self._retained_changed(client, topic, entry)
        if command.answer is not None:
            self._answer(client, command, "")
        if route.verbatim:
            self._forward(route.verbatim, packet)
        if route.matches:
            self._match_all(client, route, packet, properties)

    def _publish_many(self, client: Client, command: PublishMany) -> None:
        """Publish the messages of a read: what is to be done for each is done for all at once."""
        known = client.topics
        if known is None:
            known = self._find_topics(client)
        found = list(map(known.get, command.topics))
        refused: Counter[bytes] = Counter()
        if None in set(found):
            refused = self._find_routes(client, command.topics, found)
        routes = [route for route in found if route is not None]
        if refused and routes:
            command = only(command, [at for at, route in enumerate(found) if route is not None])
        if routes:
            self._publish_batch(client, command, routes)
        for topic, count in refused.items():
            if is_service(topic) or topic_fault(topic):
                rule = "R30" if is_service(topic) else "bus.topic"
                self.stats.discard(client.spec.name, rule, count)
            else:
                self._deny(client, "publish", topic, count)

    def _find_routes(
        self, client: Client, topics: Sequence[bytes], routes: list[Route | None]
    ) -> Counter[bytes]:
        """Find who gets those topics whose route is None. Those which may not be published stay so;
        returns how often each of them is there."""
        new: dict[bytes, Route | None] = {}
        refused: Counter[bytes] = Counter()
        for place, topic in enumerate(topics):
            if routes[place] is not None:
                continue
            if topic not in new:
                is_none = is_service(topic) or topic_fault(topic)
                new[topic] = None if is_none else self._permitted_route(client, topic)
            route = routes[place] = new[topic]
            refused[topic] += route is None
        return +refused

    def _publish_batch(self, client: Client, command: PublishMany, routes: Sequence[Route]) -> None:
        """Journal messages, and give each receiver those that it gets, in their order."""
        count = len(routes)
        self.stats.publications += count
        client.published += count
        batch = Batch(command)
        if self._recording:
            for body, records in batch.packed():
                self._record(client, body, records, WITH_PROPERTIES)
        outcomes = Outcomes(command.groups)
        places = _places(routes)
        matches: dict[SubscriberId, dict[Route, Match]] = {}
        asked: set[SubscriberId] = set()  # who has to be asked of some whether it wants them
        uncertain: list[Sequence[int]] = []
        for route, its in places.items():
            if route.verbatim:
                outcomes.routed(its, len(route.verbatim))
            if not route.is_certain:
                uncertain.append(its)
            for match in route.matches:
                of = matches.get(match.subscriber)
                if of is None:
                    of = matches[match.subscriber] = {}
                of[route] = match
                if not match.ids:
                    asked.add(match.subscriber)
        self._forward_batch(batch, routes, places)
        reached: set[int] = set()  # by those who were asked
        for subscriber, of in matches.items():
            if len(of) == len(places):
                its = range(count)
            else:
                its = sorted(chain.from_iterable([places[route] for route in of]))
            if subscriber > 0:
                wanted = self._deliver_batch(subscriber, of, batch, routes, its)
                outcomes.routed(wanted)
                reached.update(wanted)
                continue
            queue = self._bus.queue_of(subscriber)
            if queue is None:
                continue  # deleted by what another receiver has said
            outcomes.unfiltered += [
                (queue.name, match.ids, len(places[route]))
                for route, match in of.items()
                if match.ids
            ]
            if subscriber in asked:
                its = self._wanted_of_batch(of, batch, routes, its)
                reached.update(its)
            outcomes.routed(its)
            dropped = self._put_batch(queue, batch, its) if its else ()
            if dropped:
                outcomes.dropped(dropped)
                self.stats.discard(client.spec.name, "queue.full", len(dropped))
        for its in uncertain:
            outcomes.unrouted([place for place in its if place not in reached])
        if command.told is not None:
            command.told(outcomes)

    def _forward_batch(
        self, batch: Batch, routes: Sequence[Route], places: Mapping[Route, Sequence[int]]
    ) -> None:
        """Send messages with a body to those who take the stored form."""
        if not any(route.verbatim for route in places):
            return
        packets = [
            packet if body else b""
            for packet, body in zip(batch.packets, batch.bodies, strict=True)
        ]
        data = b"".join(packets)
        if not data:
            return
        if len(places) == 1:
            self._forward(routes[0].verbatim, data)
            return
        stretches: list[tuple[Route, int]] = []
        end = 0
        for route, packet in zip(routes, packets, strict=True):
            if packet:
                end += len(packet)
                if stretches and stretches[-1][0] is route:
                    stretches[-1] = route, end
                else:
                    stretches.append((route, end))
        self._deal(data, 0, stretches)

    def _wanted_of_batch(
        self,
        matches: Mapping[Route, Match],
        batch: Batch,
        routes: Sequence[Route],
        places: Sequence[int],
    ) -> Sequence[int]:
        """Return where those messages at these places are that a queue wants, by its filters."""
        wanted: list[int] = []
        topics, bodies, properties = batch.topics, batch.bodies, batch.properties
        for place in places:
            match = matches[routes[place]]
            if match.ids or any(
                self._passes(
                    each.filter, each.subscriber, topics[place], properties[place], bodies[place]
                )
                for each in match.filtered
            ):
                wanted.append(place)
        return wanted

    def _deliver_batch(
        self,
        subscriber: ConnectionId,
        matches: Mapping[Route, Match],
        batch: Batch,
        routes: Sequence[Route],
        places: Sequence[int],
    ) -> Sequence[int]:
        """Give a session those messages at these places that it wants; returns where they are."""
        wanted: list[int] = []
        topics, bodies, properties = batch.topics, batch.bodies, batch.properties
        for place in places:
            match, topic, body, own = (
                matches[routes[place]],
                topics[place],
                bodies[place],
                properties[place],
            )
            ids = self._wanting(match, topic, own, body) if match.filtered else match.ids
            if ids:
                wanted.append(place)
                if body:
                    self._deliver(subscriber, Delivery(pack(0, topic, body), ids, own))
        return wanted

    def _clear(self, client: Client, topic: bytes) -> None:
        if self._bus.retained.clear(topic):
            self._retained_changed(client, topic, None)

    def _retained_changed(
        self, client: Client, topic: bytes, entry: tuple[bytes, bytes] | None
    ) -> None:
        self._extra.retained[topic] = entry
        self._extra.retained_by[topic] = client.connection

    def _announce(self, client: Client, command: Announce) -> None:
        """Deliver and keep a feedback message, an empty one too (FMQP R45, R46, A5)."""
        topic, retained = command.topic, self._bus.retained
        packet = pack(FEEDBACK | RETAINED, topic, command.body)
        retained.put(topic, packet, feedback=True, idle=command.idle)
        route = self._bus.feedback_route(topic)
        if route.verbatim:
            self._forward(route.verbatim, packet)
        if route.matches:
            self._match_all(client, route, packet, NO_PROPERTIES)
        if command.forget:
            retained.clear(topic, feedback=True)

    def _forward(self, receivers: Sequence[ConnectionId], buffer: Buffer) -> None:
        """Send a buffer to receivers, together with what came before it for the same ones."""
        last = self._last_forward
        if last is not None and last.receivers is receivers:
            last.buffers.append(buffer)
            if last.senders[-1] != self._cause:
                last.senders.append(self._cause)
            return
        last = self._last_forward = Forward(receivers, [buffer], [self._cause])
        self._outputs.forwards.append(last)

    def _match_all(self, client: Client, route: Route, run: bytes, properties: Properties) -> None:
        """Give a run to those who do not take it as it is: translate, filter, queue."""
        for match in route.matches:
            if match.subscriber < 0:
                self._match_queue(client, match, run, properties)
            elif match.filtered:
                for flags, topic, body in unpack(run):
                    ids = self._wanting(match, topic, properties, body)
                    if ids:
                        packet = pack(flags, topic, body)
                        self._deliver(match.subscriber, Delivery(packet, ids, properties))
            else:
                self._deliver(match.subscriber, Delivery(run, match.ids, properties))

    def _wanting(
        self, match: Match, topic: bytes, properties: Properties, body: bytes
    ) -> tuple[SubscriptionId, ...]:
        """Return which of a match's subscriptions want a publication, those with filters too."""
        wanting = set(match.ids)
        for each in match.filtered:
            if self._passes(each.filter, match.subscriber, topic, properties, body):
                wanting.add(each.id)
        return tuple(sorted(wanting))

    def _passes(
        self,
        filter: Filter | None,
        subscriber: SubscriberId,
        topic: bytes,
        properties: Properties,
        body: bytes,
    ) -> bool:
        """Ask a filter; one that raises wants nothing, and its failure is the subscriber's."""
        try:
            return filter is None or bool(filter(topic, properties, body))
        except Exception as error:
            if len(self._extra.failures) < _MOST_FAILURES:
                self._extra.failures.append(Failure("filter", max(subscriber, 0), error))
            return False

    def _deliver(self, connection: ConnectionId, delivery: Delivery | QueueDelivery) -> None:
        receiver = self._clients.get(connection)
        if receiver is None:
            return
        session = receiver.session
        if session.verbatim and type(delivery) is Delivery:
            self._forward(receiver.alone, delivery.run)
            return
        run = delivery.run if type(delivery) is Delivery and self._cause != connection else b""
        if run and receiver.holds and receiver.slow == "drop-newest":
            self._dropped(receiver, sum(1 for _ in unpack(run)), len(run))
            return
        self._run_all(receiver, self._ask(receiver, session.deliver, delivery, self._now))
        if run and receiver.holds:
            if receiver.slow == "pause":
                self._hold_publisher(_behind(connection))
            elif receiver.slow == "drop-oldest":
                self._shed(receiver)
        self._renew(receiver)

    def _shed(self, client: Client) -> None:
        """Have a client that is behind hear the newest, in the place of what it has not heard."""
        try:
            count, size = client.session.shed()
        except Exception as error:
            self._fail(client, error)
        else:
            self._dropped(client, count, size)

    def _dropped(self, client: Client, count: int, size: int) -> None:
        self.stats.dropped_of(client.spec.name).add(count, size)

    def _ask(
        self, client: Client, ask: Callable[..., Iterable[Command]], *arguments: Any
    ) -> Iterable[Command]:
        """Return what a session says; one that raises is disconnected, and only that one.

        Publishers must not pay for the mistakes of a receiver's protocol.
        """
        try:
            return ask(*arguments)
        except Exception as error:
            self._fail(client, error)
            return ()

    def _renew(self, client: Client) -> None:
        """Note when a session wants its ``tick``."""
        try:
            self._deadlines.renew(client.connection, client.session.deadline)
        except TypeError as error:  # it is no time; whose words these are does not pay for it
            self._fail(client, error)

    def _fail(self, client: Client, error: Exception) -> None:
        self._extra.failures.append(Failure("session", client.connection, error))
        reason = f"its {client.spec.title} session failed: {error!r}"
        self._disconnect(client, Disconnect(reason, abort=True))

    # ---- who may do what ----

    def _topics_of_connection(self, connection: ConnectionId) -> TopicTable[Any]:
        """Return what a protocol's session reads with; asked when the client is who it is."""
        client = self._clients.get(connection) or self._arriving
        if client is None:
            return self._topics
        if client.topics is None:
            self._find_topics(client)
        return self._topics if client.permitted is None else client.permitted.table

    def _address_of_connection(self, connection: ConnectionId) -> str:
        client = self._clients.get(connection) or self._arriving
        return "" if client is None else client.principal.address

    def _find_topics(self, client: Client) -> TopicTable[Route] | dict[bytes, Route]:
        """Return the topics that a client may publish, which it keeps."""
        key = self._table_of(client)
        if self.access.is_open and not key[1]:
            client.topics = self._topics
        else:
            client.permitted = self._permitted.use(key)
            client.topics = client.permitted.known
        return client.topics

    def _table_of(self, client: Client) -> tuple[Principal, str]:
        """Return whose table a client shares: its principal's, as a client of its protocol."""
        principal = client.principal
        return principal, client.spec.name if client.spec.client_paths and principal.own else ""

    def _forget_topics(self, client: Client) -> None:
        """Give back the table of a client that has left, or is somebody else from now on."""
        permitted, client.permitted, client.topics = client.permitted, None, None
        if permitted is not None:
            self._permitted.leave(self._table_of(client))

    def _permitted_route(self, client: Client, topic: bytes) -> Route | None:
        """Return who gets a topic, None if the client may not publish it. Its table then knows."""
        if not self._may_publish(client, topic):
            return None
        route = self._bus.route(topic)
        if client.permitted is not None:
            self._bus.copy_route(topic, route, client.permitted)
        return route

    def _may_publish(self, client: Client, topic: bytes) -> bool:
        """Whether a client may publish a topic that its table does not know."""
        permitted = client.permitted
        if permitted is None:
            # All may publish all but what is guarded, which is never in the table of all.
            return not self.access.rights.is_guarded(topic)
        if topic in permitted.allowed:
            return True
        if topic in permitted.refused:
            return False
        self._permitted.judged()
        if not self._decide(client, "publish", topic):
            permitted.refuse(topic)
            return False
        return True

    def _decide(
        self, client: Client, action: Action, path: bytes, *, prefix: bool = False
    ) -> Decision:
        return self._decide_for(client.principal, client.spec, action, path, prefix=prefix)

    def _decide_for(
        self,
        principal: Principal,
        spec: ProtocolSpec,
        action: Action,
        path: bytes,
        *,
        prefix: bool = False,
    ) -> Decision:
        paths = spec.client_paths
        if paths is not None and not prefix:
            return self.access.own(principal, action, path, paths)
        return self.access.allows(principal, action, path, prefix=prefix)

    def _deny(self, client: Client, action: Action, path: bytes, count: int = 1) -> None:
        """Count what a client may not do, have it logged, and say so in its protocol's words.

        A client that tries too often rests, as one does that sends what is incorrect.
        """
        self._discard(client, Discard(f"access.{action}", count, count))
        self._note_denial(client, action, path)
        if not client.closing:
            self._run_all(client, self._ask(client, client.session.refused, action, path))

    def _note_denial(self, client: Client, action: Action, path: bytes) -> None:
        """Have it logged that a client may not do that, and why."""
        if len(self._extra.denials) < _MOST_DENIALS:
            why = _why(self._decide(client, action, path))
            where = f"{path.decode(errors='replace')!r}: {why}"
            self._extra.denials.append(Denial(str(client.principal), action, where))

    def _note_stranger(self, who: Principal, spec: ProtocolSpec, why: str) -> None:
        """Have it logged that somebody may not connect, and why."""
        if len(self._extra.denials) < _MOST_DENIALS:
            where = f"by {spec.title}: {why}"
            self._extra.denials.append(Denial(str(who), "connect", where))

    def _authenticate(self, client: Client, command: Authenticate) -> None:
        """Find out who a client is: by its secret, or because the edge knows it already."""
        claim, known, access = command.claim, client.principal, self.access
        name, colon, secret = claim.rpartition(":")
        if command.secret is not None:
            name, colon, secret = claim, ":", command.secret
        if self._ending:
            self._answer_login(client, command, name if colon else claim, "")
        elif command.known is not None:
            self._log_in(client, command, Accepted(command.known))
        elif command.token is not None:
            by_token = access.log_in_by_token(command.token, known.address, self._now)
            self._log_in(client, command, by_token)
        elif not claim:
            self._log_in(client, command, Accepted(known))
        elif access.is_open:
            kind = "claimed" if known.kind == "anonymous" else known.kind
            self._log_in(client, command, Accepted(replace(known, kind=kind, client=claim)))
        elif known.is_known and claim == known.name:
            self._log_in(client, command, Accepted(known))
        elif colon:
            verdict = access.log_in(name, secret, known.address, self._now)
            if not isinstance(verdict, Undecided):
                self._log_in(client, command, verdict)
                return
            client.login = command, verdict
            self._hold(client, _HELD_LOGIN)
            self._extra.logins.append(Login(client.connection, verdict.encoded, secret))
        elif known.is_known:
            reason = f"{known} cannot be {claim!r} too without a secret: NAME:SECRET"
            self._log_in(client, command, Refused(reason))
        elif access.users is not None and claim in access.users:
            self._log_in(client, command, Refused(f"{claim!r} gave no secret: NAME:SECRET"))
        else:
            self._log_in(client, command, Accepted(replace(known, kind="claimed", client=claim)))

    def _act_as(self, client: Client, command: ActAs) -> None:
        other = self._clients.get(command.connection)
        if other is None or other.spec is not client.spec:
            raise ValueError(f"connection {command.connection} is none of {client.spec.title}")
        self._forget_topics(client)
        client.principal = other.principal

    def _log_in(self, client: Client, command: Authenticate, verdict: Accepted | Refused) -> None:
        """Let a client in as who it is, if that may connect; tell it."""
        name = reason = ""
        if isinstance(verdict, Refused):
            reason = verdict.reason
            self._note_stranger(client.principal, client.spec, reason)
        else:
            principal = verdict.principal
            name = principal.client or principal.name
            decision = self.access.allows(principal, "connect", client.spec.name)
            if decision:
                self._forget_topics(client)
                client.principal = principal
                self._look_back(client.spec)
            else:
                self._note_stranger(principal, client.spec, _why(decision))
                reason = f"{principal} may not connect by {client.spec.title}: {_why(decision)}"
        if reason:
            self.stats.discard(client.spec.name, "access.connect")
        self._answer_login(client, command, name, reason)

    def _answer_login(self, client: Client, command: Authenticate, name: str, reason: str) -> None:
        self._run_all(client, self._ask(client, command.answer, name, reason, self._now))

    # ---- the journal's records ----

    def _record_one(self, client: Client, packet: bytes, properties: Properties) -> None:
        if not self._recording:
            return
        if properties:
            self._record(client, pack_with_properties(packet, properties), 1, WITH_PROPERTIES)
        else:
            self._record(client, packet, 1, PACKETS)

    def _record(self, client: Client, body: Buffer, count: int, encoding: int) -> None:
        shared = self._shared_record
        if shared is not None:
            short = encoding == PACKETS and len(body) <= _SHARED_RECORD
            if short and shared.connection == client.connection:
                if not self._shared_bodies:
                    self._shared_bodies.append(shared.body)
                    self._shared_bytes = len(shared.body)
                self._shared_bodies.append(body)
                self._shared_bytes += len(body)
                shared.count += count
                if self._shared_bytes > _LONG_RECORD:
                    self._end_record()
                return
            self._end_record()
        name = client.session.client
        if name is not client.recorded_as:
            if len(name.encode()) > LONGEST_CLIENT:
                raise ValueError(f"the name of a client is at most {LONGEST_CLIENT} bytes long")
            client.recorded_as = name
        record = Record(
            client.connection,
            client.spec.journal_code,
            name,
            count,
            body,
            encoding,
        )
        self._outputs.records.append(record)
        if encoding == PACKETS and len(body) <= _LONG_RECORD:
            self._shared_record = record

    def _end_record(self) -> None:
        if self._shared_bodies and self._shared_record is not None:
            self._shared_record.body = b"".join(self._shared_bodies)
            self._shared_bodies = []
        self._shared_record = None

    # ---- subscriptions ----

    def _subscribe(self, client: Client, command: Subscribe) -> None:
        if client.closing and command.queue is None:
            return  # nobody would end it
        subscriber = client.connection
        if not command.prefix and topic_fault(command.topic):
            self._answer(client, command, "bus.topic")
            return
        if not self.access.is_open and not self._decide(
            client, "subscribe", command.topic, prefix=command.prefix
        ):
            self._refuse(client, command, "subscribe", command.topic)
            return
        if command.queue is not None:
            if self._queue_for(client, command, command.queue) is None:
                return
            subscriber = self._bus.queue_subscriber(command.queue)
        key = SubscriptionKey(command.topic, command.feedback, command.prefix, command.id)
        known = self._makers.get(subscriber, {}).get(key)
        accepted, interest = self._bus.subscribe(subscriber, key, command.filter, command.quiet)
        if accepted and command.queue is not None:
            self._note_maker(client, subscriber, key)
        self._answer(client, command, "" if accepted else "bus.max_subscriptions")
        if not accepted:
            return
        if known is None:  # else the queue had it already
            self._tell_interest(client, interest)
        if not command.retained or command.queue is not None:
            return
        retained = self._bus.retained
        if command.prefix:
            messages = retained.beginning_with(command.topic)
        else:
            messages = retained.equivalent(command.topic, feedback=command.feedback)
        if messages:
            answer = _RetainedAnswer(deque(map(ref, messages)), command)
            if client.answers:
                client.answers.append(answer)  # somebody else's doing, while it is told another one
                return
            client.answers = deque([answer])
            self._send_retained(client)

    def _send_retained(self, client: Client) -> None:
        """Tell a client more of what is retained, as much as may wait for it."""
        answers = client.answers
        while answers and client.told < _STEP_BYTES and not client.closing:
            if answers[0].messages:
                client.told += self._send_one_retained(client, answers[0])
            else:
                answers.popleft()
        while answers and not answers[0].messages:
            answers.popleft()
        if not answers or client.closing:
            client.answers = None
            return
        if client.suspended is None:
            client.suspended = deque()
        self._hold(client, "retained")
        self._proceed_later(client.connection)

    def _send_one_retained(self, client: Client, answer: _RetainedAnswer) -> int:
        """Tell a client the next message of an answer; returns its length.

        What has been replaced meanwhile was delivered then, and is not told again as it was.
        """
        subscription = answer.subscription
        message = answer.messages.popleft()()
        if message is None or not self._bus.retained.is_current(
            message, feedback=subscription.feedback
        ):
            return 0
        if subscription.filter is not None:
            _, topic, body = unpack_one(message.packet)
            filter, properties = subscription.filter, message.properties
            if not self._passes(filter, client.connection, topic, properties, body):
                return 0
        if client.session.verbatim:
            self._forward(client.alone, message.packet)
        else:
            ids, properties = (subscription.id,), message.properties
            delivery = Delivery(message.packet, ids, properties, kept=True, kept_ms=message.at_ms)
            self._deliver(client.connection, delivery)
        return len(message.packet)

    def _unsubscribe(self, client: Client, command: Unsubscribe) -> None:
        subscriber = client.connection
        if command.queue is not None:
            if command.queue not in self._bus.queues:
                return
            subscriber = self._bus.queue_subscriber(command.queue)
        key = SubscriptionKey(command.topic, command.feedback, command.prefix, command.id)
        self._makers.get(subscriber, {}).pop(key, None)
        self._tell_interest(client, self._bus.unsubscribe(subscriber, key))

    def _note_maker(self, client: Client, queue: SubscriberId, key: SubscriptionKey) -> None:
        """Remember for whom a queue is subscribed, the latest of them last."""
        makers = self._makers.setdefault(queue, {}).setdefault(key, {})
        makers.pop(client.principal, None)
        if len(makers) >= _MOST_MAKERS:
            del makers[next(iter(makers))]
        makers[client.principal] = client.spec

    def _tell_interest(self, client: Client, interest: Interest | None) -> None:
        """Tell the protocols that an interest began or ended, because of this client."""
        if interest is not None:
            for server in self._servers.values():
                try:
                    self._execute(client, server.interest(interest))
                except Exception as error:
                    self._extra.failures.append(Failure("server", 0, error))

    def _tell_client_count(self, client: Client) -> None:
        """Tell the protocols that the number of clients has changed, because of this one."""
        if not client.internal:
            for server in self._servers.values():
                try:
                    self._execute(client, server.client_count(self._counts.total()))
                except Exception as error:
                    self._extra.failures.append(Failure("server", 0, error))

    # ---- queues ----

    def _open_queue(self, client: Client, command: OpenQueue) -> None:
        if not self._may_use_queue(client, command, "subscribe"):
            return
        queue = self._queue_for(
            client,
            command,
            command.queue,
            policy=command.policy,
            permanent=command.permanent,
            max_messages=command.max_messages,
            max_bytes=command.max_bytes,
            durable=command.durable,
        )
        if queue is not None:
            self._answer(client, command, "")

    def _queue_for(
        self,
        client: Client,
        command: Subscribe | OpenQueue | Enqueue | Consume,
        name: bytes,
        **how: Any,
    ) -> Queue | None:
        """Return the queue that a command is for, opened if there is none; None: it was refused.

        What is put into it is in the journal under its name, so that must be one of a topic.
        """
        queue = self._bus.queues.get(name)
        if queue is None and (is_service(name) or topic_fault(name)):
            self._answer(client, command, "queue.name")
            return None
        queue = self._bus.open_queue(name, **how)
        if queue is None:
            self._answer(client, command, "bus.max_queues")
        else:
            self._note_blocking(queue)
        return queue

    def _delete_queue(self, client: Client, command: DeleteQueue) -> None:
        queue = self._bus.queues.get(command.queue)
        if queue is None:
            return
        if not (client.closing or self.access.is_open) and not self._decide(
            client, "subscribe", command.queue
        ):
            self._deny(client, "subscribe", command.queue)
            return
        if queue.durable:
            for number in (0, *queue.numbers, *queue.take_forgotten()):
                self._extra.queued[spell_place(queue.name, number)] = None
        for connection in queue.consumers:
            consumer = self._clients.get(connection)
            if consumer is not None and consumer.queues is not None:
                consumer.queues.discard(command.queue)
        subscriber = self._bus.delete_queue(command.queue)
        self._blocking.pop(command.queue, None)
        self._makers.pop(subscriber, None)
        self._end_subscriptions(client, subscriber)
        self._release_publishers(command.queue)

    def _checkpoint(self, client: Client, command: Checkpoint) -> None:
        if not self._may_use_queue(client, command, "subscribe"):
            return
        queue = self._bus.queues.get(command.queue)
        if queue is None or not queue.durable:
            self._answer(client, command, "queue.name")
            return
        match command.do:
            case "set":
                refusal = (
                    "" if queue.set_checkpoint(command.name, command.number) else "queue.place"
                )
            case "forget":
                refusal = "" if queue.forget_checkpoint(command.name) else "queue.checkpoint"
            case "go back":
                if queue.taker:  # its numbers would go back, too
                    refusal = "queue.taker"
                else:
                    refusal = "" if queue.go_back(command.name) else "queue.checkpoint"
        if not refusal:
            self._store_queue(queue)
            self._deliver_queue(queue)
        self._answer(client, command, refusal)

    def _enqueue(self, client: Client, command: Enqueue) -> None:
        if not self._may_use_queue(client, command, "publish"):
            return
        if command.properties and property_fault(command.properties):
            self._answer(client, command, "bus.properties")
            return
        queue = self._queue_for(client, command, command.queue)
        if queue is None:
            return
        packet = pack(0, command.queue, command.body)
        taken = self._put(client, queue, command.queue, command.body, command.properties, packet)
        if taken:
            self.stats.publications += 1
            client.published += 1
            self._record_one(client, packet, command.properties)
        self._answer(client, command, "" if taken else "queue.full")
        self._deliver_queue(queue)

    def _match_queue(
        self, client: Client, match: Match, run: bytes, properties: Properties
    ) -> None:
        queue = self._bus.queue_of(match.subscriber)
        if queue is None:
            return  # deleted by what another receiver of this run has said
        for _, topic, body in unpack(run):
            wanted = match.ids or self._wanting(match, topic, properties, body)
            if not wanted:
                continue
            packet = pack(0, topic, body) if queue.durable else b""
            if not self._put(client, queue, topic, body, properties, packet):
                self.stats.discard(client.spec.name, "queue.full")
        self._deliver_queue(queue)

    def _put_batch(self, queue: Queue, batch: Batch, places: Sequence[int]) -> list[int]:
        """Put the messages at these places into a queue, and hold their publisher if it must;
        returns where those are that were dropped.

        Consumers that have room are given what a full queue has, before more is put into it.
        """
        topics, bodies = at(batch.topics, places), at(batch.bodies, places)
        properties, sizes = at(batch.properties, places), at(batch.sizes, places)
        start, total = 0, len(places)
        dropped: list[int] = []
        while start < total:
            end = start + queue.fitting(sizes, start)
            if end < total and queue.waiting:
                self._deliver_queue(queue)
                end = start + queue.fitting(sizes, start)
            if end == start:
                end = total  # as its policy says
            dropped_before = queue.dropped
            if end - start == total:
                taken = queue.put_many(topics, bodies, properties, sizes)
            else:
                part = slice(start, end)
                taken = queue.put_many(topics[part], bodies[part], properties[part], sizes[part])
            if queue.dropped != dropped_before:
                dropped += [places[start + at] for at, each in enumerate(taken) if each is None]
            if queue.durable:
                self._store_messages(queue, taken, batch, places[start:end])
            start = end
        if len(dropped) < total and queue.is_blocking:
            self._deliver_queue(queue)
            if queue.is_blocking:
                self._hold_publisher(queue.name)
        if queue.waiting:
            self._undelivered[queue.name] = queue
        return dropped

    def _store_messages(
        self,
        queue: Queue,
        messages: Sequence[QueuedMessage | None],
        batch: Batch,
        places: Sequence[int],
    ) -> None:
        """Have those messages stored that were taken (None: it was not)."""
        if not any(messages):
            return
        if not queue.is_stored:
            self._store_queue(queue)
        queued, packets, spelled = self._extra.queued, batch.packets, batch.spelled
        for message, place in zip(messages, places, strict=True):
            if message is not None:
                key = spell_place(queue.name, message.number)
                queued[key] = packets[place], spelled[place]
        # Last: the first of them may have been dropped for those behind them.
        if queue not in self._delivering:  # else some of it may yet be taken back
            self._forget_done(queue)

    def _put(
        self,
        client: Client,
        queue: Queue,
        topic: bytes,
        body: bytes,
        properties: Properties,
        packet: bytes,
    ) -> bool:
        """Put a message into a queue, and hold its publisher if it must; False: it was dropped.

        ``packet``: as a durable queue has it stored.
        """
        if not queue.put(topic, body, properties):
            return False
        if queue.durable:
            if not queue.is_stored:
                self._store_queue(queue)
            if queue not in self._delivering:  # else some of it may yet be taken back
                self._forget_done(queue)
            key = spell_place(queue.name, queue.last_number)
            self._extra.queued[key] = packet, pack_properties(properties)
        if queue.is_blocking:
            self._hold_publisher(queue.name)
        return True

    def _store_queue(self, queue: Queue) -> None:
        """Have a durable queue itself stored: it comes back as it is, if anything waits in it."""
        entry = spell_attributes(queue), spell_state(queue)
        self._extra.queued[spell_place(queue.name, 0)] = entry
        queue.is_stored = True

    def _forget_done(self, queue: Queue) -> None:
        """Have those messages of a durable queue forgotten that are done with."""
        queued = self._extra.queued
        if queue.checkpoints:
            self._store_queue(queue)  # some may be done with, and kept
        for number in queue.take_forgotten():
            key = spell_place(queue.name, number)
            if queued.get(key) is not None:
                del queued[key]  # it came in this turn: nobody needs to know of it
            else:
                queued[key] = None

    def _hold_publisher(self, what: bytes) -> None:
        """Have whose read this is about wait for a full queue, or for a session (``_behind``)."""
        publisher = self._clients.get(self._cause)
        if publisher is not None and not publisher.closing:
            if publisher.held_by is None:
                publisher.held_by = set()
            if not publisher.held_by:
                self._hold(publisher, "queue")
            publisher.held_by.add(what)
            self._held.setdefault(what, {})[publisher.connection] = publisher

    def _deliver_queue(self, queue: Queue) -> None:
        """Give a queue's consumers what they take; what they say to that may concern it again.

        A consumer that is slow congests itself: publishers wait for the queue, not for it.
        """
        if queue in self._delivering or not self._is_open(queue):
            return
        self._delivering.add(queue)
        cause = self._cause
        try:
            while self._is_open(queue):
                before = queue.given
                given = queue.assign(_STEP_BYTES)
                if queue.given != before:
                    self._store_queue(queue)
                    self._extra.queued_first = True
                if not given:
                    break
                for connection, messages in given.items():
                    if not self._is_open(queue):
                        break
                    receiver = self._clients.get(connection)
                    if receiver is None or receiver.closing or not queue.has(connection):
                        queue.take_back(messages)  # it left because of one that came before it
                        continue
                    self._cause = connection
                    self._deliver(connection, QueueDelivery(queue.name, messages))
                    if queue.taker:
                        # Or what it keeps could be published here once more after a kill, under
                        # another number.
                        self._extra.kept_first.add(connection)
                    if queue.waits_until_sent(connection):
                        self._proceed_later(connection, all_sent=True)
                    elif queue.is_paced(connection):
                        self._proceed_later(connection)
        finally:
            self._delivering.discard(queue)
            self._cause = cause
        if not self._is_open(queue):
            return  # deleted by what a consumer has said
        if queue.durable:
            self._forget_done(queue)
        self._note_blocking(queue)
        if queue.name in self._held and not queue.full:
            self._release_publishers(queue.name)

    def _proceed_later(self, connection: ConnectionId, *, all_sent: bool = False) -> None:
        """Have ``proceed`` called for a connection."""
        paced = self._extra.paced
        paced[connection] = all_sent or paced.get(connection, False)

    def _note_blocking(self, queue: Queue) -> None:
        if queue.is_blocking:
            self._blocking[queue.name] = queue

    def _is_open(self, queue: Queue) -> bool:
        """Whether a queue was not deleted."""
        return self._bus.queues.get(queue.name) is queue

    def _consumed_by(self, client: Client) -> list[Queue]:
        queues = self._bus.queues
        return [queues[name] for name in client.queues or () if name in queues]

    def _release_publishers(self, name: bytes) -> None:
        for publisher in self._held.pop(name, {}).values():
            if publisher.held_by and not publisher.closing:
                publisher.held_by.discard(name)
                if not publisher.held_by:
                    self._extra.releases[publisher.connection, "queue"] = None

    def _consume(self, client: Client, command: Consume) -> None:
        if client.closing:
            return  # nobody would take what it is given
        if not self._may_use_queue(client, command, "subscribe"):
            return
        queue = self._queue_for(client, command, command.queue)
        if queue is None:
            return
        taker = command.taker if queue.durable else None
        if taker is not None:
            if not queue.may_take(taker.name, taker.number):
                return self._answer(client, command, "queue.taker")
            queue.begin_taking(taker.name, taker.number)
            self._store_queue(queue)
            self._extra.queued_first = True
            self._extra.kept_first.add(client.connection)
        elif queue.taker and command.acknowledged:
            # What it gave back would come behind what the taker has had, and count as kept.
            return self._answer(client, command, "queue.taker")
        self._answer(client, command, "")
        if client.queues is None:
            client.queues = set()
        client.queues.add(command.queue)
        if command.own:
            client.own_queues |= {command.queue}
        wanted = command.filter
        if wanted is not None:
            # It will be asked about all that waits.
            self._work.left -= _STEPS_OF_A_FILTER * queue.waiting
        queue.consume(
            client.connection,
            command.credit,
            command.acknowledged,
            None if wanted is None else partial(self._passes, wanted, client.connection),
        )
        queue.ready(client.connection, not client.congested)
        self._deliver_queue(queue)

    def _stop_consuming(self, client: Client, command: StopConsuming) -> None:
        if client.queues is None or command.queue not in client.queues:
            return
        client.queues.discard(command.queue)
        self._leave_queue(client, command.queue)

    def _leave_queue(self, client: Client, name: bytes) -> None:
        queue = self._bus.queues.get(name)
        if queue is None:
            return  # deleted by what the consumers of another one have said
        queue.leave(client.connection, is_sent=client.is_sent)
        if queue.consumers or queue.permanent:
            self._deliver_queue(queue)
        else:
            self._delete_queue(client, DeleteQueue(name))

    def _acknowledge(self, client: Client, command: Acknowledge) -> None:
        queue = self._bus.queues.get(command.queue)
        if queue is not None and queue.acknowledge(client.connection, command.numbers):
            self._deliver_queue(queue)

    def _remember(self, client: Client, command: Remember) -> None:
        if not self._stores:
            return
        if command.value is None:
            self._remembered.pop(command.name, None)
            entry = None
        else:
            self._remembered[command.name] = command.value
            entry = command.value, b""
        self._extra.queued[spell_remembered(command.name)] = entry
        self._extra.kept_first.add(client.connection)

    # ---- connections ----

    def _leave(self, client: Client) -> None:
        """Take a connection off the bus: from now on it gets nothing.

        With many subscriptions that goes on step by step, whenever the broker is called.
        """
        client.closing = True
        client.steps = 0  # its wills are searched for as anybody's
        client.suspended = None
        client.answers = None
        for name in client.held_by or ():
            self._held.get(name, {}).pop(client.connection, None)
        self._hold_publishers(client, HoldPublishers(False))
        if self._pings:
            self._end_pings(client)
        queues, client.queues = client.queues, None
        for name in queues or ():
            self._leave_queue(client, name)
        if client.connection in self._leaving:
            return
        self._end_subscriptions(client, client.connection)

    def _end_subscriptions(self, client: Client, subscriber: SubscriberId) -> None:
        """Take a subscriber off the bus; ``client`` tells of the interests that end with it."""
        if self._leaving.is_needed(subscriber):
            self._leaving.begin(subscriber, client, self._now)
            return
        left, self._work.left = self._work.left, self._limits.max_steps_per_s
        for interest in list(self._bus.detach(subscriber)):
            self._tell_interest(client, interest)
        self._work.left = left

    def _go_on_leaving(self) -> None:
        """End the next subscriptions of those who leave step by step."""
        for client, interest in self._leaving.step(self._now):
            self._tell_interest(client, interest)

    def _send(self, client: Client, command: Send) -> None:
        if client.closing:
            return  # refused in the middle of what it asked for: the rest is not true any more
        if type(command.data) is not bytes and not isinstance(command.data, Buffer):
            raise TypeError(f"a session sends bytes, not {type(command.data).__name__}")
        cause = self._cause
        if command.acknowledges:
            self._cause = client.connection
        self._forward(client.alone, command.data)
        self._cause = cause

    def _pace(self, client: Client, command: Pace) -> None:
        client.paced = True
        self._proceed_later(client.connection)

    def _ask_edge(self, client: Client, command: Ask) -> None:
        self._last_question += 1
        self._questions[self._last_question] = client, command.answer
        self._extra.questions.append((self._last_question, command.question))

    def _ping(self, client: Client, command: Ping) -> None:
        """Have a client asked for a sign of life: of several with a name the one that came last.

        Who is called so has to be looked for among all, which goes on when ``tick`` is called.
        """
        if isinstance(command.client, str):
            self._work.left -= self._counts.total()
            if len(self._searches) >= _MOST_PINGS:
                self._end_search("has not been found yet")
            self._searches.append(_Search(client, command))
            if len(self._searches) == 1:
                self._search()
            return
        pinged = self._clients.get(command.client)
        if pinged is None or pinged.closing or pinged.internal:
            self._cannot_ping(client, command, None, "is not connected")
        elif not self._begin_ping(client, command, pinged):
            self._cannot_ping(client, command, pinged.spec, "")

    def _search(self) -> None:
        """Go on with those that are looked for by their names."""
        looks = _LOOKS_AT_ONCE
        while self._searches and looks > 0:
            search = self._searches[0]
            found = list(islice(self._in_order.before(search.before), looks))
            for place, connection in enumerate(found):
                if search.client.closing or self._finds(search, self._clients[connection]):
                    self._searches.popleft()
                    looks -= place + 1
                    break
            else:
                if len(found) == looks:
                    search.before = found[-1]
                    return
                looks -= len(found) + 1
                self._end_search("is not connected")

    def _finds(self, search: _Search, client: Client) -> bool:
        """Whether this is who was looked for, and is asked now."""
        names = client.session.client or client.session.label, client.principal.name
        if client.closing or search.command.client not in names:
            return False
        if self._begin_ping(search.client, search.command, client):
            return True
        search.mute = search.mute or client.spec
        return False

    def _end_search(self, why: str) -> None:
        """Say to the first that looks for somebody why there is no sign of life."""
        search = self._searches.popleft()
        if not search.client.closing:
            self._cannot_ping(search.client, search.command, search.mute, why)
            self._renew(search.client)

    def _begin_ping(self, client: Client, command: Ping, pinged: Client) -> bool:
        """Ask one for a sign of life; False if its protocol has none."""
        self._last_ping += 1
        tag = self._last_ping
        commands = self._said(pinged, pinged.session.ping, tag, self._now, otherwise=None)
        if commands is None:
            return False
        if len(self._pings) >= _MOST_PINGS:
            self._end_ping(next(iter(self._pings)), None, "has not answered yet")
        self._pings[tag] = _Pinged(client.connection, pinged.connection, self._now, command.answer)
        self._run_all(pinged, commands)
        self._renew(pinged)
        return True

    def _cannot_ping(
        self, client: Client, command: Ping, mute: ProtocolSpec | None, why: str
    ) -> None:
        if mute is not None:
            why = f"cannot be asked that: it speaks {mute.title}"
        self._run_all(client, self._ask(client, command.answer, None, why))

    def _ponged(self, client: Client, command: Ponged) -> None:
        ping = self._pings.get(command.tag)
        if ping is not None and ping.pinged == client.connection:  # nobody answers for another
            self._end_ping(command.tag, self._now, "")

    def _end_pings(self, client: Client) -> None:
        """Answer those that wait for a client that leaves; forget its own."""
        for tag, ping in list(self._pings.items()):
            if ping.asker == client.connection:
                del self._pings[tag]
            elif ping.pinged == client.connection:
                self._end_ping(tag, None, "has left")

    def _end_ping(self, tag: int, now: float | None, why: str) -> None:
        ping = self._pings.pop(tag, None)
        asker = self._clients.get(ping.asker) if ping is not None else None
        if ping is None or asker is None or asker.closing:
            return
        passed = None if now is None else now - ping.began
        self._run_all(asker, self._ask(asker, ping.answer, passed, why))
        self._renew(asker)

    def _hold_publishers(self, client: Client, command: HoldPublishers) -> None:
        holds = command.held and not client.closing
        if holds == client.holds:
            return
        client.holds = holds
        if client.slow == "disconnect":
            if holds:
                reason = "too much waits for its acks (slow=disconnect)"
                self._disconnect(client, Disconnect(f"net.slow_consumer: {reason}"))
        elif client.slow == "pause":
            self._behind_count += 1 if holds else -1
            self._extra.behind[client.connection] = None if client.closing else holds
            if not holds:
                self._release_publishers(_behind(client.connection))

    def _disconnect(self, client: Client, command: Disconnect) -> None:
        ended: Client | None = client
        if command.connection is not None:
            ended = self._clients.get(command.connection)
        if ended is None or ended.closing:
            return
        if command.failure is not None:
            failure = Failure("extension", ended.connection, command.failure)
            self._extra.failures.append(failure)
        self.stats.close(ended.spec.name, command.reason)
        self._extra.closes.append(Close(ended.connection, command.reason, command.abort))
        self._leave(ended)

    def _wake(self, client: Client, command: Wake) -> None:
        self._wake_up(command.connection)

    def _wake_up(self, connection: ConnectionId) -> None:
        woken = self._clients.get(connection)
        if woken is not None and not woken.closing:
            self._run_all(woken, self._ask(woken, woken.session.tick, self._now))
            self._renew(woken)

    def _suspect(self, client: Client, command: Suspect) -> None:
        self._extra.suspects.append(command.connection)

    def _discard(self, client: Client, command: Discard) -> None:
        """Count what was discarded; a client that sends too much of it rests.

        FMQP R4 forbids no more than the effect: its connection is kept, it only waits its turn.
        """
        self.stats.discard(client.spec.name, command.rule, command.count)
        limit = self._limits.max_discards_per_s
        passed = self._now - client.discards_paid
        client.discards_paid = self._now
        client.discards = max(0.0, client.discards - passed * limit) + command.distinct
        if client.discards > limit * _LENIENCE_S:
            self._extra.rests[client.connection] = client.discards / limit

    def _signal(self, client: Client, command: Signal) -> None:
        path = b"$/signals/" + command.kind.encode()
        granted = command.granted and self.access.is_open
        if not granted and not self._decide(client, "signal", path):
            self._deny(client, "signal", path)
        elif not self._ending:
            self._ending = True
            self._extra.signal = command.kind
            self._extra.signalled_by = str(client.principal)

    def _reply(self, client: Client, command: Reply) -> None:
        self._extra.answers.append((client.connection, command.answer()))

    def _change_tables(self, client: Client, command: ChangeTables) -> None:
        name = client.spec.name
        self._extra.changes += [(name, statement) for statement in command.statements]

    def _complain(self, client: Client, command: Complain) -> None:
        self._extra.complaints.append(command.text)

    def _dial(self, client: Client, command: Dial) -> None:
        host, port, tag = command.host, command.port, command.tag
        self._extra.outgoing.append(
            Outgoing(
                client.connection, client.spec.name, host, port, tag, command.timeout_s, command.tls
            )
        )


class _Executors(dict[type[Any], Callable[[Broker, Client, Any], None]]):
    """What each kind of command does."""

    def __missing__(self, kind: type[Any]) -> Callable[[Broker, Client, Any], None]:
        raise TypeError(f"a session returned a {kind.__name__}, which is no command")


_EXECUTE = _Executors(
    {
        Publish: Broker._publish,
        PublishMany: Broker._publish_many,
        Announce: Broker._announce,
        Subscribe: Broker._subscribe,
        Unsubscribe: Broker._unsubscribe,
        OpenQueue: Broker._open_queue,
        DeleteQueue: Broker._delete_queue,
        Checkpoint: Broker._checkpoint,
        Enqueue: Broker._enqueue,
        Consume: Broker._consume,
        StopConsuming: Broker._stop_consuming,
        Acknowledge: Broker._acknowledge,
        Remember: Broker._remember,
        Send: Broker._send,
        Pace: Broker._pace,
        Ask: Broker._ask_edge,
        Ping: Broker._ping,
        Ponged: Broker._ponged,
        HoldPublishers: Broker._hold_publishers,
        Disconnect: Broker._disconnect,
        Wake: Broker._wake,
        Suspect: Broker._suspect,
        Discard: Broker._discard,
        Signal: Broker._signal,
        Authenticate: Broker._authenticate,
        ActAs: Broker._act_as,
        Reply: Broker._reply,
        ChangeTables: Broker._change_tables,
        Complain: Broker._complain,
        Dial: Broker._dial,
    }
)
