"""One fq connection on the broker's side: the commands of a client, or its messages.

A client has two connections, which begin differently and are one (R1): whichever ends, ends both.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from ipaddress import IPv4Address
from struct import Struct
from typing import Any

from host_broker.bus.commands import (
    Acknowledge,
    ActAs,
    Authenticate,
    Command,
    Complain,
    Consume,
    Discard,
    Disconnect,
    PublishMany,
    Send,
    StopConsuming,
    Taker,
    Wake,
)
from host_broker.bus.delivery import Delivery, QueueDelivery
from host_broker.bus.outcomes import Outcomes
from host_broker.bus.publication import NO_PROPERTIES, Properties
from host_broker.outputs import ConnectionId
from host_broker.protocol import NOTHING, Session
from host_broker.protocols.fq.codec import (
    HOP_BYTES,
    ID_BYTES,
    MAX_HOPS,
    MAX_NAME,
    REFUSED,
    TAKER_BYTES,
    Codec,
    read_origin,
    spell_bind_answer,
    spell_error,
    spell_heartbeat,
    spell_login_accepted,
    spell_origin,
    spell_status,
    spell_taken,
    spell_unbind_answer,
)
from host_broker.protocols.fq.events import (
    Bind,
    CommandGreeting,
    DataGreeting,
    Heartbeat,
    HeartbeatRequest,
    Login,
    MessageRun,
    StatusRequest,
    Taken,
    TooLong,
    Unbind,
)
from host_broker.protocols.fq.pages import spell_place
from host_broker.protocols.fq.queues import (
    Binding,
    FqClient,
    FqQueue,
    QueueError,
    WantedQueue,
    read_wanted_queue,
)
from host_broker.protocols.fq.remembered import Remembered
from host_broker.protocols.fq.shared import FqShared
from host_broker.protocols.fq.topics import EXCHANGE, ROUTE, Address, head_of
from host_broker.wire.violation import Violation

SENDER, HOPS, ID = "fq.sender", "fq.hops", "fq.id"  # properties of messages on the bus

# In the order of the status, behind dropped_in.
COUNTERS = (
    "no_exchange",
    "no_route",
    "routed",
    "dropped",
    "size_dropped",
    "msgs_in",
    "msgs_out",
    "octets_in",
    "octets_out",
)
ACKNOWLEDGES = b"acks"  # last in the status of who may acknowledge what it is given
LEAST_BEAT_S = 0.01
LINGER_S = 0.5  # that the data connection is read when the other one has ended
LONGEST_LINGER_S = 30.0  # that it waits for a full queue before that
_MISSED_BEATS = 3
_UNLIMITED = 1 << 30
_LONG = Struct(">I")
_LENGTHS = [_LONG.pack(length) for length in range(2048)]
_AROUND = ID_BYTES + _LONG.size  # bytes of a frame besides exchange, route, origin and payload
MAX_ORIGINS = 1024  # senders and hops, remembered by each connection
_NO_SENDER = b"_motemq"  # of what came by another protocol; npm's client cannot read an empty one


class _State(Enum):
    GREETING = auto()
    WAIT_LOGIN = auto()
    LOGGING_IN = auto()  # who it is, is being found out
    COMMANDS = auto()
    MESSAGES = auto()
    CLOSED = auto()


class FqSession(Session):
    """What each event does in which state is ``_TRANSITIONS`` at the end of this module."""

    def __init__(
        self, server: FqShared, connection: ConnectionId, loopback: bool, now: float
    ) -> None:
        settings = server.settings
        self.client = ""
        self.deadline: float | None = now + settings.handshake_timeout_s
        self._server = server
        self._connection = connection
        self._loopback = loopback
        self._codec = Codec(
            "broker",
            server.max_payload,
            server.context.held,
            max_program=settings.max_program,
            peer_format=settings.peer_publish,
            npm_quirk=settings.npm_quirk,
        )
        self._state = _State.GREETING
        self._peer: FqClient | None = None  # whose connection this is, once it is known
        self._early: list[Any] = []  # came before it was known who the client is
        self._beat_s = 0.0  # 0: none was asked for
        self._next_beat = 0.0
        self._last_heard = now
        self._ends_at = 0.0  # of a data connection whose command connection has ended
        self._own: Properties = NO_PROPERTIES  # of what comes without sender and hops
        self._relayed = Remembered(self._relay, MAX_ORIGINS)
        self._origins = Remembered(self._origin, MAX_ORIGINS)
        # Of a taker: numbers that it was given and has not acknowledged, with the last one of them
        # that it was sent.
        self._is_taker = False
        self._given: deque[tuple[int, deque[int]]] = deque()

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        """Take one read."""
        self._last_heard = now
        return self._handle(self._codec.receive_data(data), now)

    def _handle(self, events: Sequence[Any], now: float) -> Sequence[Command]:
        commands: list[Command] = []
        for position, event in enumerate(events):
            if self._state is _State.LOGGING_IN:
                self._early += events[position:]
                break
            handler = _TRANSITIONS[self._state].get(type(event), FqSession._unexpected)
            commands += handler(self, event, now)
            if self._state is _State.CLOSED:
                break
        return commands

    def tick(self, now: float) -> Sequence[Command]:
        """End a handshake that takes too long; beat; end a client that is silent (R15)."""
        if self._state in (_State.GREETING, _State.WAIT_LOGIN):
            reason = "fq.handshake_timeout_s: the login, or the key, has not come in time"
            return self._end(reason)
        if self._state is _State.MESSAGES and self._peer is not None:
            return self._tick_data(self._peer, now)
        if self._state is not _State.COMMANDS or not self._beat_s:
            self.deadline = None
            return NOTHING
        if now >= self._silent_at:
            return self._refuse("R15", "client heartbeat failed")
        commands: list[Command] = []
        if now >= self._next_beat:
            commands.append(Send(spell_heartbeat()))
            self._next_beat = now + self._beat_s
        self._set_deadline()
        return commands

    def _tick_data(self, client: FqClient, now: float) -> Sequence[Command]:
        """End the data connection some time after its command connection has (A19).

        Programs publish, and then close both: what they have said is on its way, and is read.
        """
        self.deadline = None
        if client.key in self._server.clients:
            return NOTHING
        if not self._ends_at:
            self.deadline = self._ends_at = now + LINGER_S
            self.latest = now + LONGEST_LINGER_S
            return [StopConsuming(client.queue.path)]
        if now < self._ends_at:
            self.deadline = self._ends_at
            return NOTHING
        return self._end("the client's command connection has ended")

    def closed(self, now: float) -> Sequence[Command]:
        """End the other connection of the client, too, and leave its queue."""
        self._state = _State.CLOSED
        self._codec.close()
        client, self._peer = self._peer, None
        return NOTHING if client is None else self._leave(client)

    def _leave(self, client: FqClient) -> Sequence[Command]:
        server = self._server
        if server.clients.pop(client.key, None) is None:
            return NOTHING  # its other connection has ended before
        commands: list[Command] = []
        if self._connection == client.data:
            reason = "the client's data connection has ended"
            commands.append(Disconnect(reason, connection=client.command))
        elif client.data:
            commands.append(Wake(client.data))
        return [*commands, *server.queues.leave(client)]

    def _end(self, reason: str) -> Sequence[Command]:
        self._state = _State.CLOSED
        self._codec.close()
        self.deadline = None
        return [Disconnect(reason)]

    def _refuse(self, rule: str, text: str) -> Sequence[Command]:
        """Say ERROR, and close (R8, A18)."""
        return [Send(spell_error(text)), *self._end(f"{rule}: {text.strip()}")]

    def _unexpected(self, event: Any, now: float) -> Sequence[Command]:
        return self._end(f"R11: {type(event).__name__} is out of place")

    def refused(self, action: str, topic: bytes) -> Sequence[Command]:
        """End a client that may not use its queue any more; fq has no word for the rest."""
        client = self._peer
        if action != "subscribe" or client is None or topic != client.queue.path:
            return NOTHING
        return self._end("access.subscribe: the client may not use its queue any more")

    def _violated(self, event: Violation, now: float) -> Sequence[Command]:
        return self._end(f"{event.rule}: {event.reason}")

    def _violated_login(self, event: Violation, now: float) -> Sequence[Command]:
        return self._refuse(event.rule, event.reason)

    # ---- the command connection ----

    def _greeted(self, event: CommandGreeting, now: float) -> Sequence[Command]:
        self._state = _State.WAIT_LOGIN
        return NOTHING

    def _login(self, event: Login, now: float) -> Sequence[Command]:
        try:
            wanted = read_wanted_queue(event.queue, self._server.unused_name)
        except QueueError as error:
            return self._refuse("R8", str(error))
        self._state = _State.LOGGING_IN
        self.deadline = None

        def answer(name: str, why: str, now: float) -> Sequence[Command]:
            if self._state is not _State.LOGGING_IN:
                return NOTHING
            if why:
                return self._refuse("R8", "access denied")
            self.client = name
            return self._logged_in(event.user or self._proved(name), wanted, now)

        claim = event.user.decode("utf-8", "backslashreplace")
        secret = event.password.decode("utf-8", "backslashreplace")
        return [Authenticate(claim, answer, secret)]

    def _proved(self, name: str) -> bytes:
        """Return the sender of who has said no user: the name that is proved otherwise, if any."""
        view = self._server.context.view
        if view is None or not view.principal_of(self._connection).is_known:
            return b""
        return name.encode()[:MAX_NAME]

    def _logged_in(self, user: bytes, wanted: WantedQueue, now: float) -> Sequence[Command]:
        """Attach the client to its queue. What it says meanwhile waits: it is of no use without."""

        def opened(queue: FqQueue) -> Sequence[Command]:
            return self._attached(user, queue, now)

        def refused(text: str) -> Sequence[Command]:
            return self._refuse("R8", text)

        try:
            _, commands = self._server.queues.open(wanted, opened, refused)
        except QueueError as error:
            return refused(str(error))
        return commands

    def _attached(self, user: bytes, queue: FqQueue, now: float) -> Sequence[Command]:
        server = self._server
        hop = server.hop_of(self._connection, self._loopback)
        client = FqClient(user, queue, server.new_key(), self._connection, ".".join(map(str, hop)))
        queue.clients.append(client)
        server.clients[client.key] = client
        self._peer = client
        self._state = _State.COMMANDS
        early, self._early = self._early, []
        return [
            # A beat follows that nobody has asked for: clients wait for it.
            Send(spell_login_accepted(client.key) + spell_heartbeat()),
            *self._handle(early, now),
        ]

    def _heartbeat(self, event: Heartbeat, now: float) -> Sequence[Command]:
        return NOTHING

    def _heartbeat_request(self, event: HeartbeatRequest, now: float) -> Sequence[Command]:
        milliseconds = event.milliseconds
        self._beat_s = max(milliseconds / 1000, LEAST_BEAT_S) if milliseconds else 0.0
        self._next_beat = now + self._beat_s
        self._set_deadline()
        return NOTHING

    @property
    def _silent_at(self) -> float:
        """When a client that says nothing more has missed too many beats."""
        return self._last_heard + _MISSED_BEATS * self._beat_s

    def _set_deadline(self) -> None:
        if self._beat_s:
            self.deadline = min(self._next_beat, self._silent_at)
        else:
            self.deadline = None

    def _bind(self, event: Bind, now: float) -> Sequence[Command]:
        if self._peer is None:
            return NOTHING

        def answered(binding: Binding | None) -> Sequence[Command]:
            return [Send(spell_bind_answer(REFUSED if binding is None else binding.route))]

        return self._server.queues.bind(
            self._peer.queue, event.exchange, event.program, event.flags, answered
        )

    def _unbind(self, event: Unbind, now: float) -> Sequence[Command]:
        if self._peer is None:
            return NOTHING
        ended = self._server.queues.unbind(self._peer.queue, event.route, event.exchange)
        if ended is None:
            return [Send(spell_unbind_answer(REFUSED))]
        return [*ended, Send(spell_unbind_answer(event.route))]

    def _status(self, event: StatusRequest, now: float) -> Sequence[Command]:
        client = self._peer
        if client is None:
            return NOTHING
        counters = [(b"dropped_in", self._server.queue_drops(client))]
        if client.data:
            counters += [(name.encode(), getattr(client, name)) for name in COUNTERS]
        if client.queue.takes_acknowledgements:
            counters.append((ACKNOWLEDGES, 1))
        return [Send(spell_status(counters))]

    # ---- the data connection ----

    def _began_data(self, event: DataGreeting, now: float) -> Sequence[Command]:
        """Join the client whose key it is; close if there is none (R5), or it is joined (R6)."""
        server = self._server
        client = server.clients.get(event.key)
        if client is None:
            return self._end("R5: no client has this key")
        if client.data:
            return self._end("R6: the client has a data connection already")
        if event.taker and not client.queue.takes_acknowledgements:
            return self._end("the queue is none on disk for one client: nothing is acknowledged")
        self._state = _State.MESSAGES
        self.deadline = None
        self._peer = client
        client.data = self._connection
        client.is_peer, client.node = event.peer, event.node
        self.client = client.user.decode("utf-8", "backslashreplace")
        hops = server.node + server.hop_of(self._connection, self._loopback)
        self._own = {SENDER: client.user, HOPS: hops}
        if event.peer:
            self._own = {SENDER: b"", HOPS: server.node}  # A3
        commands: list[Command] = [ActAs(client.command)]
        if event.node == server.node:
            commands.append(
                Complain(
                    f"fq: the peer {self.client!r} has the fq.node_id of this broker, "
                    f"{IPv4Address(server.node)}, so it is given nothing: set another one there, "
                    "or have no row of upstream for the broker itself"
                )
            )
        if not client.queue.gives_nothing:
            queue = client.queue
            if event.taker:
                self._is_taker = True
                return [*commands, self._begin_taking(queue, event.taker, event.taken)]
            commands.append(Consume(queue.path, _UNLIMITED, acknowledged=False, own=queue.own))
        return commands

    def _begin_taking(self, queue: FqQueue, name: bytes, taken: int) -> Command:
        """Return how to begin with a taker, which is told first under which name numbers count, and
        which of them are done with: what it says of another queue means nothing."""
        if not taken:
            name = self._server.random(TAKER_BYTES)

        def answered(refusal: str) -> Sequence[Command]:
            if not refusal:
                return [Send(name + spell_taken(taken))]
            return [self._begin_taking(queue, b"", 0)] if taken else self._end(refusal)

        taker = Taker(name, taken)
        return Consume(queue.path, _UNLIMITED, own=queue.own, taker=taker, answer=answered)

    def _published(self, event: MessageRun, now: float) -> Sequence[Command]:
        client = self._peer
        if client is None:
            return NOTHING
        heads, payloads = event.heads, event.payloads
        client.msgs_in += len(payloads)
        # fqd counts whole frames: the figures of both can be compared.
        client.octets_in += _AROUND * len(payloads) + sum(map(len, heads)) + sum(map(len, payloads))
        if not event.origins:
            return [publication(self._server, event, (self._own,), client)]
        client.octets_in += sum(map(len, event.origins))
        return relayed(self._server, event, self._relayed, client)

    def _relay(self, origin: bytes) -> Properties | None:
        """Return the properties of what a peer publishes; None: it has been here (R46)."""
        sender, hops = read_origin(origin)
        node = self._server.node
        if _has_hop(hops, node):
            return None
        return {SENDER: sender, HOPS: (node + hops)[: MAX_HOPS * HOP_BYTES]}

    def _too_long(self, event: TooLong, now: float) -> Sequence[Command]:
        if self._peer is not None:
            self._peer.size_dropped += 1
        return [Discard("fq.max_payload")]

    def deliver(self, delivery: Delivery | QueueDelivery, now: float) -> Sequence[Command]:
        """Send messages of the queue, always with sender and hops (A4)."""
        client = self._peer
        if client is None or not isinstance(delivery, QueueDelivery):
            return NOTHING
        parts: list[bytes] = []
        count = left_out = last = 0
        on_disk = client.queue.kind == "disk"
        topic = sender = hops = head = origin = None
        heads, origins, lengths, short = (
            self._server.topics.heads,
            self._origins,
            _LENGTHS,
            len(_LENGTHS),
        )
        for message in delivery.messages:
            properties = message.properties
            if message.topic is not topic:
                topic = message.topic
                head = heads[topic] or self._head_of_cut(topic, properties)
            get = properties.get
            its_sender, its_hops = get(SENDER), get(HOPS)
            if its_sender is not sender or its_hops is not hops or origin is None:
                sender, hops = its_sender, its_hops
                origin = origins[sender, hops]
            if head is None or origin is None:
                left_out += head is None
                continue
            id = get(ID)
            if id is None or len(id) != ID_BYTES:
                id = self._server.new_id()
            if on_disk:
                id = id[:8] + spell_place(message.number)
            body = message.body
            length = len(body)
            parts += (
                head,
                id,
                origin,
                lengths[length] if length < short else _LONG.pack(length),
                body,
            )
            count += 1
            last = message.number
        frames = b"".join(parts)
        client.msgs_out += count
        client.octets_out += len(frames)
        commands: list[Command] = [Send(frames)] if frames else []
        if left_out:
            commands.append(Discard("R25", left_out))
        if self._is_taker:
            commands += self._note_given([message.number for message in delivery.messages], last)
        return commands

    def _note_given(self, numbers: list[int], last: int) -> Sequence[Command]:
        """Note what a taker was given, and ``last``, the last one that it was sent (0: none). What
        was left out is done with by what it acknowledges before or behind that."""
        if last:
            self._given.append((last, deque(numbers)))
        elif self._given:
            self._given[-1][1].extend(numbers)
        elif self._peer is not None:
            return [Acknowledge(self._peer.queue.path, numbers)]
        return NOTHING

    def _taken(self, event: Taken, now: float) -> Sequence[Command]:
        if self._peer is None:
            return NOTHING
        done: list[int] = []
        given = self._given
        while given:
            last, numbers = given[0]
            if last > event.number:
                while numbers and numbers[0] <= event.number:
                    done.append(numbers.popleft())
                break
            done += numbers
            given.popleft()
        return [Acknowledge(self._peer.queue.path, done)] if done else NOTHING

    def _head_of_cut(self, topic: bytes, properties: Properties) -> bytes | None:
        """Return what a message of a topic begins with that is cut; None: it is too long (R25)."""
        if ROUTE in properties and EXCHANGE in properties:
            return head_of(Address(properties[EXCHANGE], properties[ROUTE], topic))
        return head_of(self._server.topics.read(topic))

    def _origin(self, whose: tuple[bytes | None, bytes | None]) -> bytes | None:
        """Return how sender and hops are said; None: this peer is among the hops (R46)."""
        sender, hops = whose
        if hops is None or len(hops) % HOP_BYTES or len(hops) > MAX_HOPS * HOP_BYTES:
            said = self._server.node  # npm's client needs one (A16)
        else:
            said = hops
        client = self._peer
        if client is not None and client.node and _has_hop(said, client.node):
            return None
        return spell_origin((sender or _NO_SENDER)[:MAX_NAME], said)


def relayed(
    server: FqShared,
    run: MessageRun,
    properties_of: Mapping[bytes, Properties | None],
    client: FqClient | None,
) -> Sequence[Command]:
    """Return how to publish messages that a peer has said: with the properties that their origins
    mean, if any."""
    found = [properties_of[origin] for origin in run.origins]
    shared = [each for each in found if each is not None]
    if len(shared) < len(found):
        run = run.only([place for place, each in enumerate(found) if each is not None])
    return [publication(server, run, shared, client)] if shared else NOTHING


def publication(
    server: FqShared, run: MessageRun, shared: Sequence[Properties], client: FqClient | None
) -> Command:
    """Return how to publish messages; what becomes of them is counted, also for ``client``.

    ``shared``: the properties of each message besides its id, or one for all of them.
    """
    queues = server.queues
    addresses = list(map(server.topics.by_head.__getitem__, run.heads))
    topics = [address.topic for address in addresses]
    kinds = dict(zip(topics, addresses, strict=True)).values()
    if any(address.is_cut for address in kinds):
        each = shared if len(shared) == len(topics) else list(shared) * len(topics)
        shared = [
            {**own, **address.properties} if address.is_cut else own
            for own, address in zip(each, addresses, strict=True)
        ]
    # What becomes of them is counted by exchanges.
    exchanges = {each.exchange: queues.exchanges.get(each.exchange) for each in kinds}
    groups = list(exchanges) if len(exchanges) == 1 else [each.exchange for each in addresses]
    queues.came(exchanges, groups, run.payloads)

    def told(outcomes: Outcomes) -> None:
        for name, exchange in exchanges.items():
            outcome = outcomes.by_group.get(name)
            if outcome is None:
                continue  # nothing of it may be published
            if client is not None:
                client.routed += outcome.routed
                client.dropped += outcome.dropped
                client.no_route += outcome.unrouted
                if exchange is None:
                    client.no_exchange += outcome.unrouted
            queues.went(exchange, outcome)
        queues.asked(outcomes.unfiltered)

    return PublishMany(topics, run.payloads, shared, ID, run.ids, groups, told)


def _has_hop(hops: bytes, node: bytes) -> bool:
    return any(hops[at : at + HOP_BYTES] == node for at in range(0, len(hops), HOP_BYTES))


_TRANSITIONS: dict[_State, dict[type[Any], Callable[[FqSession, Any, float], Sequence[Command]]]]
_TRANSITIONS = {
    _State.GREETING: {
        CommandGreeting: FqSession._greeted,
        DataGreeting: FqSession._began_data,
        Violation: FqSession._violated,
    },
    _State.WAIT_LOGIN: {Login: FqSession._login, Violation: FqSession._violated_login},
    _State.LOGGING_IN: {},
    _State.COMMANDS: {
        Heartbeat: FqSession._heartbeat,
        HeartbeatRequest: FqSession._heartbeat_request,
        Bind: FqSession._bind,
        Unbind: FqSession._unbind,
        StatusRequest: FqSession._status,
        Violation: FqSession._violated,
    },
    _State.MESSAGES: {
        MessageRun: FqSession._published,
        TooLong: FqSession._too_long,
        Taken: FqSession._taken,
        Violation: FqSession._violated,
    },
    _State.CLOSED: {},
}
