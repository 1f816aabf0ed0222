"""One FMQP connection: its packets as bus commands, and its last wills."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from host_broker.bus.commands import (
    Command,
    Discard,
    Disconnect,
    Publish,
    Send,
    Signal,
    Subscribe,
    Unsubscribe,
)
from host_broker.bus.delivery import Delivery, QueueDelivery
from host_broker.bus.publication import HEADER, Run, is_service
from host_broker.protocol import NOTHING, Session
from host_broker.protocols.fmqp.codec import Codec
from host_broker.protocols.fmqp.dialect import REVERSED, Dialect
from host_broker.protocols.fmqp.events import (
    CACHE,
    DEBUG,
    FEEDBACK,
    UNSUBSCRIBE,
    WILL,
    Publication,
    Subscription,
)
from host_broker.protocols.fmqp.settings import FmqpSettings
from host_broker.protocols.fmqp.statistics import EQUIVALENT, LOSSES, NAMED, Meter, Statistics
from host_broker.settings import BusSettings
from host_broker.stats import Stats
from host_broker.wire.budget import Budget
from host_broker.wire.violation import Violation

# R31, R32: any message, whatever its body.
_SIGNALS: Mapping[bytes, Literal["stop", "terminate"]] = {
    b"$/signals/stop": "stop",
    b"$/signals/terminate": "terminate",
}


@dataclass(frozen=True, slots=True)
class Shared:
    """What the sessions of one broker have in common: counts, and memory for what they hold."""

    meter: Meter
    budget: Budget
    stats: Stats


class FmqpSession(Session):
    """Translates packets; holds the codec, the wills, and what its peer is told every second."""

    client = ""
    deadline: float | None = None
    verbatim = True

    def __init__(
        self,
        settings: FmqpSettings,
        bus: BusSettings,
        dialect: Dialect,
        shared: Shared,
        loopback: bool,
    ) -> None:
        limits = bus.max_body, settings.hard_body_limit
        self._codec = Codec("broker", *limits, dialect, shared.budget)
        self._budget = shared.budget
        self._max_wills = settings.max_wills
        self._empty_clears = settings.empty_clears_cache
        self._signals = settings.signals
        self._loopback = loopback
        self._wills: list[Command] = []
        self._wills_bytes = 0
        self._meter = shared.meter
        self._stats = shared.stats
        self._statistical = EQUIVALENT if bus.wildcard_matches_service else NAMED
        self._statistics: Statistics | None = None  # few want them

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        """Take one read."""
        commands: list[Command] = []
        for event in self._codec.receive_data(data):
            if isinstance(event, Run):
                self._meter.received += event.count
                commands.append(event)
            else:
                command = self._command(event, now)
                if command is not None:
                    commands.append(command)
        return commands

    def deliver(self, delivery: Delivery | QueueDelivery, now: float) -> Sequence[Command]:
        """Never called: FMQP is the stored form, and has no queues."""
        raise TypeError(f"an FMQP session translates nothing, least of all {delivery!r}")

    def refused(self, action: str, topic: bytes) -> Sequence[Command]:
        """FMQP has no word for it; what would be told without the bus is not told either."""
        if self._statistics is not None and action == "subscribe":
            self._statistics.unsubscribed(topic)
            self.deadline = self._statistics.deadline
        return NOTHING

    def tick(self, now: float) -> Sequence[Command]:
        """Tell the statistics of a second: FMQP has no other timer."""
        if self._statistics is None:
            return NOTHING
        told = self._statistics.tick(now)
        self.deadline = self._statistics.deadline
        return told

    def wills(self) -> Sequence[Publish]:
        """Return the last wills, to be looked at; signals are none of them."""
        return [will for will in self._wills if isinstance(will, Publish)]

    def closed(self, now: float) -> Sequence[Command]:
        """Publish every last will, in the order they came (R25, R28, A17)."""
        wills, self._wills = self._wills, []
        self._budget.give(self._wills_bytes)
        self._wills_bytes = 0
        self._codec.close()
        self.deadline = self._statistics = None
        return wills

    def _command(self, event: Publication | Subscription | Violation, now: float) -> Command | None:
        if isinstance(event, Publication):
            self._meter.received += event.count
            return self._publish(event)
        if isinstance(event, Subscription):
            self._meter.received += 1
            topic = event.topic
            statistical = topic in self._statistical or topic.startswith(LOSSES)
            if statistical and not event.flags & FEEDBACK:
                self._tell_statistics(event, now)
            return _subscribe(event)
        return _refuse(event)

    def _tell_statistics(self, event: Subscription, now: float) -> None:
        if self._statistics is None:
            self._statistics = Statistics(self._meter, self._stats)
        if event.flags & UNSUBSCRIBE:
            self._statistics.unsubscribed(event.topic)
        else:
            self._statistics.subscribed(event.topic, now)
        self.deadline = self._statistics.deadline

    def _publish(self, event: Publication) -> Command | None:
        topic, body, flags = event.topic, event.body, event.flags
        command: Command
        if is_service(topic):
            if topic not in _SIGNALS:
                return Discard("R30")
            signals = self._signals
            if signals == "off":
                return Discard("fmqp.signals")
            granted = signals == "on" or (signals == "loopback" and self._loopback)
            command = Signal(_SIGNALS[topic], granted)
        else:
            retain = bool(flags & CACHE)
            if not body and not (retain and self._empty_clears):
                return None  # R18: no more than a sign of life
            command = Publish(topic, body, retain=retain, will=bool(flags & WILL))
        if not flags & WILL:
            return command
        if len(self._wills) >= self._max_wills:
            return Discard("fmqp.max_wills")
        size = len(topic) + len(body)
        if not self._budget.take(size):
            return Discard("bus.max_held_bytes")
        # R24: not now.
        self._wills_bytes += size
        self._wills.append(command)
        return None


class LsbSession(FmqpSession):
    """A connection whose peer counts flags from the other end of the byte (A1, ``lsb``).

    It takes stored publications translated; only flags differ, and 0 is 0 in any order.
    """

    verbatim = False

    def deliver(self, delivery: Delivery | QueueDelivery, now: float) -> Sequence[Command]:
        """Say a run of stored publications with their flags turned round."""
        if isinstance(delivery, QueueDelivery):
            return super().deliver(delivery, now)
        turned = bytearray(delivery.run)
        position = 0
        while position < len(turned):
            flags, topic_length, body_length = HEADER.unpack_from(turned, position)
            turned[position] = REVERSED[flags]
            position += HEADER.size + topic_length + body_length
        return [Send(turned)]


def _subscribe(event: Subscription) -> Command:
    feedback = bool(event.flags & FEEDBACK)
    if event.flags & UNSUBSCRIBE:
        return Unsubscribe(event.topic, feedback=feedback)
    return Subscribe(event.topic, feedback=feedback, quiet=bool(event.flags & DEBUG))


def _refuse(violation: Violation) -> Command:
    if violation.fatal:
        return Disconnect(f"{violation.rule}: {violation.reason}", abort=True)
    return Discard(violation.rule, violation.count, violation.distinct)
