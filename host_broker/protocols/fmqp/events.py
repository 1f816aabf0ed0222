"""What FMQP peers say. Topics are normal (no ``/`` at the ends), in UTF-8.

Nobody changes an event; those made for every read or message are not frozen, because freezing
triples the time it takes to make one.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from host_broker.bus.publication import unpack
from host_broker.wire.violation import Violation

SUBSCRIPTION = 0x80
UNSUBSCRIBE = 0x40
FEEDBACK = 0x20
DEBUG = 0x10
WILL = 0x08
CACHE = 0x04


@dataclass(slots=True)
class Publications:
    """``count`` consecutive plain publications: ``data[start:end]`` on the wire.

    Plain: flags 0, a normal topic outside ``$``, a body. ``topics`` are all of theirs.
    """

    data: bytes
    start: int
    end: int
    count: int
    topics: set[bytes]

    def each(self) -> "Iterator[Publication]":
        """Take the batch apart, for those who want one event per message."""
        for flags, topic, body in unpack(self.data[self.start : self.end]):
            yield Publication(flags, topic, body)


@dataclass(slots=True)
class Publication:
    """One publication; ``flags`` as on the wire.

    ``count``: said so often in a row; above 1 only without a body, where once is as good.
    """

    flags: int
    topic: bytes
    body: bytes
    count: int = 1


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription, or the end of one; ``flags`` as on the wire."""

    flags: int
    topic: bytes


Event = Publications | Publication | Subscription | Violation
