"""What FMQP peers say. Topics are normal (no ``/`` at the ends), in UTF-8.

Consecutive plain publications are one event, the bus's ``Run``, because a read has thousands.

Nobody changes an event; those made for every read or message are not frozen, because freezing
triples the time it takes to make one.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from host_broker.bus.publication import Run, unpack
from host_broker.wire.violation import Violation

SUBSCRIPTION = 0x80
UNSUBSCRIBE = 0x40
FEEDBACK = 0x20
DEBUG = 0x10
WILL = 0x08
CACHE = 0x04


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


Event = Run | Publication | Subscription | Violation


def publications(run: Run) -> Iterator[Publication]:
    """Take a run apart, for those who want one event per message."""
    for flags, topic, body in unpack(run.data[run.start : run.end]):
        yield Publication(flags, topic, body)
