"""What the broker tells of itself every second to those who ask.

``$/info/messages/second``: how many messages came in the last second (R42, A20).
``$/info/dropped/PROTOCOL/REASON``: how many were discarded or dropped since the start, by the
protocol of the connection and by rule, limit or ``slow``; an addition of ours, and only for those
who name it: no ``*`` for its first three levels.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from struct import Struct

from host_broker.bus.commands import Command, Send
from host_broker.bus.publication import is_service, pack
from host_broker.protocol import NOTHING
from host_broker.stats import Stats

_TOPIC = b"$/info/messages/second"
LOSSES = b"$/info/dropped/"
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
    the next message is due, None while it is not subscribed. Of what was lost it is told all
    numbers at first, then those that have changed.
    """

    __slots__ = ("_known_losses", "_meter", "_since", "_stats", "_wanted", "deadline")

    def __init__(self, meter: Meter, stats: Stats) -> None:
        self._meter = meter
        self._stats = stats
        self._wanted: set[bytes] = set()
        self._known_losses: dict[bytes, int] = {}
        self._since = 0
        self.deadline: float | None = None

    def subscribed(self, topic: bytes, now: float) -> None:
        """Begin with the first subscription; ``topic`` is in ``EQUIVALENT`` or below ``LOSSES``."""
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
        """Tell the numbers once a second is over; a late tick tells all that came meanwhile."""
        if self.deadline is None or now < self.deadline:
            return NOTHING
        packets = []
        losses = [topic for topic in self._wanted if topic.startswith(LOSSES)]
        if len(losses) < len(self._wanted):
            count = self._meter.received - self._since
            packets.append(pack(0, _TOPIC, _COUNT.pack(count)))
        if losses:
            packets += self._losses(losses)
        self._since = self._meter.received
        following = self.deadline + 1.0
        self.deadline = following if following > now else now + 1.0
        return [Send(b"".join(packets))] if packets else NOTHING

    def _losses(self, wanted: Sequence[bytes]) -> Iterator[bytes]:
        for protocol, reason, count in self._stats.losses():
            topic = LOSSES + f"{protocol}/{reason}".encode()
            if self._known_losses.get(topic) != count and any(
                _equivalent(each, topic) for each in wanted
            ):
                self._known_losses[topic] = count
                yield pack(0, topic, _COUNT.pack(count))


def _equivalent(pattern: bytes, topic: bytes) -> bool:
    levels, others = pattern.split(b"/"), topic.split(b"/")
    return len(levels) == len(others) and all(
        one in (other, b"*") for one, other in zip(levels, others, strict=True)
    )
