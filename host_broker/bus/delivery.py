"""What a subscriber is given: runs of publications, or messages of a queue."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from host_broker.bus.publication import NO_PROPERTIES, Properties, unpack

SubscriptionId = int  # of a subscriber's own choice

# Whether a subscription wants a publication: topic, properties, body. Pure; one that
# raises wants nothing.
Filter = Callable[[bytes, Properties, bytes], bool]


@dataclass(slots=True)
class Delivery:
    """Publications for one session, which says them in its protocol's words.

    ``run`` holds whole publications in encoding 1. Each of them matches all of ``subscriptions``,
    by the ids that the session chose, so that nobody parses a topic to find out why it comes.
    ``properties`` are those of all of them: a run of more than one has none. ``kept``: it is what
    was retained when the subscription began, since ``kept_ms`` (since 1970; 0: nobody knows).
    """

    run: bytes
    subscriptions: tuple[SubscriptionId, ...]
    properties: Properties = NO_PROPERTIES
    kept: bool = False
    kept_ms: int = 0

    def each(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Take the run apart: flags, topic, body."""
        return unpack(self.run)


@dataclass(slots=True, eq=False)
class QueuedMessage:
    """One message of a queue. ``number`` is its place in the queue's order, never used again.

    ``size``: bytes that count against ``bus.max_queue_bytes``. ``redelivered``: a consumer had it
    before, and did not acknowledge it.
    """

    number: int
    topic: bytes
    body: bytes
    properties: Properties
    size: int
    redelivered: bool = False


def message_size(topic: bytes, body: bytes, properties: Properties) -> int:
    """Return the ``size`` of a message."""
    size = len(topic) + len(body)
    for name, value in properties.items():
        size += len(name) + len(value)
    return size


@dataclass(slots=True)
class QueueDelivery:
    """Messages of a queue for one consumer, in the queue's order, to be acknowledged by number."""

    queue: bytes
    messages: list[QueuedMessage]
