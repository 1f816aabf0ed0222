"""UMQ's client side: the broker's calls over a WebSocket, and its updates.

What a program asks for is a call of the broker (docs/umq.md): ``publish``, ``subscribe``, ``call``.
At most 64 of them are without an answer at a time, the rest waits here, in order. A subscription is
active when the call ``sync`` behind it is answered: what is retained has come by then. A ping is
one of the WebSocket; together with the answers to all calls before it, it says that the broker has
processed everything.

Why so long: it is one state machine.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from host_broker.bus.publication import property_fault, topic_fault
from host_broker.client_errors import (
    BadArgument,
    ClientError,
    ConnectionLost,
    NotThere,
    Refused,
)
from host_broker.client_session import (
    DOUBT,
    Ability,
    Active,
    ClientSession,
    Closed,
    Done,
    Dropped,
    Event,
    Failed,
    Message,
    Messages,
    PropertyValue,
    Publication,
    Ready,
    Setup,
    Subscription,
)
from host_broker.protocols.umq import events, websocket
from host_broker.protocols.umq.codec import LATER, NO_ROUTE, NO_RPC, read_error, spell_id
from host_broker.protocols.umq.events import Attachment, Missing
from host_broker.protocols.umq.patterns import REST, PatternFault, normal, read_pattern
from host_broker.protocols.umq.peer import Peer, PeerLimits
from host_broker.protocols.umq.websocket import WebSocket
from host_broker.wire.budget import Budget
from host_broker.wire.violation import Violation

_LARGEST_TEXT = 64 * 1024 * 1024  # bytes of a text message of the broker
_LARGEST_ATTACHMENT = 64 * 1024 * 1024
_MOST_ATTACHMENTS = 65_536  # announced, and yet to come
_HELD_BYTES = 128 * 1024 * 1024  # of unfinished messages and attachments
# Bytes of a body that is a part of the text, where some characters take six.
_LONGEST_BODY_IN_TEXT = 64 * 1024
_LONGEST_HEAD = 64  # bytes of a call's text before its payload
_WINDOW = 64  # calls without an answer; brokers take four times as many (umq.max_calls)
_DEEPEST = 128  # levels: as many ``*`` fill a topic's 255 bytes
_UNANSWERED = "did not answer a call"
_NO_PONG = "did not answer a ping"
_HTTP_LATER = 503

# What an answer to a call means: its payload and attachments, or why it failed.
_Answer = Callable[["_Answered"], Sequence[Event]]


class _State(Enum):
    WAIT_UPGRADE = auto()
    WAIT_WELCOME = auto()
    READY = auto()
    CLOSED = auto()


@dataclass(frozen=True, slots=True)
class _Answered:
    """The answer to a call: R with what it says, or an error for the program."""

    value: dict[str, Any]
    attachments: Sequence[Attachment] = ()
    error: ClientError | None = None


@dataclass(slots=True)
class _Call:
    """A call that has no answer yet. ``serial`` counts all calls of the connection."""

    serial: int
    payload: str
    attachments: Sequence[bytes]
    answer: _Answer


@dataclass(slots=True)
class _Topic:
    """One pattern of a subscription, which the broker tells of under an id of its own."""

    subscription: Subscription
    pattern: str
    before: Sequence[str]  # patterns of the same subscription: what they match is told there


@dataclass(slots=True)
class _Awaited:
    """A ``sync``: what is yet to come before it is done."""

    last: int  # the serial of the last call before it
    is_ponged: bool = False


@dataclass(slots=True)
class _Read:
    """What one read has brought, with its time on our clock."""

    now: float
    events: list[Event] = field(default_factory=list)
    batch: list[Message] = field(default_factory=list)
    number: int = 0  # of the subscription of the batch

    def add(self, messages: list[Message], number: int) -> None:
        """Add messages of a subscription."""
        if self.number != number:
            self.flush()
        self.batch += messages
        self.number = number

    def tell(self, told: Sequence[Event]) -> None:
        """Add events, behind the messages that came before."""
        if told:
            self.flush()
            self.events += told

    def flush(self) -> None:
        """End the batch."""
        if self.batch:
            self.events.append(Messages(self.batch, self.number))
            self.batch = []


class UmqClientSession(ClientSession):
    """One connection to a broker, at its path ``/umq``.

    ``umq://USER@HOST/NAME``: the user, whose password or token is the content of the option
    ``token_file``, and the name that ``clients`` shows. A subscription is told of each of its
    publications once, also if several of its patterns match.
    """

    can = frozenset(
        {
            Ability.NAME,
            Ability.RETAIN,
            Ability.PROPERTIES,
            Ability.WILDCARD,
            Ability.UNCOUNTED,
            Ability.CALL,
        }
    )
    handshake = "did not welcome us"
    calls_anyone = True
    begins_as = "HTTP"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.name = setup.name
        held = Budget(_HELD_BYTES)
        self._socket = WebSocket("client", _LARGEST_TEXT, _LARGEST_ATTACHMENT, held)
        limits = PeerLimits(max_attachment=_LARGEST_ATTACHMENT, max_attachments=_MOST_ATTACHMENTS)
        self._peer = Peer("client", limits, held)
        self._state = _State.WAIT_UPGRADE
        self._waiting: deque[_Call] = deque()
        self._asked: dict[int, _Call] = {}  # by id
        self._last_serial = 0
        self._topics: dict[int, _Topic] = {}  # by the id that we chose
        self._last_topic = 0
        self._syncs: dict[int, _Awaited] = {}  # by operation, the oldest first
        self._pings: dict[int, float] = {}  # when, by operation
        self._refused: ClientError | None = None  # the first publication that was, since a sync
        # What the broker takes, as its welcome says: bytes of a text, and of an attachment.
        self._max_text: int | None = None
        self._max_attachment: int | None = None

    # ---- the connection ----

    def begin(self, now: float) -> Sequence[Event]:
        self._socket.request(self._host())
        return self._flushed(())

    def receive_data(self, data: bytes, now: float) -> list[Event]:
        if self._is_over:
            return []
        self.heard = True
        read = _Read(now)
        for item in self._socket.receive_data(data):
            if not self._is_over:
                self._take(item, read)
        read.flush()
        return list(self._flushed(read.events))

    def receive_end(self, error: ConnectionLost) -> ClientError:
        if self._state is _State.WAIT_UPGRADE and not self.heard:
            where = self.setup.where
            error = ConnectionLost(f"{where} closed the connection at once{self.doubt}")
        self._close()
        return error

    def data_to_send(self) -> list[bytes]:
        self._flushed(())
        return super().data_to_send()

    @property
    def credit(self) -> bool:
        return not self._waiting

    @property
    def _is_over(self) -> bool:
        return self._state is _State.CLOSED

    # ---- commands ----

    def publish(self, publication: Publication, now: float) -> None:
        self.require({Ability.WILL: publication.will})
        topic = _topic(publication.topic)
        payload = publication.payload
        if not payload and not publication.retain:
            raise BadArgument("an empty payload is no publication of UMQ, unless it is retained")
        options: dict[str, object] = {}
        if publication.retain:
            options["retain"] = True
        if publication.properties:
            options["properties"] = _texts(publication.properties)

        def answer(answered: _Answered) -> Sequence[Event]:
            if answered.error is not None and self._refused is None:
                self._refused = answered.error
            return ()

        self._ask("publish", topic, payload, options, answer)

    def sync(self, operation: int, now: float) -> str:
        self._syncs[operation] = _Awaited(self._last_serial)
        self._socket.ping(b"%d" % operation)
        return _UNANSWERED

    def ping(self, operation: int, now: float) -> str:
        self._pings[operation] = now
        self._socket.ping(b"%d" % operation)
        return _NO_PONG

    def call(self, operation: int, target: str, payload: bytes, now: float) -> str:
        if not payload:
            raise BadArgument("an empty call is not delivered")
        _encoded(target)

        def answer(answered: _Answered) -> Sequence[Event]:
            if answered.error is not None:
                return [Failed(operation, answered.error)]
            if not answered.attachments:
                try:
                    return [Done(operation, str(answered.value.get("answer", "")).encode())]
                except UnicodeEncodeError:  # JSON can spell half a surrogate pair
                    return [self._breaks("an answer is no text")]
            (attachment, *_) = answered.attachments
            if isinstance(attachment, Missing):
                return [
                    Failed(operation, ClientError(f"the answer did not come: {attachment.reason}"))
                ]
            return [Done(operation, attachment)]

        self._ask("call", target, payload, None, answer)
        return f"did not say what '{target}' answered"

    def forget(self, operation: int) -> None:
        self._syncs.pop(operation, None)
        self._pings.pop(operation, None)

    def subscribe(self, subscription: Subscription, now: float) -> Sequence[Event]:
        self.require({Ability.FEEDBACK: subscription.feedback, Ability.FILTER: subscription.filter})
        patterns = [_pattern(each) for each in subscription.patterns]
        options = {"quiet": True} if subscription.uncounted else {}
        for at, pattern in enumerate(patterns):
            self._last_topic += 1
            topic = _Topic(subscription, pattern, patterns[:at])
            self._topics[self._last_topic] = topic
            self._peer.subscribe(self._last_topic)
            self._subscribe(self._last_topic, topic, options)
        if subscription.confirm:
            self._confirm(subscription)
        return ()

    def unsubscribe(self, subscription: Subscription, now: float) -> None:
        for number, topic in list(self._topics.items()):
            if topic.subscription.number == subscription.number:
                del self._topics[number]
                self._peer.unsubscribe(number)

    def matches(self, pattern: str, topic: str) -> bool:
        """A level ``*``, on either side, is any level; ``**`` at the end whatever follows."""
        levels, others = pattern.strip("/").split("/"), topic.strip("/").split("/")
        if levels[-1] == REST.decode():
            del levels[-1]
            del others[len(levels) :]
        return len(levels) == len(others) and all(
            level == other or "*" in (level, other)
            for level, other in zip(levels, others, strict=True)
        )

    def everything(self, levels: int | None = None) -> tuple[str, ...]:
        if levels is None:
            return ("**",)
        deepest = min(levels, _DEEPEST)
        return tuple("/".join("*" * depth) for depth in range(1, deepest + 1))

    def misread(self, pattern: str) -> str:
        levels = pattern.strip("/").split("/")
        odd = next((level for level in levels if level in ("#", "+")), None)
        if odd is None:
            return ""
        meant = "/".join({"#": "**", "+": "*"}.get(level, level) for level in levels)
        stars = "'*' stands for one level, '**' at the end for all"
        return f"'{odd}' is no wildcard here but a name; {stars}: '{meant}'"

    # ---- what comes ----

    def _take(self, item: websocket.Item, read: _Read) -> None:
        match item:
            case str() | bytes():
                for event in self._peer.receive(item):
                    self._happened(event, read)
            case websocket.Accepted():
                self._state = _State.WAIT_WELCOME
                self._peer.hello(self._hello())
            case websocket.PongFrame():
                read.tell(self._ponged(item.payload, read.now))
            case websocket.Refused():
                read.tell([self._refused_upgrade(item)])
            case websocket.Ended():
                reason = f": {item.reason}" if item.reason else ""
                text = f"{self.setup.where} closed the connection ({item.code}{reason})"
                read.tell([self._ends(ConnectionLost(text))])
            case websocket.TooLong():
                text = f"a message is longer than {item.most} bytes"
                read.tell([self._ends(ConnectionLost(f"{self.setup.where}: {text}"))])
            case websocket.Malformed():
                read.tell([self._breaks(f"what answers is no WebSocket ({item.reason})")])

    def _happened(self, event: events.Event | Violation, read: _Read) -> None:
        match event:
            case events.Update():
                self._updated(event, read)
            case events.Result():
                asked = self._asked.pop(event.id, None)
                if asked is not None:
                    read.tell(self._answered(asked, event))
            case events.Failed():
                asked = self._asked.pop(event.id, None)
                if asked is not None:
                    read.tell(self._settled(asked, _Answered({}, error=self._error(event.payload))))
            case events.Welcome():
                self._state = _State.READY
                self._read_limits(event.payload)
                if self.name:
                    self._peer.set_attribute("name", self.name)
                self._push()
                read.tell([Ready()])
            case events.TopicEnd():
                topic = self._topics.pop(event.topic, None)
                if topic is not None:
                    text = f"{self.setup.where} ended the subscription to '{topic.pattern}'"
                    error = Refused(text, of_name=False)
                    read.tell([Failed(topic.subscription.number, error)])
            case events.Fatal():
                read.tell([self._ends(self._fatal(event))])
            case events.Call():
                self._peer.fail(event.id, NO_RPC, "Not RPC server", early=True)
            case Violation(fatal=True):
                read.tell([self._breaks(f"the broker broke UMQ ({event.rule}: {event.reason})")])
            case _:
                pass  # its attributes, callbacks, topics: nothing of ours

    def _updated(self, update: events.Update, read: _Read) -> None:
        topic = self._topics.get(update.topic)
        if topic is None:
            return  # we have left it, and D is on its way
        number = topic.subscription.number
        try:
            messages, dropped = self._messages(topic, update, int(read.now * 1e9))
        except (ValueError, RecursionError) as error:
            read.tell([self._breaks(f"an update is none ({error})")])
            return
        if dropped:
            read.tell([Dropped(number, dropped)])
        if messages:
            read.add(messages, number)

    def _messages(
        self, topic: _Topic, update: events.Update, received_ns: int
    ) -> tuple[list[Message], int]:
        """Read an update, and how many were dropped before it. Raises ``ValueError``."""
        told = json.loads(update.payload)
        attachments = iter(update.attachments)
        messages = []
        dropped = 0
        for each in told if isinstance(told, list) else [told]:
            if not isinstance(each, dict):
                raise ValueError("it is no list of objects")
            name = each.get("topic")
            if name is None:
                count = each.get("dropped", 0)
                dropped += count if isinstance(count, int) else 0
                continue
            body: Attachment | None = None
            if each.get("attachment") is True:
                body = next(attachments, None)
            elif isinstance(text := each.get("text"), str):
                body = text.encode()
            if isinstance(body, Missing):
                continue  # its sender does not have it
            properties = each.get("properties")
            if not (isinstance(name, str) and body is not None):
                raise ValueError("a publication has a topic and a body")
            if not isinstance(properties, dict | None):
                raise ValueError("properties are an object")
            if any(self.matches(pattern, name) for pattern in topic.before):
                continue
            is_kept = each.get("retained") is True
            messages.append(
                Message(
                    name,
                    body,
                    received_ns,
                    retain=is_kept,
                    kept=is_kept,
                    properties=properties,
                )
            )
        return messages, dropped

    def _ponged(self, payload: bytes, now: float) -> Sequence[Event]:
        operation = int(payload) if payload.isdigit() and len(payload) < 20 else -1
        began = self._pings.pop(operation, None)
        if began is not None:
            return [Done(operation, now - began)]
        awaited = self._syncs.get(operation)
        if awaited is None:
            return ()
        awaited.is_ponged = True
        return self._synced()

    def _answered(self, asked: _Call, result: events.Result) -> Sequence[Event]:
        try:
            value = json.loads(result.payload)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            return [self._breaks("an answer is no JSON object")]
        return self._settled(asked, _Answered(value, result.attachments))

    def _settled(self, asked: _Call, answered: _Answered) -> Sequence[Event]:
        told = [*asked.answer(answered), *self._synced()]
        self._push()
        return told

    def _synced(self) -> Sequence[Event]:
        """Return the end of those syncs before which nothing is without an answer."""
        if not self._syncs:
            return ()
        oldest = self._waiting[0].serial if self._waiting else self._last_serial + 1
        oldest = min((each.serial for each in self._asked.values()), default=oldest)
        told: list[Event] = []
        for operation, awaited in list(self._syncs.items()):
            if awaited.is_ponged and awaited.last < oldest:
                del self._syncs[operation]
                if self._refused is None:
                    told.append(Done(operation))
                else:
                    told.append(Failed(operation, self._refused))
                    self._refused = None
        return told

    def _read_limits(self, welcome: str) -> None:
        """Read what the broker takes; one that does not say it says so when it is too much."""
        try:
            said = json.loads(welcome)
        except (ValueError, RecursionError):
            return
        if isinstance(said, dict):
            text, attachment = said.get("max_text"), said.get("max_attachment")
            self._max_text = text if isinstance(text, int) else None
            self._max_attachment = attachment if isinstance(attachment, int) else None

    # ---- the end ----

    def _error(self, payload: str) -> ClientError:
        code, text = read_error(payload)
        where = self.setup.where
        if code == NO_ROUTE:
            return NotThere(f"{where}: {text}")
        return Refused(f"{where} refused: {text}", code, of_name=False)

    def _fatal(self, fatal: events.Fatal) -> ClientError:
        text = f"{self.setup.where} ended the connection: {fatal.text or f'code {fatal.code}'}"
        if self._state is _State.READY or fatal.code == LATER:
            return ConnectionLost(text)
        return Refused(text, fatal.code, of_name=False)

    def _refused_upgrade(self, refused: websocket.Refused) -> Closed:
        try:
            said = json.loads(refused.text)["error"]
        except (ValueError, RecursionError, TypeError, KeyError):
            said = ""
        text = f"{self.setup.where} refused: HTTP status {refused.status}"
        text += f", {said}" if said else DOUBT
        if refused.status == _HTTP_LATER:
            return self._ends(ConnectionLost(text))
        return self._ends(Refused(text, refused.status, of_name=False))

    def _breaks(self, reason: str) -> Closed:
        self._close()
        return self.broken(reason)

    def _ends(self, error: ClientError) -> Closed:
        self._close()
        return Closed(error)

    def _close(self) -> None:
        self._state = _State.CLOSED
        self._peer.close()
        self._waiting.clear()

    # ---- what goes ----

    def _ask(
        self,
        method: str,
        first: str,
        body: bytes,
        options: dict[str, object] | None,
        answer: _Answer,
    ) -> None:
        """Call a method whose second argument is a body: text, or else an attachment."""
        text: str | None = None
        if len(body) <= _LONGEST_BODY_IN_TEXT:
            with suppress(UnicodeDecodeError):
                text = body.decode()
        attachments = (bytes(body),) if text is None else ()
        arguments = [method, first, text] if options is None else [method, first, text, options]
        self._enqueue(arguments, attachments, answer)

    def _subscribe(self, number: int, topic: _Topic, options: dict[str, bool]) -> None:
        subscription = topic.subscription

        def answer(answered: _Answered) -> Sequence[Event]:
            if answered.error is None:
                return ()
            self._peer.forget_topic(number)
            if self._topics.pop(number, None) is None:
                return ()  # it has been left, or was ended
            return [Failed(subscription.number, answered.error)]

        self._enqueue(["subscribe", topic.pattern, spell_id(number), options], (), answer)

    def _confirm(self, subscription: Subscription) -> None:
        def answer(answered: _Answered) -> Sequence[Event]:
            if any(each.subscription is subscription for each in self._topics.values()):
                return [Active(subscription.number)]
            return ()  # it was refused, or has been left

        self._enqueue(["sync"], (), answer)

    def _enqueue(
        self, arguments: Sequence[object], attachments: Sequence[bytes], answer: _Answer
    ) -> None:
        payload = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
        where = self.setup.where
        for attachment in attachments:
            most = self._max_attachment
            if most is not None and len(attachment) > most:
                text = f"{where} takes at most {most} (umq.max_attachment, bus.max_body)"
                raise BadArgument(f"a body has {len(attachment)} bytes, {text}")
        size = len(payload.encode(errors="replace")) + _LONGEST_HEAD
        if self._max_text is not None and size > self._max_text:
            text = f"{where} takes at most {self._max_text} (umq.max_text)"
            raise BadArgument(f"a call has about {size} bytes of text, {text}")
        self._last_serial += 1
        self._waiting.append(_Call(self._last_serial, payload, attachments, answer))
        self._push()

    def _push(self) -> None:
        """Call as much as the broker shall have at a time."""
        while self._waiting and len(self._asked) < _WINDOW and self._state is _State.READY:
            call = self._waiting.popleft()
            self._asked[self._peer.call(call.payload, call.attachments)] = call

    def _flushed(self, told: Sequence[Event]) -> Sequence[Event]:
        """Have sent what was said."""
        for message in self._peer.out:
            self._socket.send(message)
        self._peer.out.clear()
        if self._socket.out:
            self._out.append(bytes(self._socket.out))
            self._socket.out.clear()
        return told

    # ---- texts ----

    def _host(self) -> str:
        scheme, _, where = self.setup.where.rpartition("://")
        return "localhost" if scheme.endswith("+unix") else where

    def _hello(self) -> str:
        secret = self.setup.options.get("token_file", "").strip()
        if self.setup.user:
            return json.dumps({"user": self.setup.user, "password": secret})
        return json.dumps({"token": secret}) if secret else ""


def _topic(text: str) -> str:
    """Return a topic as the broker has it. Raises ``BadArgument``."""
    topic = text.strip("/")
    if fault := topic_fault(_encoded(topic)):
        raise BadArgument(fault)
    return topic


def _pattern(text: str) -> str:
    try:
        read_pattern(text)
        return normal(text).decode()
    except PatternFault as error:
        raise BadArgument(f"'{text}' is no pattern: {error}") from error


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadArgument(f"{text!r} is no UTF-8, which UMQ's texts are") from None


def _texts(properties: Mapping[str, PropertyValue]) -> dict[str, str]:
    """Return properties, which are texts in UMQ. Raises ``BadArgument``."""
    texts: dict[str, str] = {}
    for name, value in properties.items():
        if not isinstance(value, str):
            kind = type(value).__name__
            raise BadArgument(f"the property {name!r} is {kind}; those of UMQ are text")
        texts[name] = value
    if fault := property_fault({name: _encoded(value) for name, value in texts.items()}):
        raise BadArgument(fault)
    return texts
