"""FMQP's client side: publications and subscriptions out, publications in, echoes as answers.

FMQP has no greeting, no ping and no acknowledgement. What stands in for all of them is an echo: a
publication under a topic below ``motemq/echo/`` that only this client subscribes to. When it comes
back, the broker has processed everything that was sent before it.
"""

from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct

from host_broker.bus.publication import HEADER, pack, unpack
from host_broker.client_errors import callers_mistakes
from host_broker.client_session import (
    ECHO_TOPICS,
    Ability,
    Active,
    ClientSession,
    Done,
    Event,
    Message,
    Messages,
    Publication,
    Ready,
    Setup,
    Subscription,
)
from host_broker.protocols.fmqp.codec import Codec
from host_broker.protocols.fmqp.events import CACHE, FEEDBACK, WILL
from host_broker.protocols.fmqp.events import Publication as Packet
from host_broker.protocols.fmqp.events import Subscription as Command
from host_broker.protocols.fmqp.spelling import encode_publication, encode_subscription
from host_broker.wire.violation import Violation

_LARGEST_BODY = 64 * 1024 * 1024  # bytes; larger ones are skipped, as the protocol allows
_WILDCARDS_ELSEWHERE = ("#", "+", "**")  # of MQTT, and of UMQ
_DEEPEST = 128  # levels: as many ``*`` fill a topic's 255 bytes
_MAX_NAMES = 8192  # topics whose text is remembered
_ECHO = Struct(">Q")

# What an echo was sent for: told the time at which it came, it returns what that means.
_Awaited = Callable[[float], Sequence[Event]]


