"""``$/info/messages/second``: how many messages came in the last second (R42, A20)."""

from collections.abc import Sequence
from itertools import product
from struct import Struct

from host_broker.bus.commands import Command, Send
from host_broker.bus.publication import is_service, pack
from host_broker.protocols.session import NOTHING

_TOPIC = b"$/info/messages/second"
_COUNT = Struct(">Q")
# A level of the topic, or "*": whoever subscribes to one of these wants to know.
EQUIVALENT = frozenset(
    b"/".join(levels) for levels in product(*((level, b"*") for level in _TOPIC.split(b"/")))
)
NAMED = frozenset(topic for topic in EQUIVALENT if is_service(topic))  # of those, if "*" is not "$"


class Meter:
    """Counts the correct FMQP packets of all clients since the start."""

    __slots__ = ("received",)

    def __init__(self) -> None:
        self.received = 0


class Statistics:
    """What one subscriber is told, every second from its subscription on.

    Nobody else needs a clock, so a broker without such subscribers sleeps. ``deadline`` is when
    the next message is due, None while it is not subscribed.
    """

    __slots__ = ("_meter", "_since", "_wanted", "deadline")

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._wanted: set[bytes] = set()
        self._since = 0
        self.deadline: float | None = None

    def subscribed(self, topic: bytes, now: float) -> None:
        """Begin with the first subscription; ``topic`` is one of ``EQUIVALENT``."""
        self._wanted.add(topic)
        if self.deadline is None:
            self._since = self._meter.received
            self.deadline = now + 1.0

    def unsubscribed(self, topic: bytes) -> None:
        """End with the last one."""
        self._wanted.discard(topic)
        if not self._wanted:
            self.deadline = None

    def tick(self, now: float) -> Sequence[Command]:
        """Tell the number once a second is over; a late tick tells all that came meanwhile."""
        if self.deadline is None or now < self.deadline:
            return NOTHING
        count = self._meter.received - self._since
        self._since = self._meter.received
        following = self.deadline + 1.0
        self.deadline = following if following > now else now + 1.0
        return [Send(pack(0, _TOPIC, _COUNT.pack(count)))]
