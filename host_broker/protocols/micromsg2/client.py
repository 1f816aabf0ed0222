"""MicroMsg2's client side: the handshake, messages both ways, acks for both.

Topics are destinations as the protocol writes them: ``topic/home/kitchen`` is a topic of the bus,
``jobs`` a queue, each of whose messages goes to one consumer. What is published is acknowledged,
and so is what comes: of topics when it has been read, of queues when the program has finished with
it (``receipts``), as the broker delivers that again to others.

The protocol has no ping. What stands in for it is a message without a payload under
``topic/motemq/echo/ping``, which nobody is sent: its ack says that the broker has processed all
that was sent before it.

Why so long: it is one state machine.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum, auto

from host_broker.bus.publication import property_fault
from host_broker.client_errors import (
    BadArgument,
    ClientError,
    ConnectionLost,
    Refused,
    callers_mistakes,
)
from host_broker.client_session import (
    ECHO_TOPICS,
    Ability,
    Active,
    ClientSession,
    Closed,
    Done,
    Event,
    Message,
    Messages,
    PropertyValue,
    Publication,
    Ready,
    Setup,
    Subscription,
)
from host_broker.protocols.micromsg2.assembly import Assembler
from host_broker.protocols.micromsg2.codec import (
    MAX_FRAGMENT,
    Codec,
    spell_command_frame,
    spell_error,
    spell_extension,
    spell_handshake,
    spell_message,
)
from host_broker.protocols.micromsg2.destinations import (
    SUBSCRIBE,
    TOPIC_PREFIX,
    UNSUBSCRIBE,
    read_destination,
    spell_destination,
)
from host_broker.protocols.micromsg2.events import (
    ErrorFrame,
    Extension,
    ExtensionFrame,
    Handshake,
    MessageFrame,
    MessageRun,
)
from host_broker.protocols.micromsg2.extensions import (
    ACK,
    BATCH_ACK,
    DOTNET,
    JSON,
    LOGIN,
    MAX_WINDOW,
    PER_ACK_KEY,
    PUBSUB,
    WINDOW_KEY,
)
from host_broker.protocols.micromsg2.filters import compile_filters
from host_broker.protocols.micromsg2.grammar import (
    GrammarError,
    field_fault,
    read_properties,
    spell_properties,
    url_encode,
)
from host_broker.protocols.micromsg2.json_payload import json_fault
from host_broker.protocols.micromsg2.negotiation import (
    SHARPMESSAGING,
    Acks,
    Agreement,
    Offer,
    choose,
    request,
)
from host_broker.protocols.micromsg2.outgoing import Outgoing, OutgoingMessage
from host_broker.protocols.micromsg2.receipts import Receipt, Receipts
from host_broker.protocols.micromsg2.refusal import STOPPING, Refusal
from host_broker.protocols.micromsg2.values import MAX_PROPERTIES, read_number, read_value
from host_broker.protocols.micromsg2.windows import (
    LAST_NUMBER,
    ReceiveWindow,
    read_ack,
    spell_ack,
)
from host_broker.wire.budget import Budget
from host_broker.wire.violation import Violation

WINDOW = 1000  # messages without an ack, in either direction, unless the broker wants fewer
FILTERS = ";"  # between the filters of one subscription, which all must hold

_LARGEST_BODY = 64 * 1024 * 1024  # bytes
_UNLIMITED = 1 << 62  # bytes: what waits is bounded by the client's own limits
_WILDCARDS_ELSEWHERE = ("#", "+", "**")  # of MQTT, and of UMQ
_DEEPEST = 124  # levels: as many ``*`` fill a destination's 255 bytes
_MAX_NAMES = 8192  # destinations whose text is remembered
_PING = TOPIC_PREFIX + f"{ECHO_TOPICS}ping".encode()
_JSON_PING = b"null"  # where every payload has to be JSON
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SHOWN = 60  # characters of a mistake
_UNANSWERED = "did not acknowledge a message"

# What an ack was awaited for: told when it came, it returns what that means.
_Awaited = Callable[[float], Sequence[Event]]


class _State(Enum):
    WAIT_REPLY = auto()
    WAIT_ACK = auto()  # of the first message: until then the broker may refuse the login
    READY = auto()
    CLOSED = auto()


class MicroMsg2ClientSession(ClientSession):
    """One connection to a MicroMsg2 server, with the extension ``batch-ack``.

    Options of the address: ``window``, so many messages may be without an ack, each way; ``json``,
    which is 1 to require the extension of that name. For servers of SharpMessaging that require
    them: ``ack``, 1 for that extension in the place of ``batch-ack``, one message at a time;
    ``dotnet``, 1 to have that extension, whose frames are skipped. Every ``credit``: as many
    messages are on their way without an ack as was agreed on.
    """

    can = frozenset({Ability.NAME, Ability.PROPERTIES, Ability.FILTER, Ability.WILDCARD})
    handshake = "did not end the handshake"
    topic_prefix = TOPIC_PREFIX.decode()

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.name = setup.name
        self._secret = self._read_secret()
        self._json = self._reads_flag(JSON)
        window = self._read_window()
        required = [Extension(BATCH_ACK, ((WINDOW_KEY, str(window)),))]
        if self._reads_flag(ACK):
            window, required = 1, [Extension(ACK, ((PER_ACK_KEY, "1"),))]
        if self._secret:
            required.insert(0, Extension(LOGIN))
        if self._json:
            required.append(Extension(JSON))
        optional = [Extension(PUBSUB)]
        if self._reads_flag(DOTNET):
            optional.append(Extension(DOTNET))
        self._offer = Offer(self.name, tuple(required), tuple(optional))
        with callers_mistakes():
            self._hello = spell_handshake(request(self._offer))
        self._codec = Codec("client", _LARGEST_BODY, runs=True)
        self._assembler = Assembler(_LARGEST_BODY)
        self._state = _State.WAIT_REPLY
        self._agreement: Agreement | None = None
        self._ping = _JSON_PING if self._json else b""
        self._incoming = ReceiveWindow(None)
        self._receipts = Receipts()
        self._outgoing = Outgoing(Acks(1, window), None, _UNLIMITED, Budget(_UNLIMITED))
        self._last_number = 0  # of the messages whose acks somebody may await
        self._awaited: dict[int, list[_Awaited]] = {}  # by the number of the message
        self._is_sharpmessaging = False
        # What is subscribed to: the filters, and whose subscriptions it is.
        self._subscribed: dict[bytes, tuple[str, set[int]]] = {}
        self._destinations: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}

    def begin(self, now: float) -> Sequence[Event]:
        self._out.append(self._hello)
        return ()

    def receive_data(self, data: bytes, now: float) -> list[Event]:
        self.heard = True
        events: list[Event] = []
        batch: list[Message] = []
        received_ns = int(now * 1e9)
        for frame in self._codec.receive_data(data):
            if self._state is _State.CLOSED:
                return events
            if type(frame) is MessageRun and self._state is not _State.WAIT_REPLY:
                batch += self._messages(frame, received_ns, now)
                continue
            if type(frame) is MessageFrame and self._state is not _State.WAIT_REPLY:
                message = self._message(frame, received_ns, now)
                if isinstance(message, Message):
                    batch.append(message)
                    continue
                taken: Sequence[Event] = () if message is None else self._gives_up(message)
            else:
                taken = self._taken(frame, now)
            if taken:
                if batch:
                    events.append(Messages(batch))
                    batch = []
                events += taken
        if batch:
            events.append(Messages(batch))
        return events

    def data_to_send(self) -> list[bytes]:
        self._say_ack()
        return super().data_to_send()

    def acknowledge(self, message: Message) -> None:
        if isinstance(message.receipt, Receipt):
            self._receipts.settle(message.receipt)

    def receive_end(self, error: ConnectionLost) -> ClientError:
        self._state = _State.CLOSED
        return error

    @property
    def credit(self) -> bool:
        return self._outgoing.has_room

    def publish(self, publication: Publication, now: float) -> None:
        self.require({Ability.RETAIN: publication.retain, Ability.WILL: publication.will})
        topic = publication.topic
        destination = self._destinations.get(topic) or self._destination(topic)
        said = publication.properties
        properties = _spelled_properties(said) if said else b""
        payload = publication.payload
        if self._json and (fault := json_fault(payload)):
            raise BadArgument(f"{fault} (and {self.setup.where} has the option {JSON})")
        if (
            self._state is _State.READY
            and len(payload) <= MAX_FRAGMENT
            and self._outgoing.has_room
            and not self._is_sharpmessaging
        ):
            sequence = self._outgoing.window.send(None)
            self._out.append(spell_message(sequence, destination, properties, payload))
            return
        message = OutgoingMessage(destination, properties, payload)
        if self._is_sharpmessaging:
            self._last_number = message.number = self._last_number + 1
        self._outgoing.add(message)
        self._push()

    def sync(self, operation: int, now: float) -> str:
        self._await_ack(lambda came: [Done(operation)])
        return _UNANSWERED

    def ping(self, operation: int, now: float) -> str:
        self._await_ack(lambda came: [Done(operation, came - now)])
        return _UNANSWERED

    def subscribe(self, subscription: Subscription, now: float) -> Sequence[Event]:
        self.require(
            {
                Ability.FEEDBACK: subscription.feedback,
                Ability.UNCOUNTED: subscription.uncounted,
            }
        )
        if self._agreement is not None and self._agreement.index(PUBSUB) is None:
            raise BadArgument(f"{self.setup.where} has no extension {PUBSUB}: one can only publish")
        number, filters = subscription.number, subscription.filter
        texts = [text.strip().encode() for text in filters.split(FILTERS) if text.strip()]
        with callers_mistakes():
            compile_filters(texts)
        wanted = [self._destination(pattern) for pattern in subscription.patterns]
        for destination in wanted:
            if self._subscribed.get(destination, (filters,))[0] != filters:
                raise BadArgument(
                    f"{destination.decode()} is subscribed to with another filter; a connection "
                    "has one for each destination"
                )
        for destination in wanted:
            if destination in self._subscribed:
                self._subscribed[destination][1].add(number)
                continue
            self._subscribed[destination] = (filters, {number})
            arguments = [("destination", destination), *(("filter", text) for text in texts)]
            self._out.append(spell_command_frame(SUBSCRIBE, arguments))
        if subscription.confirm:
            # The broker sends what it keeps of a topic before it does what comes later.
            self._await_ack(lambda came: [Active(number)])
        return ()

    def unsubscribe(self, subscription: Subscription, now: float) -> None:
        self._say_ack()  # before the broker takes back what is not acknowledged
        for pattern in subscription.patterns:
            destination = self._destination(pattern)
            _, numbers = self._subscribed.get(destination, ("", {subscription.number}))
            numbers.discard(subscription.number)
            if not numbers:
                self._subscribed.pop(destination, None)
                self._out.append(spell_command_frame(UNSUBSCRIBE, [("destination", destination)]))

    def matches(self, pattern: str, topic: str) -> bool:
        """A level ``*`` of a topic, on either side, is any level; queues are equal or not."""
        ours, theirs = _levels(pattern), _levels(topic)
        if ours is None or theirs is None:
            return pattern == topic
        return len(ours) == len(theirs) and all(
            level == other or "*" in (level, other)
            for level, other in zip(ours, theirs, strict=True)
        )

    def everything(self, levels: int | None = None) -> tuple[str, ...]:
        """A ``*`` is one level, so one pattern for each number of levels; no queues."""
        deepest = _DEEPEST if levels is None else min(levels, _DEEPEST)
        return tuple(self.topic_prefix + "/".join("*" * depth) for depth in range(1, deepest + 1))

    def misread(self, pattern: str) -> str:
        is_queue = _levels(pattern) is None
        levels = _levels(pattern) or pattern.strip("/").split("/")
        odd = next((level for level in levels if level in _WILDCARDS_ELSEWHERE), None)
        if odd is None and not (is_queue and "*" in pattern):
            return ""
        said = ("*" if level in _WILDCARDS_ELSEWHERE else level for level in levels)
        stars = self.topic_prefix + "/".join(said)
        if is_queue:
            text = f"'{pattern}' is the name of a queue here; the topic is '{stars}'"
        else:
            text = f"'{odd}' is no wildcard here but a name; '*' stands for one level: '{stars}'"
        if levels[-1] in ("#", "**"):
            text += f", and below that '{stars}/*' …"
        return text

    def forget(self, operation: int) -> None:
        """An ack that comes later answers nobody; ``Done`` of what is unknown means nothing."""

    # ---- what comes ----

    def _taken(self, frame: object, now: float) -> Sequence[Event]:
        if isinstance(frame, Violation):
            return self._gives_up(Refusal(frame.rule, frame.reason))
        if isinstance(frame, ErrorFrame):
            return self._refused(frame.reason)
        if isinstance(frame, Handshake):
            return self._replied(frame)
        if self._state is _State.WAIT_REPLY:
            return self._gives_up(Refusal("R1", "its first words are no handshake"))
        if isinstance(frame, ExtensionFrame):
            return self._extension(frame, now)
        return ()  # a command: a server has none that mean anything to us

    def _replied(self, reply: Handshake) -> Sequence[Event]:
        chosen = choose(self._offer, reply)
        if isinstance(chosen, Refusal):
            return self._gives_up(chosen)
        final, self._agreement = chosen
        acks = self._agreement.acks
        if acks is None:
            return self._gives_up(Refusal("R6", "it does without acks"))
        self._is_sharpmessaging = (reply.major, reply.minor) == SHARPMESSAGING
        if self._is_sharpmessaging and not self._json:
            self._ping = b"\n"  # it takes one without a payload only when the next byte comes
        self._outgoing.agree(acks)
        self._incoming = ReceiveWindow(acks)
        # Everything at once; what was said before the handshake was over comes behind it.
        early, self._out = self._out, [spell_handshake(final)]
        login = self._agreement.index(LOGIN)
        if login is not None:
            self._out.append(spell_extension(login, self._secret.encode()))
        self._out += early
        if self._is_sharpmessaging:
            return self._accepted()  # no login, and its programs take a ping for theirs
        self._state = _State.WAIT_ACK
        self._await_ack(lambda came: self._accepted())
        return ()

    def _accepted(self) -> Sequence[Event]:
        self._state = _State.READY
        return [Ready()]

    def _message(
        self, frame: MessageFrame, received_ns: int, now: float
    ) -> Message | Refusal | None:
        receipts = self._receipts
        if not self._incoming.receive(frame.sequence, now):
            receipts.again()  # it was sent again, and is acknowledged again
            return None
        whole = self._assembler.add(frame)
        if not isinstance(whole, MessageFrame):
            receipts.came(frame.sequence)
            return whole
        name = self._names.get(whole.destination) or self._named(whole.destination)
        message = Message(name, whole.payload, received_ns)
        if whole.destination.startswith(TOPIC_PREFIX):
            receipts.came(frame.sequence)
        else:
            message.receipt = receipts.hold(frame.sequence)
        if whole.properties:
            try:
                message.properties = _read_properties(whole.properties)
            except GrammarError as error:
                return Refusal(error.rule, str(error))
        return message

    def _messages(self, run: MessageRun, received_ns: int, now: float) -> list[Message]:
        if self._assembler.is_idle and self._incoming.receive_many(
            run.sequence, len(run.payloads), now
        ):
            name = self._names.get(run.destination) or self._named(run.destination)
            messages = [Message(name, payload, received_ns) for payload in run.payloads]
            first = run.sequence - 1
            if run.destination.startswith(TOPIC_PREFIX):
                self._receipts.came((first + len(messages) - 1) % LAST_NUMBER + 1)
            else:
                for position, message in enumerate(messages):
                    number = (first + position) % LAST_NUMBER + 1
                    message.receipt = self._receipts.hold(number)
            return messages
        found = (self._message(frame, received_ns, now) for frame in run.each())
        return [message for message in found if isinstance(message, Message)]

    def _extension(self, frame: ExtensionFrame, now: float) -> Sequence[Event]:
        agreement = self._agreement
        if agreement is None or agreement.acks is None or frame.index != agreement.acks.index:
            return ()
        number = read_ack(frame.payload)
        if isinstance(number, Refusal):
            return self._gives_up(number)
        events: list[Event] = []
        for message in self._outgoing.window.acknowledge(number):
            if message is not None:
                for awaited in self._awaited.pop(message.number, ()):
                    events += awaited(now)
        self._push()
        return events or [Messages([])]  # whoever waits for credit is woken

    def _refused(self, reason: str) -> Sequence[Event]:
        """The broker has said ERROR, its last word."""
        where, before = self.setup.where, self._state
        self._state = _State.CLOSED
        if reason == STOPPING:
            return [Closed(ConnectionLost(f"{where} is stopping"))]
        of_name = before is not _State.READY
        return [Closed(Refused(f"{where} refused: {reason}", of_name=of_name))]

    def _gives_up(self, refusal: Refusal) -> Sequence[Event]:
        self._state = _State.CLOSED
        self._out.append(spell_error(refusal.reason))
        text = f"the broker broke MicroMsg2 ({refusal.rule}: {refusal.reason})"
        return [self.broken(text)]

    # ---- what goes ----

    def _say_ack(self) -> None:
        """Acknowledge all that can be, together."""
        if self._state not in (_State.WAIT_ACK, _State.READY):
            return
        number = self._receipts.take()
        if number is not None and self._agreement is not None and self._agreement.acks is not None:
            self._out.append(spell_extension(self._agreement.acks.index, spell_ack(number)))

    def _await_ack(self, awaited: _Awaited) -> None:
        """Send a ping; ``awaited`` is told when it is acknowledged.

        Programs of SharpMessaging take a ping for a message of theirs. Its server acknowledges in
        order, so what was sent last does as well, unless that is acknowledged already.
        """
        if not (self._is_sharpmessaging and self._outgoing.is_unacknowledged):
            self._last_number += 1
            self._outgoing.add(OutgoingMessage(_PING, b"", self._ping, number=self._last_number))
        self._awaited.setdefault(self._last_number, []).append(awaited)
        self._push()

    def _push(self) -> None:
        """Send what there is room for."""
        if self._state in (_State.WAIT_ACK, _State.READY):
            frames = self._outgoing.frames()
            if frames:
                self._out.append(frames)

    def _destination(self, topic: str) -> bytes:
        """Return a destination as it is on the wire; it is remembered, as programs have few."""
        found = read_destination(topic.encode("utf-8", "surrogateescape"))
        raw = None if isinstance(found, Refusal) else spell_destination(found)
        if raw is None:
            why = found.reason if isinstance(found, Refusal) else "it is longer than 255 bytes"
            raise BadArgument(f"'{topic}' is no destination of MicroMsg2: {why}")
        if len(self._destinations) >= _MAX_NAMES:
            self._destinations.clear()
        self._destinations[topic] = raw
        return raw

    def _named(self, destination: bytes) -> str:
        if len(self._names) >= _MAX_NAMES:
            self._names.clear()
        name = self._names[destination] = destination.decode(errors="replace")
        return name

    def _read_window(self) -> int:
        said = self.setup.options.get("window", str(WINDOW))
        is_short = said.isascii() and said.isdigit() and len(said) <= len(str(MAX_WINDOW))
        if not (is_short and 1 <= int(said) <= MAX_WINDOW):
            raise BadArgument(
                f"{self.setup.where}: the window is a number from 1 to {MAX_WINDOW}, not '{said}'"
            )
        return int(said)

    def _reads_flag(self, name: str) -> bool:
        said = self.setup.options.get(name, "0")
        if said not in ("0", "1"):
            raise BadArgument(f"{self.setup.where}: {name} is 1 or 0, not '{said}'")
        return said == "1"

    def _read_secret(self) -> str:
        secret = self.setup.options.get("token_file", "").strip()
        if secret and not self.setup.name:
            raise BadArgument(f"{self.setup.where}: a token needs a client id")
        if ":" in secret:
            raise BadArgument(f"{self.setup.where}: a token has no colon")
        return secret


def _levels(destination: str) -> list[str] | None:
    """Return the levels of a topic, None for a queue."""
    prefix = TOPIC_PREFIX.decode()
    if not destination.startswith(prefix):
        return None
    return destination.removeprefix(prefix).strip("/").split("/")


def _spelled_properties(properties: Mapping[str, PropertyValue]) -> bytes:
    said, texts = [], {}
    for name, value in properties.items():
        if fault := field_fault(name):
            raise BadArgument(f"a property's name: {fault}")
        said.append((name, _spelled_value(name, value)))
        texts[name] = _raw(value) if isinstance(value, str | bytes) else b""  # numbers are short
    if fault := property_fault(texts):  # the broker's refusal would end the connection
        raise BadArgument(fault)
    wire = spell_properties(said)
    if len(wire) > MAX_PROPERTIES:
        raise BadArgument(f"properties have at most {MAX_PROPERTIES} bytes, these {len(wire)}")
    return wire


def _spelled_value(name: str, value: PropertyValue) -> bytes:
    if isinstance(value, str | bytes):
        return b"T" + url_encode(_raw(value))
    letter = b"N"
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise BadArgument(f"the property {name}: a date has a timezone, this has none: {value}")
        letter, number = b"D", Decimal((value - _EPOCH) // _MICROSECOND) / 1_000_000
    elif isinstance(value, int | float):
        number = Decimal(repr(value) if isinstance(value, float) else int(value))
    else:
        raise BadArgument(
            f"the property {name} is text, a number or a date, not {type(value).__name__}"
        )
    digits = format(number, "f")
    if read_number(digits.encode()) is None:
        shown = digits if len(digits) <= _SHOWN else f"{digits[:_SHOWN]}… of {len(digits)} digits"
        raise BadArgument(f"the property {name}={shown} is no number of 64 bits")
    return letter + url_encode(digits.encode())


def _raw(text: str | bytes) -> bytes:
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text


def _read_properties(wire: bytes) -> dict[str, PropertyValue]:
    """Return properties as what they are: text as str if it is UTF-8, numbers as int or float,
    dates as datetime if they are in its years."""
    found: dict[str, PropertyValue] = {}
    for name, encoded in read_properties(wire).items():
        value = read_value(encoded)
        if value.number is None:
            try:
                found[name] = value.text.decode()
            except UnicodeDecodeError:
                found[name] = value.text
        elif value.kind == "D":
            found[name] = _read_date(value.number)
        elif value.number == value.number.to_integral_value():
            found[name] = int(value.number)
        else:
            found[name] = float(value.number)
    return found


def _read_date(seconds: Decimal) -> datetime | float:
    try:
        return _EPOCH + int(seconds * 1_000_000) * _MICROSECOND
    except OverflowError:
        return float(seconds)