class FmqpClientSession(ClientSession):
    """One connection to an FMQP broker."""

    can = frozenset(
        {
            Ability.RETAIN,
            Ability.WILL,
            Ability.WILDCARD,
            Ability.FEEDBACK,
            Ability.UNCOUNTED,
        }
    )

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._codec = Codec("client", _LARGEST_BODY, (1 << 32) - 1)
        self._echo_topic = f"{ECHO_TOPICS}{setup.random_bytes(8).hex()}"
        self._echo_raw = self._echo_topic.encode()
        self._echo_subscribed = False
        self._echo_count = 0
        self._awaited: deque[tuple[int, _Awaited]] = deque()  # by the number of the echo
        self._beginning: dict[int, Subscription] = {}  # not active yet, but will be told
        self._names: dict[bytes, str] = {}
        self._raw: dict[str, bytes] = {}

    def begin(self, now: float) -> Sequence[Event]:
        """FMQP has no greeting, and an ``auto://`` listener must know what it is before it waits
        for us for ever. An empty publication is the least there is; nobody is sent it."""
        self._out.append(encode_publication(self._echo_topic, b""))
        return [Ready()]

    def receive_data(self, data: bytes, now: float) -> list[Event]:
        self.heard = True
        events: list[Event] = []
        batch: list[Message] = []
        names, echo, received_ns = self._names, self._echo_raw, int(now * 1e9)
        for event in self._codec.receive_data(data):
            if isinstance(event, Packet):
                # An empty or flagged packet under our echo's topic is nobody's word.
                if event.topic != echo or event.flags & FEEDBACK:
                    batch.append(self._message(event, received_ns))
            elif isinstance(event, Violation):
                if event.fatal:
                    self._flush(events, batch)
                    text = f"the broker broke FMQP ({event.rule}: {event.reason})"
                    return [*events, self.broken(text)]
                # R4: what else is incorrect, e.g. a subscription from a broker, is discarded.
            elif not isinstance(event, Command):  # a run of plain publications
                for _, topic, body in unpack(event.data[event.start : event.end]):
                    if topic == echo:
                        batch = self._flush(events, batch)
                        events += self._echoed(body, now)
                    else:
                        name = names.get(topic) or self._named(topic)
                        batch.append(Message(name, body, received_ns))
        self._flush(events, batch)
        return events

    def publish(self, publication: Publication, now: float) -> None:
        if publication.properties:
            raise self.not_supported(Ability.PROPERTIES)
        raw = self._raw.get(publication.topic) or self._checked(publication.topic)
        flags = WILL * publication.will | CACHE * publication.retain
        self._out.append(pack(flags, raw, publication.payload))

    def sync(self, operation: int, now: float) -> str:
        self._await_echo(lambda came: [Done(operation)])
        return "did not echo a message"

    def ping(self, operation: int, now: float) -> str:
        def measure(sent: float) -> None:
            self._await_echo(lambda came: [Done(operation, came - sent)])

        def subscribed(came: float) -> Sequence[Event]:
            measure(came)
            return ()

        if self._echo_subscribed:
            measure(now)
        else:
            self._await_echo(subscribed)  # what is measured must not wait for the subscription
        return "did not echo a message"

    def subscribe(self, subscription: Subscription, now: float) -> Sequence[Event]:
        if subscription.filter:
            raise self.not_supported(Ability.FILTER)
        self._out += self._spelled(subscription)
        if subscription.confirm:
            number = subscription.number
            self._beginning[number] = subscription

            def active(came: float) -> Sequence[Event]:
                # R21: what is kept comes before anything that is published later.
                return [Active(number)] if self._beginning.pop(number, None) else ()

            self._await_echo(active)
        return ()

    def unsubscribe(self, subscription: Subscription, now: float) -> None:
        self._out += self._spelled(subscription, unsubscribe=True)
        self._beginning.pop(subscription.number, None)

    def matches(self, pattern: str, topic: str) -> bool:
        """R10: equal number of levels, and each is the same or one of the two is ``*``."""
        levels, others = topic.strip("/").split("/"), pattern.strip("/").split("/")
        return len(levels) == len(others) and all(
            level == other or "*" in (level, other)
            for level, other in zip(levels, others, strict=True)
        )

    def everything(self, levels: int | None = None) -> tuple[str, ...]:
        """A ``*`` is one level, so one pattern for each number of levels."""
        deepest = _DEEPEST if levels is None else min(levels, _DEEPEST)
        return tuple("/".join("*" * depth) for depth in range(1, deepest + 1))

    def misread(self, pattern: str) -> str:
        levels = pattern.strip("/").split("/")
        odd = next((level for level in levels if level in _WILDCARDS_ELSEWHERE), None)
        if odd is None:
            return ""
        stars = "/".join("*" if level in _WILDCARDS_ELSEWHERE else level for level in levels)
        text = f"'{odd}' is no wildcard here but a name; '*' stands for one level: '{stars}'"
        if levels[-1] in ("#", "**"):
            text += f", and below that '{stars}/*' …"
        return text

    def _spelled(self, subscription: Subscription, *, unsubscribe: bool = False) -> list[bytes]:
        with callers_mistakes():
            return [
                encode_subscription(
                    pattern,
                    unsubscribe=unsubscribe,
                    feedback=subscription.feedback,
                    debug=subscription.uncounted and not unsubscribe,
                )
                for pattern in subscription.patterns
            ]

    def _await_echo(self, awaited: _Awaited) -> None:
        if not self._echo_subscribed:
            self._echo_subscribed = True
            self._out.append(encode_subscription(self._echo_topic, debug=True))
        self._echo_count += 1
        self._awaited.append((self._echo_count, awaited))
        self._out.append(encode_publication(self._echo_topic, _ECHO.pack(self._echo_count)))

    def _echoed(self, body: bytes, now: float) -> list[Event]:
        events: list[Event] = []
        if len(body) == _ECHO.size:
            (number,) = _ECHO.unpack(body)
            while self._awaited and self._awaited[0][0] <= number:
                events += self._awaited.popleft()[1](now)
        return events

    def _message(self, packet: Packet, received_ns: int) -> Message:
        name, flags = self._names.get(packet.topic) or self._named(packet.topic), packet.flags
        cache, feedback = bool(flags & CACHE), bool(flags & FEEDBACK)
        # FMQP does not mark what was kept, but a broker sends that before anything else (R21).
        # Feedback is always kept (R46), its flags do not say so.
        kept = (cache or feedback) and any(
            subscription.feedback == feedback and self.matches(pattern, name)
            for subscription in self._beginning.values()
            for pattern in subscription.patterns
        )
        return Message(
            name,
            packet.body,
            received_ns,
            retain=cache,
            will=bool(flags & WILL),
            kept=kept,
            feedback=feedback,
        )

    def _checked(self, topic: str) -> bytes:
        """Return a topic as it is on the wire; it is remembered, as few programs have many."""
        with callers_mistakes():
            raw = encode_publication(topic, b"")[HEADER.size :]
        if len(self._raw) >= _MAX_NAMES:
            self._raw.clear()
        self._raw[topic] = raw
        return raw

    def _named(self, topic: bytes) -> str:
        if len(self._names) >= _MAX_NAMES:
            self._names.clear()
        name = self._names[topic] = topic.decode()
        return name

    @staticmethod
    def _flush(events: list[Event], batch: list[Message]) -> list[Message]:
        """Put what came until now before what follows; returns the next batch."""
        if not batch:
            return batch
        events.append(Messages(batch))
        return []
