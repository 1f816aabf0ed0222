"""An ordered backlog with consumers. Pure: no clock, no file, no socket."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from host_broker.bus.delivery import QueuedMessage
from host_broker.bus.publication import Properties
from host_broker.outputs import ConnectionId

# What happens to a message for which a full queue has no room: its publisher is held until there is
# (and the message taken), it is dropped, or the oldest one that waits is.
QueuePolicy = Literal["block", "drop-newest", "drop-oldest"]
QUEUE_POLICIES: tuple[QueuePolicy, ...] = get_args(QueuePolicy)

# What a full "block" queue still takes, of publishers that were not held in time. One that leaves
# and comes back is not held by what it has published before, so there must be an end.
_MOST_OVER = 100_000  # messages
_MOST_BYTES_OVER = 64 * 1024 * 1024


@dataclass(slots=True, eq=False)
class _Consumer:
    """``in_flight``: what it was given and has not acknowledged, as it was given."""

    credit: int
    acknowledged: bool
    ready: bool = True  # its connection takes more
    paced: bool = False  # it was given as much as it may be at once
    in_flight: dict[int, QueuedMessage] = field(default_factory=dict)

    @property
    def room(self) -> int:
        """How many more messages it may be given now."""
        if not self.ready or self.paced:
            return 0
        return self.credit - len(self.in_flight) if self.acknowledged else 1 << 30


class Queue:
    """Messages in order, each for one of the consumers, who are served in turn.

    A message is in flight from its delivery until it is acknowledged. When a consumer leaves, what
    it had in flight comes back to its place, marked as redelivered, and is delivered before all
    that is younger. ``max_messages`` and ``max_bytes`` bound what waits and what is in flight, but
    for the message by which they are reached; what is in flight is never dropped, and one message
    may always wait behind it.
    """

    def __init__(
        self,
        name: bytes,
        policy: QueuePolicy,
        *,
        permanent: bool,
        max_messages: int,
        max_bytes: int,
    ) -> None:
        self.name = name
        self.policy = policy
        self.permanent = permanent
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.dropped = 0  # messages, since the start
        self._waiting: deque[QueuedMessage] = deque()
        self._consumers: dict[ConnectionId, _Consumer] = {}  # who is next comes first
        self._last_number = 0
        self._count = 0  # waiting and in flight
        self._bytes = 0

    def __len__(self) -> int:
        """How many messages wait or are in flight."""
        return self._count

    @property
    def size(self) -> int:
        """Bytes of its messages: topics, bodies, properties."""
        return self._bytes

    @property
    def waiting(self) -> int:
        """How many messages wait for a consumer."""
        return len(self._waiting)

    @property
    def consumers(self) -> Sequence[ConnectionId]:
        """The connections that take its messages."""
        return list(self._consumers)

    def has(self, connection: ConnectionId) -> bool:
        """Whether a connection is a consumer."""
        return connection in self._consumers

    @property
    def full(self) -> bool:
        """Whether there is no room for another message."""
        return self._count >= self.max_messages or self._bytes >= self.max_bytes

    @property
    def is_blocking(self) -> bool:
        """Whether publishers have to wait for it."""
        return self.policy == "block" and self.full

    def put(self, topic: bytes, body: bytes, properties: Properties) -> bool:
        """Add a message at the end; returns False if it was dropped.

        A ``block`` queue takes it even when it is full, up to a limit: its publisher is held by the
        caller, so that this happens once for each publisher.
        """
        message = QueuedMessage(self._last_number + 1, topic, body, properties)
        if self.full:
            if self.policy == "drop-newest" or (self.policy == "block" and self._is_beyond()):
                self.dropped += 1
                return False
            while self.policy == "drop-oldest" and self.full and self._waiting:
                self._forget(self._waiting.popleft())
                self.dropped += 1
        self._last_number += 1
        self._waiting.append(message)
        self._count += 1
        self._bytes += message.size
        return True

    def consume(self, connection: ConnectionId, credit: int, acknowledged: bool) -> None:
        """Add a consumer, or change how much it takes (``credit``: messages in flight)."""
        consumer = self._consumers.get(connection)
        if consumer is None:
            self._consumers[connection] = _Consumer(credit, acknowledged)
        else:
            consumer.credit = credit
            consumer.acknowledged = acknowledged

    def ready(self, connection: ConnectionId, ready: bool) -> None:
        """Say whether a consumer's connection takes more at the moment."""
        consumer = self._consumers.get(connection)
        if consumer is not None:
            consumer.ready = ready

    def proceed(self, connection: ConnectionId) -> None:
        """Give a consumer more again, which ``assign`` had given as much as it may at once."""
        consumer = self._consumers.get(connection)
        if consumer is not None:
            consumer.paced = False

    def acknowledge(self, connection: ConnectionId, numbers: Iterable[int]) -> int:
        """Forget messages that a consumer is done with; returns how many of them it had."""
        consumer = self._consumers.get(connection)
        done = 0
        if consumer is not None:
            for number in numbers:
                message = consumer.in_flight.pop(number, None)
                if message is not None:
                    self._forget(message)
                    done += 1
        return done

    def leave(self, connection: ConnectionId) -> None:
        """Remove a consumer; what it had in flight comes back in order."""
        consumer = self._consumers.pop(connection, None)
        if consumer is None or not consumer.in_flight:
            return
        self._give_back(sorted(consumer.in_flight.values(), key=_number))

    def _give_back(self, returned: list[QueuedMessage]) -> None:
        """Have messages, in order, wait again, before all that are younger."""
        if not returned:
            return
        for message in returned:
            message.redelivered = True
        if self._waiting and self._waiting[0].number < returned[-1].number:
            # Others came back before: two ordered lists become one.
            self._waiting = deque(sorted([*returned, *self._waiting], key=_number))
        else:
            self._waiting.extendleft(reversed(returned))

    def assign(self, most: int = 1 << 62) -> dict[ConnectionId, list[QueuedMessage]]:
        """Give what waits to consumers with room, one message each in turn; who gets what.

        A consumer that was given ``most`` bytes gets no more until ``proceed``.
        """
        given: dict[ConnectionId, list[QueuedMessage]] = {}
        sizes: dict[ConnectionId, int] = {}
        waiting = self._waiting
        if not waiting:
            return given
        able = {
            connection: room
            for connection, consumer in self._consumers.items()
            if (room := consumer.room) > 0
        }
        while waiting and able:
            for connection in list(able):
                if not waiting:
                    break
                message = waiting.popleft()
                given.setdefault(connection, []).append(message)
                consumer = self._consumers[connection]
                if consumer.acknowledged:
                    consumer.in_flight[message.number] = message
                else:
                    self._forget(message)
                # Whoever was served comes last the next time.
                self._consumers[connection] = self._consumers.pop(connection)
                able[connection] -= 1
                size = sizes[connection] = sizes.get(connection, 0) + message.size
                consumer.paced = size >= most
                if not able[connection] or consumer.paced:
                    del able[connection]
        return given

    def take_back(self, messages: Iterable[QueuedMessage]) -> None:
        """Have messages wait again that were assigned to a consumer which then was not there."""
        waiting = set(map(id, self._waiting))
        returned = [message for message in messages if id(message) not in waiting]
        for message in returned:
            self._count += 1
            self._bytes += message.size
        self._give_back(returned)

    def is_paced(self, connection: ConnectionId) -> bool:
        """Whether a consumer waits for ``proceed``."""
        consumer = self._consumers.get(connection)
        return consumer is not None and consumer.paced

    def _is_beyond(self) -> bool:
        return (
            self._count > self.max_messages + _MOST_OVER
            or self._bytes > self.max_bytes + _MOST_BYTES_OVER
        )

    def _forget(self, message: QueuedMessage) -> None:
        self._count -= 1
        self._bytes -= message.size


def _number(message: QueuedMessage) -> int:
    return message.number
