"""One MicroMsg2 connection on the server's side: the handshake, then messages both ways."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import Any

from host_broker.access.principal import ANONYMOUS
from host_broker.bus.commands import (
    Acknowledge,
    Authenticate,
    Command,
    Consume,
    Discard,
    Disconnect,
    Enqueue,
    HoldPublishers,
    OpenQueue,
    Publish,
    Send,
    StopConsuming,
    Subscribe,
    Unsubscribe,
)
from host_broker.bus.delivery import Delivery, QueueDelivery, QueuedMessage
from host_broker.bus.publication import HEADER, Properties, Run, pack_many, property_fault
from host_broker.protocol import NOTHING, Session
from host_broker.protocols.micromsg2.assembly import Assembler
from host_broker.protocols.micromsg2.codec import (
    Codec,
    spell_error,
    spell_extension,
    spell_handshake,
)
from host_broker.protocols.micromsg2.destinations import (
    NO_DESTINATION,
    SUBSCRIBE,
    TOPIC_PREFIX,
    UNSUBSCRIBE,
    Destination,
    ToTopic,
    read_destination,
    read_subscribe,
    read_unsubscribe,
    spell_destination,
)
from host_broker.protocols.micromsg2.dotnet import TYPE, TypeOfMessages
from host_broker.protocols.micromsg2.events import (
    CommandFrame,
    ErrorFrame,
    ExtensionFrame,
    Handshake,
    MessageFrame,
    MessageRun,
)
from host_broker.protocols.micromsg2.extensions import ACK, BATCH_ACK, DOTNET, JSON, LOGIN, PUBSUB
from host_broker.protocols.micromsg2.grammar import GrammarError
from host_broker.protocols.micromsg2.json_payload import json_fault
from host_broker.protocols.micromsg2.negotiation import Acks, Agreement, Offer, conclude, reply
from host_broker.protocols.micromsg2.outgoing import Outgoing, OutgoingMessage
from host_broker.protocols.micromsg2.refusal import STOPPING, Refusal
from host_broker.protocols.micromsg2.settings import MicroMsg2Settings
from host_broker.protocols.micromsg2.values import (
    MAX_PROPERTIES,
    properties_to_bus,
    properties_to_wire,
)
from host_broker.protocols.micromsg2.vendor import (
    ExtensionFailed,
    Message,
    OpenExtensions,
    VendorExtension,
)
from host_broker.protocols.micromsg2.windows import ReceiveWindow, read_ack, spell_ack
from host_broker.wire.budget import Budget
from host_broker.wire.violation import Violation

# Properties of messages of queues: a consumer had it before, and its place in the queue.
REDELIVERED, QUEUE_NUMBER = "redelivered", "queue-number"

_SHOWN = 60
# Of max_backlog_bytes: where publishers begin to wait, and go on.
_HOLD_ABOVE, _RELEASE_BELOW = 4, 16
_MAX_DESTINATIONS = 1024  # that are remembered for one client


class _State(Enum):
    WAIT_REQUEST = auto()
    WAIT_FINAL = auto()
    WAIT_SECRET = auto()  # with the extension that authenticates
    LOGGING_IN = auto()  # who it is, is being found out
    READY = auto()
    CLOSED = auto()


class MicroMsg2Session(Session):
    """What each event does in which state is ``_TRANSITIONS`` at the end of this module.

    Every refusal is an ERROR frame and the end of the connection (A25).
    """

    def __init__(
        self,
        settings: MicroMsg2Settings,
        offer: Offer,
        max_body: int,
        budget: Budget,
        now: float,
        vendors: Sequence[VendorExtension] = (),
    ) -> None:
        self.client = ""
        self.deadline: float | None = now + settings.handshake_timeout_s
        self._settings = settings
        self._offer = offer
        self._budget = budget
        self._codec = Codec(
            "server", max_body, budget, extension_flag_4=settings.legacy_ext_flag4, runs=True
        )
        self._max_body = max_body
        self._assembler = Assembler(max_body, budget)
        self._vendors = vendors
        self._extensions = OpenExtensions()  # those of vendors
        self._state = _State.WAIT_REQUEST
        self._request = Handshake(1, 0, "")
        self._agreement: Agreement | None = None
        self._acks: Acks | None = None
        self._incoming = ReceiveWindow(None)
        self._outgoing = Outgoing(None, None, 0, budget)
        self._ack_deadline: float | None = None
        self._is_behind = False  # what waits for the client's acks is enough
        self._has_room = False  # the client has acknowledged something in this read
        self._types: TypeOfMessages | None = None  # with the extension dotnet
        self._queues: set[bytes] = set()  # consumed
        self._destinations: dict[bytes, Destination] = {}
        self._early: list[Any] = []  # came before it was known who the client is

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        """Take one read. What it published is acknowledged at its end, at once (R28)."""
        return self._handle(self._codec.receive_data(data), now)

    def _handle(self, events: Sequence[Any], now: float) -> Sequence[Command]:
        """Do what the events of a read ask for; those of a client that is logging in wait."""
        commands: list[Command] = []
        for position, event in enumerate(events):
            if self._state is _State.LOGGING_IN:
                self._early += events[position:]
                return commands
            handler = _TRANSITIONS[self._state].get(type(event), MicroMsg2Session._unexpected)
            try:
                commands += handler(self, event, now)
            except ExtensionFailed as failed:
                commands += self._failed(failed)
            if self._state is _State.CLOSED:
                return commands
        if self._acks is not None and self._state is _State.READY:
            commands += self._ack_what_came(self._acks, now)
        if not self._has_room:
            return commands
        self._has_room = False
        pushed = self._push(now)
        if self._state is _State.CLOSED:
            return [*commands, *pushed]
        # First: what the other commands make the bus deliver gets the numbers that come after.
        return [*pushed, *commands]

    def _ack_what_came(self, acks: Acks, now: float) -> Sequence[Command]:
        """Say the ack that is due: at once (R28), but to SharpMessaging (A31)."""
        if acks.per_ack is None:
            number = self._incoming.take_early()
        else:
            number = self._incoming.take(now)
            self._set_deadline()
        return NOTHING if number is None else [Send(spell_extension(acks.index, spell_ack(number)))]

    def deliver(self, delivery: Delivery | QueueDelivery, now: float) -> Sequence[Command]:
        """Send messages as far as the client's window goes; the rest waits for its acks."""
        if self._state is not _State.READY:
            return NOTHING
        try:
            return self._deliver(delivery, now)
        except ExtensionFailed as failed:
            return self._failed(failed)

    def _deliver(self, delivery: Delivery | QueueDelivery, now: float) -> Sequence[Command]:
        too_long = 0
        if isinstance(delivery, QueueDelivery):
            for each in delivery.messages:
                properties = each.properties
                if properties:  # those of another queue, if a consumer has passed it on
                    properties = dict(properties)
                    properties.pop(REDELIVERED, None)
                    properties.pop(QUEUE_NUMBER, None)
                message = self._for_client(delivery.queue, properties, each.body)
                if isinstance(message, Refusal):
                    return self._end(message)
                message.queue, message.number = delivery.queue, each.number
                message.properties = _with_place(message.properties, each)
                self._outgoing.add(message)
        else:
            frames = None
            if not (delivery.properties or self._extensions.change_outgoing):
                frames = self._frames_of(delivery.run)
            if frames is not None:
                self._await_acks(now)
                return [Send(frames)]
            for _, topic, body in delivery.each():
                destination = spell_destination(ToTopic(topic))
                if destination is None:
                    too_long += 1
                    continue
                message = self._for_client(destination, delivery.properties, body)
                if isinstance(message, Refusal):
                    return self._end(message)
                self._outgoing.add(message)
        commands = self._push(now)
        if too_long:
            commands.append(Discard("R17", too_long))
        return commands

    def _for_client(
        self, destination: bytes, properties: Properties, body: bytes
    ) -> OutgoingMessage | Refusal:
        """Spell a message as the client is to be sent it."""
        if not self._extensions.change_outgoing:
            return _outgoing_message(destination, properties, body)
        message = Message(destination, dict(properties), body)
        before = self._extensions.outgoing(message)
        if isinstance(before, Refusal):
            return before
        spelled = _outgoing_message(destination, message.properties, message.payload)
        spelled.before = before
        return spelled

    def _frames_of(self, run: bytes) -> bytes | None:
        """Return the frames of publications of one topic, if they can be sent at once."""
        (topic, *others), payloads = _topics_and_bodies(run)
        if others:
            return None
        return self._outgoing.at_once(TOPIC_PREFIX + topic, payloads)

    def refused(self, action: str, topic: bytes) -> Sequence[Command]:
        """Say that the client may not do that; nothing else says that a message is lost."""
        if self._state is _State.CLOSED:
            return NOTHING
        text = topic.decode(errors="replace")
        return self._end(Refusal(f"access.{action}", f"this client may not {action}: {text}"))

    def shed(self) -> tuple[int, int]:
        """Drop the oldest of topics, down to where a client is behind."""
        return self._outgoing.shed(self._settings.max_backlog_bytes // _HOLD_ABOVE)

    def stalled(self, reason: str) -> Sequence[Command]:
        """Say ERROR."""
        return self._end(Refusal("net.stalled_receiver_s", reason))

    def tick(self, now: float) -> Sequence[Command]:
        """End a handshake that takes too long, or a client that acknowledges nothing; acknowledge
        what an ack has waited for."""
        if self._state is _State.CLOSED or self.deadline is None or now < self.deadline:
            return NOTHING
        if self._state is _State.READY:
            if self._ack_deadline is None or now < self._ack_deadline:
                return NOTHING if self._acks is None else self._ack_what_came(self._acks, now)
            limit, name = self._settings.ack_timeout_s, "ack_timeout_s"
            what = "no ack"
        else:
            limit, name = self._settings.handshake_timeout_s, "handshake_timeout_s"
            what = "no complete handshake"
        return self._end(Refusal(f"micromsg2.{name}", f"{what} within {limit:g} s"))

    def closed(self, now: float) -> Sequence[Command]:
        """Forget it all; the bus ends subscriptions, and gives back what was not acknowledged."""
        self._close()
        return NOTHING

    # ---- transitions ----

    def _ask(self, event: Handshake, now: float) -> Sequence[Command]:
        answer = reply(self._offer, event)
        if isinstance(answer, Refusal):
            return self._end(answer)
        self._request = event
        self._state = _State.WAIT_FINAL
        return [Send(spell_handshake(answer))]

    def _conclude(self, event: Handshake, now: float) -> Sequence[Command]:
        agreement = conclude(self._offer, self._request, event)
        if isinstance(agreement, Refusal):
            return self._end(agreement)
        self._agreement = agreement
        acks = self._acks = agreement.acks
        self._incoming = ReceiveWindow(acks)
        if acks is not None:
            acks = replace(acks, window=min(acks.window, self._settings.window))
        dotnet = agreement.index(DOTNET)
        self._outgoing = Outgoing(acks, dotnet, self._settings.max_backlog_bytes, self._budget)
        self._types = None if dotnet is None else TypeOfMessages()
        if refusal := self._extensions.open(agreement, self._vendors):
            return self._end(refusal)
        if agreement.index(LOGIN) is None:
            return self._log_in(agreement.identity)
        if not agreement.identity:
            return self._end(Refusal("R11", f"{LOGIN} needs an identity: the name of the user"))
        self._state = _State.WAIT_SECRET
        return NOTHING

    def _take_secret(self, event: ExtensionFrame, now: float) -> Sequence[Command]:
        agreement = self._ready
        try:
            secret = event.payload.decode()
        except UnicodeDecodeError:
            secret = ""
        if event.index != agreement.index(LOGIN) or not secret or ":" in secret:
            return self._end(Refusal("R23", f"the first frame is no secret for {LOGIN}"))
        return self._log_in(agreement.identity, secret)

    def _log_in(self, identity: str, secret: str | None = None) -> Sequence[Command]:
        self._state = _State.LOGGING_IN

        def answer(name: str, reason: str, now: float) -> Sequence[Command]:
            if self._state is not _State.LOGGING_IN:
                return NOTHING  # it has taken too long
            if reason:
                refusal = Refusal("access.connect", "this client may not connect with this name")
                return self._end(refusal, logged=reason)
            # Without an identity a name is the edge's, if it knows one.
            self.client = name if identity or name != ANONYMOUS.name else ""
            self._state = _State.READY
            self.deadline = None
            early, self._early = self._early, []
            return self._handle(early, now)

        return [Authenticate(identity, answer, secret)]

    def _message(self, event: MessageFrame, now: float) -> Sequence[Command]:
        if not self._incoming.receive(event.sequence, now):
            return NOTHING  # sent again: it is acknowledged again
        whole = self._assembler.add(event)
        if whole is None:
            return NOTHING
        command = whole if isinstance(whole, Refusal) else self._publication(whole)
        return self._end(command) if isinstance(command, Refusal) else [command]

    def _run(self, event: MessageRun, now: float) -> Sequence[Command]:
        """Take messages that are alike as one, if nothing is to be looked at in each."""
        destination = self._destinations.get(event.destination) or self._known(event.destination)
        count = len(event.payloads)
        if (
            not isinstance(destination, ToTopic)
            or not self._assembler.is_idle
            or self._types is not None
            or self._extensions.change_incoming
            or self._ready.index(JSON) is not None
            or not self._incoming.receive_many(event.sequence, count, now)
        ):
            commands: list[Command] = []
            for frame in event.each():
                commands += self._message(frame, now)
                if self._state is _State.CLOSED:
                    break
            return commands
        data = pack_many(destination.topic, event.payloads)
        return [Run(data, 0, len(data), count)]

    def _known(self, text: bytes) -> Destination | Refusal:
        """Return what a destination is; it is remembered, as few clients have many."""
        destination = read_destination(text or NO_DESTINATION)
        if not isinstance(destination, Refusal):
            if len(self._destinations) >= _MAX_DESTINATIONS:
                self._destinations.clear()
            self._destinations[text] = destination
        return destination

    def _command(self, event: CommandFrame, now: float) -> Sequence[Command]:
        if event.name not in (SUBSCRIBE, UNSUBSCRIBE):
            return self._end(Refusal("R24", f"unknown command: {event.name[:_SHOWN]}"))
        if self._ready.index(PUBSUB) is None:
            return self._end(Refusal("R24", f"{event.name} needs the extension {PUBSUB}"))
        if event.name == SUBSCRIBE:
            return self._subscribe(event)
        destination = read_unsubscribe(event)
        if isinstance(destination, Refusal):
            return self._end(destination)
        return self._unsubscribe(destination)

    def _extension(self, event: ExtensionFrame, now: float) -> Sequence[Command]:
        spec = self._ready.at(event.index)
        if spec is None:
            return self._end(Refusal("R23", f"there is no extension of index {event.index}"))
        if spec.name in (ACK, BATCH_ACK):
            number = read_ack(event.payload)
            if isinstance(number, Refusal):
                return self._end(number)
            return self._acknowledged(number, now)
        if spec.name == DOTNET and self._types is not None:
            refusal = self._types.said(event.payload)
            return NOTHING if refusal is None else self._end(refusal)
        said = self._extensions.received(event.index, event.payload)
        if isinstance(said, Refusal):
            return self._end(said)
        return [Send(said)] if said else NOTHING  # what has no frames is skipped (A27)

    def _gives_up(self, event: ErrorFrame, now: float) -> Sequence[Command]:
        self._close()
        return [Disconnect(f"the client says: {event.reason[:_SHOWN]!r}")]

    def _malformed(self, event: Violation, now: float) -> Sequence[Command]:
        return self._end(Refusal(event.rule, event.reason))

    def _unexpected(self, event: object, now: float) -> Sequence[Command]:
        return self._end(Refusal("R1", f"{type(event).__name__} came out of turn"))

    # ---- what they are made of ----

    @property
    def _ready(self) -> Agreement:
        assert self._agreement is not None  # noqa: S101 - for mypy; READY has one
        return self._agreement

    def _publication(self, message: MessageFrame) -> Command | Refusal:
        said = message.destination
        destination = self._destinations.get(said) or self._known(said)
        if isinstance(destination, Refusal):
            return destination
        properties: dict[str, bytes] = {}
        if message.properties:
            try:
                properties = properties_to_bus(message.properties)
            except GrammarError as error:
                return Refusal(error.rule, str(error))
        if self._types is not None:
            properties |= self._types.properties()
        payload = message.payload
        if self._extensions.change_incoming:
            shown = Message(message.destination, properties, payload)
            if refusal := self._extensions.incoming(shown):
                return refusal
            properties, payload = shown.properties, shown.payload
            if len(payload) > self._max_body:
                reason = f"an extension makes {len(payload)} bytes of it; bus.max_body is "
                return Refusal("bus.max_body", f"{reason}{self._max_body}")
        if fault := property_fault(properties):
            return Refusal("bus.properties", fault)
        if self._ready.index(JSON) is not None and (fault := json_fault(payload)):
            return Refusal("micromsg2.json", fault)
        if isinstance(destination, ToTopic):
            return Publish(destination.topic, payload, properties=properties)
        return Enqueue(destination.queue, payload, properties, answer=self._or_end)

    def _subscribe(self, event: CommandFrame) -> Sequence[Command]:
        wanted = read_subscribe(event)
        if isinstance(wanted, Refusal):
            return self._end(wanted)
        if isinstance(wanted.destination, ToTopic):
            # The same topic again replaces the filter.
            topic = wanted.destination.topic
            return [Subscribe(topic, filter=wanted.filter, answer=self._or_end)]
        queue = wanted.destination.queue
        self._queues.add(queue)
        acks = self._acks
        credit = 1 if acks is None else min(acks.window, self._settings.window)
        acknowledged = acks is not None
        # The same queue again replaces the filter.
        consume = Consume(queue, credit, acknowledged, wanted.filter, answer=self._or_end)

        def opened(limit: str) -> Sequence[Command]:
            return self._or_end(limit) if limit else [consume]

        return [OpenQueue(queue, answer=opened)]

    def _unsubscribe(self, destination: Destination) -> Sequence[Command]:
        if isinstance(destination, ToTopic):
            return [Unsubscribe(destination.topic)]
        queue = destination.queue
        if queue not in self._queues:
            return NOTHING
        self._queues.discard(queue)
        self._outgoing.give_back(queue)
        return [StopConsuming(queue)]

    def _acknowledged(self, number: int, now: float) -> Sequence[Command]:
        done: dict[bytes, list[int]] = {}
        covered = self._outgoing.window.acknowledge(number)
        for message in covered:
            if message is not None and message.queue:
                done.setdefault(message.queue, []).append(message.number)
        if not covered:
            return [Discard("A14")]
        self._ack_deadline = None  # the next one may take as long again
        self._await_acks(now)
        self._has_room = True
        return [Acknowledge(queue, each) for queue, each in done.items()]

    def _push(self, now: float) -> list[Command]:
        """Send what there is room for."""
        frames = self._outgoing.frames()
        if fault := self._outgoing.fault():
            return self._end(Refusal(fault, "too many messages wait for the client's acks"))
        self._await_acks(now)
        commands: list[Command] = [Send(frames)] if frames else []
        limit, backlog = self._settings.max_backlog_bytes, self._outgoing.backlog
        if not self._is_behind and backlog > limit // _HOLD_ABOVE:
            self._is_behind = True
            commands.append(HoldPublishers(True))
        elif self._is_behind and backlog <= limit // _RELEASE_BELOW:
            self._is_behind = False
            commands.append(HoldPublishers(False))
        return commands

    def _await_acks(self, now: float) -> None:
        timeout = self._settings.ack_timeout_s
        if self._ack_deadline is None and timeout and len(self._outgoing.window):
            self._ack_deadline = now + timeout
        self._set_deadline()

    def _set_deadline(self) -> None:
        """Note when the client must have acknowledged something, or we must, if that is sooner."""
        self.deadline = self._ack_deadline
        if self._acks is not None and self._acks.per_ack is not None:
            due = self._incoming.deadline
            if due is not None and (self.deadline is None or due < self.deadline):
                self.deadline = due

    def _or_end(self, limit: str) -> Sequence[Command]:
        """Go on if a command was accepted; who asked for what a limit refuses must know."""
        if not limit or self._state is _State.CLOSED:
            return NOTHING
        kind, _, action = limit.partition(".")
        reason = f"this client may not {action} here"
        return self._end(Refusal(limit, reason if kind == "access" else f"{limit} is reached"))

    def _end(self, refusal: Refusal, logged: str = "") -> list[Command]:
        """Say ERROR and disconnect; ``logged``: what only the log is told of it."""
        self._close()
        return [
            Send(spell_error(refusal.reason)),
            Disconnect(f"{refusal.rule}: {logged or refusal.reason}"),
        ]

    def _failed(self, failed: ExtensionFailed) -> list[Command]:
        """End a connection of which an extension has failed; the client is not told how."""
        self._close()
        return [
            Send(spell_error(f"the extension {failed.name} failed")),
            Disconnect(str(failed), failure=failed),
        ]

    def _close(self) -> None:
        self._state = _State.CLOSED
        self.deadline = None
        self._codec.close()
        self._assembler.close()
        self._outgoing.close()
        self._early = []


def _topics_and_bodies(run: bytes) -> tuple[dict[bytes, None], list[bytes]]:
    topics: dict[bytes, None] = {}
    bodies = []
    position, size, header = 0, len(run), HEADER.unpack_from
    while position < size:
        _, topic_length, body_length = header(run, position)
        body = position + HEADER.size + topic_length
        topics[run[position + HEADER.size : body]] = None
        position = body + body_length
        bodies.append(run[body:position])
    return topics, bodies


def _outgoing_message(destination: bytes, properties: Properties, body: bytes) -> OutgoingMessage:
    type_of_body = properties.get(TYPE, b"")
    if type_of_body:
        properties = {name: value for name, value in properties.items() if name != TYPE}
    wire = properties_to_wire(properties) if properties else b""
    return OutgoingMessage(destination, wire, body, type_of_body)


def _with_place(wire: bytes, message: QueuedMessage) -> bytes:
    """Say whether a consumer had a message before, and its place in the queue, as far as each fits.

    Of the two the first is what says that it may be worked on twice.
    """
    marks = [b"%s:N%d" % (QUEUE_NUMBER.encode(), message.number)]
    if message.redelivered:
        marks.insert(0, b"%s:N1" % REDELIVERED.encode())
    for mark in marks:
        marked = wire + b";" + mark if wire else mark
        if len(marked) <= MAX_PROPERTIES:
            wire = marked
    return wire


# By state, what each event does; one that is not here ends the connection (``_unexpected``).
_TRANSITIONS: dict[_State, dict[type[Any], Callable[..., Sequence[Command]]]] = {
    _State.WAIT_REQUEST: {
        Handshake: MicroMsg2Session._ask,  # WAIT_FINAL
        ErrorFrame: MicroMsg2Session._gives_up,  # CLOSED
        Violation: MicroMsg2Session._malformed,  # CLOSED
    },
    _State.WAIT_FINAL: {
        Handshake: MicroMsg2Session._conclude,  # WAIT_SECRET or LOGGING_IN
        ErrorFrame: MicroMsg2Session._gives_up,
        Violation: MicroMsg2Session._malformed,
    },
    _State.WAIT_SECRET: {
        ExtensionFrame: MicroMsg2Session._take_secret,  # LOGGING_IN
        ErrorFrame: MicroMsg2Session._gives_up,
        Violation: MicroMsg2Session._malformed,
    },
    _State.LOGGING_IN: {},  # nothing is handled yet; READY or, refused, CLOSED
    _State.READY: {
        MessageFrame: MicroMsg2Session._message,
        MessageRun: MicroMsg2Session._run,
        CommandFrame: MicroMsg2Session._command,
        ExtensionFrame: MicroMsg2Session._extension,
        ErrorFrame: MicroMsg2Session._gives_up,
        Violation: MicroMsg2Session._malformed,
    },
    _State.CLOSED: {},  # nothing is read any more
}


class Refusing(Session):
    """A connection that came while the broker stops: its first words are answered with the end."""

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        """Say why."""
        return [Send(spell_error(STOPPING)), Disconnect(STOPPING)]
