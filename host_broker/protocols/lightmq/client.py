"""LightMQ's client side: a name, SEND and SENDRESP both ways, PING.

LightMQ has no topics. What a client SENDs is published under ``up``, what it is sent comes as
``down``; so they are the two topics here.

Why so long: the session, what it is called by, and the same as a tunnel of another one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from host_broker.client_errors import (
    BadArgument,
    ClientError,
    ConnectionLost,
    NotThere,
    Refused,
    Timeout,
    callers_mistakes,
)
from host_broker.client_session import (
    Ability,
    Active,
    ClientSession,
    Closed,
    Done,
    Event,
    Message,
    Messages,
    Publication,
    Ready,
    Setup,
    Subscription,
)
from host_broker.protocols.lightmq.codec import MAX_CLIENT_ID, MAX_SEND, Codec
from host_broker.protocols.lightmq.dialects import DIALECTS, DialectName, Refusal
from host_broker.protocols.lightmq.events import Connack, Ping, Pong, Send, SendResp
from host_broker.protocols.lightmq.events import Event as Frame
from host_broker.protocols.lightmq.paths import level, path
from host_broker.wire.violation import Violation

UP, DOWN = "up", "down"
_CALLS = ">"  # NAME>ID is NAME, whose SENDs are for ID
# SENDs of ours without a response at a time. A MoteMQ broker tells lightmq.max_pending (64) apart.
_WINDOW = 32
_MOST_IDS = 32768  # that await something: half of all, so that a free one is found soon
_ADVICE = {
    Refusal.VERSION: "it does not speak this version of LightMQ, or another dialect",
    Refusal.UNAVAILABLE: "it is unavailable; try again later",
    Refusal.MALFORMED: "it calls our CONNECT malformed; is this client id allowed there?",
    Refusal.UNAUTHORIZED: (
        "not allowed; is another client connected under this client id, or is its secret wrong?"
    ),
}
_UNANSWERED = "did not respond to a SEND"
_NO_PONG = "did not answer a PING"


@dataclass(frozen=True, slots=True)
class RequestByTopics:
    """How whoever publishes and subscribes asks the client ``target``, once.

    Publish the question under ``request``, subscribed to ``reply`` (the response, unless it is
    empty) and ``done`` (how it ended). Who takes requests is interest in ``interest``, which
    feedback tells of. ``tag`` tells this call from every other.
    """

    target: str
    tag: str
    presence: ClassVar[str] = "lightmq/*/status"

    def __post_init__(self) -> None:
        _require_id(self.target)

    @property
    def interest(self) -> str:
        """The pattern that the client subscribes to while it takes calls."""
        return path(level(self.target), "request/*").decode()

    @property
    def request(self) -> str:
        """Where the question goes."""
        return self._topic("request")

    @property
    def reply(self) -> str:
        """Where the response comes."""
        return self._topic("reply")

    @property
    def done(self) -> str:
        """Where it is told how the call ended, after the response."""
        return self._topic("done")

    def error(self, how: bytes) -> ClientError | None:
        """Return what ``done`` says went wrong."""
        if how == b"answered":
            return None
        if how == b"unanswered":
            return Timeout(f"'{self.target}' did not answer in the time that the broker allows")
        if how == b"too long":
            return ClientError(f"'{self.target}' cannot be sent a question of that length")
        return NotThere(f"'{self.target}' went before it had answered")

    @staticmethod
    def present(topic: str, payload: bytes) -> str:
        """Return the name of a client that is there; names that no level can hold are left out."""
        name = topic.split("/")[1]
        return name if payload == b"online" and level(name).decode() == name else ""

    def check(self, payload: bytes) -> None:
        """Raise ``BadArgument`` for a question that cannot be asked."""
        _require_call(payload)

    def _topic(self, end: str) -> str:
        return path(level(self.target), f"{end}/{self.tag}").decode()


class LightmqClientSession(ClientSession):
    """One connection to a LightMQ broker.

    Every ``credit``: at most 32 SENDs without a response are on their way. A peer of the dialect
    ``gbaranski`` may never respond, so there SENDs are not counted, and ``sync`` asks by PING.
    """

    can = frozenset({Ability.NAME, Ability.REQUEST, Ability.RESPOND, Ability.CALL, Ability.NO_WAIT})
    handshake = "did not answer CONNECT"
    call_by_topics = RequestByTopics

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        dialect: DialectName
        match setup.options.get("dialect", "spec"):
            case "spec":
                dialect = "spec"
            case "gbaranski":
                dialect = "gbaranski"
            case other:
                known = " and ".join(DIALECTS)
                raise BadArgument(f"{setup.where}: no dialect '{other}'; there are {known}")
        self.name = setup.name or f"host-{setup.random_bytes(4).hex()}"
        self._responds = dialect == "spec"
        self._numbers = DIALECTS[dialect]
        self._codec = Codec("client", dialect)
        self._connack: Connack | None = None
        self._over = False
        self._next_id = int.from_bytes(setup.random_bytes(2))
        self._waiting: dict[int, int | None] = {}  # our SENDs without response: who wants that
        self._syncs: list[tuple[int, set[int]]] = []  # operations, and the SENDs they wait for
        self._pings: dict[int, tuple[int, float]] = {}  # PINGs: operation, when; oldest first
        called = "" if setup.calls is None else _CALLS + setup.calls
        if setup.calls is not None:
            _require_id(setup.calls)
        elif setup.unseen:
            called = _CALLS  # nobody's caller: not a client that others could address
        with callers_mistakes():
            self._hello = self._codec.connect(self.name + self._token() + called)

    def begin(self, now: float) -> Sequence[Event]:
        self._out.append(self._hello)
        return ()

    def receive_data(self, data: bytes, now: float) -> list[Event]:
        self.heard = True
        events: list[Event] = []
        batch: list[Message] = []
        received_ns = int(now * 1e9)
        for frame in () if self._over else self._codec.receive_data(data):
            if type(frame) is Send and self._connack is not None:
                batch.append(Message(DOWN, frame.data, received_ns, answer=frame.id))
                continue
            if taken := self._taken(frame, now):
                if batch:
                    events.append(Messages(batch))
                    batch = []
                events += taken
                if type(taken[-1]) is Closed:
                    self._over = True
                    break
        if batch:
            events.append(Messages(batch))
        return events

    def receive_end(self, error: ConnectionLost) -> ClientError:
        if self._connack is None and not self.heard:
            where = self.setup.where
            return ConnectionLost(
                f"{where} closed the connection instead of answering CONNECT{self.doubt}"
            )
        if self.setup.calls is not None and self._waiting:
            # The broker closes a call that fails: LightMQ has no error packet.
            return NotThere(
                f"{self.setup.where} closed the call; '{self.setup.calls}' has gone or did not "
                "answer, or the broker is stopping"
            )
        return error

    @property
    def credit(self) -> bool:
        return len(self._waiting) < _WINDOW

    def publish(self, publication: Publication, now: float) -> None:
        self.require(
            {
                Ability.RETAIN: publication.retain,
                Ability.WILL: publication.will,
                Ability.PROPERTIES: publication.properties,
            }
        )
        self._require(publication.topic, UP)
        self._send(publication.payload, None, counts=self._responds)

    def post(self, data: bytes) -> None:
        """SEND, and never mind the response."""
        self._send(data, None, counts=False)

    def sync(self, operation: int, now: float) -> str:
        sent = set(self._waiting)
        if not sent:
            self.ping(operation, now)
            return _NO_PONG
        self._syncs.append((operation, sent))
        return _UNANSWERED

    def ping(self, operation: int, now: float) -> str:
        id = self._fresh_id()
        self._pings[id] = (operation, now)
        self._out.append(self._codec.ping(id))
        return _NO_PONG

    def subscribe(self, subscription: Subscription, now: float) -> Sequence[Event]:
        self.require(
            {
                Ability.FEEDBACK: subscription.feedback,
                Ability.UNCOUNTED: subscription.uncounted,
                Ability.FILTER: subscription.filter,
            }
        )
        for pattern in subscription.patterns:
            self._require(pattern, DOWN)
        return [Active(subscription.number)] if subscription.confirm else ()

    def unsubscribe(self, subscription: Subscription, now: float) -> None:
        """There is nothing to tell the broker."""

    def matches(self, pattern: str, topic: str) -> bool:
        return pattern == topic

    def request(self, operation: int, topic: str, payload: bytes, now: float) -> str:
        self._require(topic, UP)
        self._send(payload, operation, counts=True)
        return _UNANSWERED

    def call(self, operation: int, target: str, payload: bytes, now: float) -> str:
        _require_call(payload)
        self._send(payload, operation, counts=True)
        return _UNANSWERED

    def respond(self, message: Message, payload: bytes, now: float) -> None:
        if not isinstance(message.answer, int):
            raise BadArgument("nobody awaits an answer to this message")
        with callers_mistakes():
            self._out.append(self._codec.sendresp(message.answer, payload))

    def _taken(self, frame: Frame, now: float) -> Sequence[Event]:
        if isinstance(frame, Violation):
            return [self.broken(f"the broker broke LightMQ ({frame.rule}: {frame.reason})")]
        if isinstance(frame, Connack):
            return self._connected(frame)
        if self._connack is None:
            return [self.broken("the broker's first frame is no CONNACK (R9)")]
        if isinstance(frame, Ping):
            self._out.append(self._codec.pong(frame.id))
        elif isinstance(frame, Pong):
            # A5: a PONG without an id answers the oldest PING.
            id = next(iter(self._pings), -1) if frame.id is None else frame.id
            if id in self._pings:
                operation, sent = self._pings.pop(id)
                return [Done(operation, now - sent)]
        elif isinstance(frame, SendResp) and frame.id in self._waiting:
            return self._responded(frame)
        return ()

    def _connected(self, connack: Connack) -> Sequence[Event]:
        if self._connack is not None:
            return [self.broken("the broker sent a second CONNACK")]
        self._connack = connack
        if connack.accepted:
            return [Ready()]
        number = connack.code - self._numbers.accepted
        if number > max(refusal.value for refusal in Refusal):
            return [self.broken(f"the broker sent CONNACK code {connack.code}, unknown")]
        refusal, where = Refusal(number), self.setup.where
        if self.setup.calls is not None and refusal is Refusal.UNAVAILABLE:
            return [Closed(not_there(where, self.setup.calls))]
        name, colon, _ = self.name.partition(":")
        shown = name + colon + "…" * bool(colon)  # what follows may be a token
        text = f"{where} refused client id '{shown}': {_ADVICE[refusal]}"
        of_name = refusal is not Refusal.VERSION
        return [Closed(Refused(text, refusal.value, of_name=of_name))]

    def _responded(self, response: SendResp) -> Sequence[Event]:
        events: list[Event] = []
        operation = self._waiting.pop(response.id)
        if operation is not None:
            events.append(Done(operation, response.data))
        for sync in list(self._syncs):
            sync[1].discard(response.id)
            if not sync[1]:
                self._syncs.remove(sync)
                events.append(Done(sync[0]))
        return events

    def _send(self, data: bytes, operation: int | None, *, counts: bool) -> None:
        id = self._fresh_id()
        with callers_mistakes():
            self._out.append(self._codec.send(id, data))
        if counts:
            self._waiting[id] = operation

    def forget(self, operation: int) -> None:
        """A response that comes later is discarded."""
        self._waiting = {id: who for id, who in self._waiting.items() if who != operation}
        self._pings = {id: ping for id, ping in self._pings.items() if ping[0] != operation}
        self._syncs = [sync for sync in self._syncs if sync[0] != operation]

    def _fresh_id(self) -> int:
        if len(self._waiting) + len(self._pings) >= _MOST_IDS:
            raise BadArgument(f"{_MOST_IDS} SENDs and PINGs are unanswered; wait for some of them")
        self._next_id = (self._next_id + 1) & 0xFFFF
        while self._next_id in self._waiting or self._next_id in self._pings:
            self._next_id = (self._next_id + 1) & 0xFFFF
        return self._next_id

    def _require(self, topic: str, only: str) -> None:
        if topic.strip("/") != only:
            text = "can only send" if only == UP else "is only sent what is for it:"
            raise BadArgument(f"LightMQ has no topics: a client {text} {only}, not '{topic}'")

    def _token(self) -> str:
        """Return what CONNECT adds to the name, so that the broker can be sure of it."""
        token = self.setup.options.get("token_file")
        if token is None:
            return ""
        if not self.setup.name:
            raise BadArgument(f"{self.setup.where}: a token needs a client id")
        return ":" + token.strip()


def not_there(where: str, target: str) -> NotThere:
    """Return the error for a client that takes no calls."""
    return NotThere(f"{where}: no client '{target}' takes calls there now; is it connected?")


def _require_id(called: str) -> None:
    size = len(called.encode("utf-8", "surrogateescape"))
    if not 0 < size <= MAX_CLIENT_ID:
        raise BadArgument(f"a client id is 1 to {MAX_CLIENT_ID} bytes of UTF-8, this is {size}")


def _require_call(payload: bytes) -> None:
    if not 0 < len(payload) <= MAX_SEND:
        raise BadArgument(f"a call carries 1 to {MAX_SEND} bytes, not {len(payload)}")


class TunnelClientSession(ClientSession):
    """One connection: a session of another protocol, whose bytes go through a LightMQ session.

    Each SEND's data is a piece of the other's byte stream, cut anywhere; its SENDRESP is empty.
    """

    handshake = LightmqClientSession.handshake

    @classmethod
    def abilities(cls, inner: type[ClientSession] | None) -> frozenset[Ability]:
        return frozenset({Ability.NAME}) | (inner.can if inner is not None else frozenset())

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        if setup.inner is None:
            raise ValueError("a tunnel needs a protocol to carry")
        self._tunnel = LightmqClientSession(setup)
        self._inner = setup.inner(setup)
        self.can = self.abilities(setup.inner)
        self.name = self._tunnel.name

    @property
    def doubt(self) -> str:
        """A listener for plain LightMQ accepts us, and understands nothing else."""
        if not self._tunnel.heard:
            return self._tunnel.doubt
        if self._inner.heard:
            return ""
        return f"; does the broker listen for {self.setup.protocol} there?"

    def begin(self, now: float) -> Sequence[Event]:
        return self._tunnel.begin(now)

    def receive_data(self, data: bytes, now: float) -> list[Event]:
        self.heard = True
        events: list[Event] = []
        for event in self._tunnel.receive_data(data, now):
            if isinstance(event, Ready):
                events += self._inner.begin(now)
            elif isinstance(event, Messages):
                for message in event.messages:
                    self._tunnel.respond(message, b"", now)
                    if message.payload:
                        events += self._inner.receive_data(message.payload, now)
            else:
                events.append(event)
        closed = next((event for event in events if isinstance(event, Closed)), None)
        return events if closed is None else events[: events.index(closed) + 1]

    def receive_end(self, error: ConnectionLost) -> ClientError:
        return self._tunnel.receive_end(error)

    def data_to_send(self) -> list[bytes]:
        data = b"".join(self._inner.data_to_send())
        for start in range(0, len(data), MAX_SEND):
            self._tunnel.post(data[start : start + MAX_SEND])
        return self._tunnel.data_to_send()

    def publish(self, publication: Publication, now: float) -> None:
        self._inner.publish(publication, now)

    def sync(self, operation: int, now: float) -> str:
        return self._inner.sync(operation, now)

    def ping(self, operation: int, now: float) -> str:
        return self._inner.ping(operation, now)

    def subscribe(self, subscription: Subscription, now: float) -> Sequence[Event]:
        return self._inner.subscribe(subscription, now)

    def unsubscribe(self, subscription: Subscription, now: float) -> None:
        self._inner.unsubscribe(subscription, now)

    def matches(self, pattern: str, topic: str) -> bool:
        return self._inner.matches(pattern, topic)

    def everything(self, levels: int | None = None) -> tuple[str, ...]:
        return self._inner.everything(levels)

    def misread(self, pattern: str) -> str:
        return self._inner.misread(pattern)

    def respond(self, message: Message, payload: bytes, now: float) -> None:
        self._inner.respond(message, payload, now)

    def forget(self, operation: int) -> None:
        self._inner.forget(operation)
