"""An ordered backlog with consumers. Pure: no clock, no file, no socket.

A durable queue says what of it is to be stored and forgotten; ``spell_place`` is under which key.
"""

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, islice
from struct import Struct
from typing import Any, Literal, get_args

from host_broker.bus.delivery import Filter, QueuedMessage, message_size
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
# So many messages beyond the last one are marked in advance as what consumers may have had, so that
# this need not be stored for each.
_MARKED_AHEAD = 10_000
# So far are numbers of a queue that has a taker ahead of what is stored after each start.
_AHEAD_OF_TAKERS = 1 << 32
_NUMBER = Struct(">Q")
# How the keys of what is no queue's begin, which a protocol wants remembered: no queue has such a
# name. Their number is not 0, which comes first of all.
_REMEMBERED = b"$/remembered/"
_REMEMBERED_NUMBER = 1
_NOBODY: ConnectionId = 0
# Of what was taken from the middle, so much may be there still; more is cleared away.
_MOST_TAKEN = 64


def spell_place(queue: bytes, number: int) -> bytes:
    """Return the key of a message of a durable queue; number 0 is the queue itself."""
    return queue + _NUMBER.pack(number)


def spell_attributes(queue: "Queue") -> bytes:
    """Return what a durable queue is opened with when it comes back: its policy and the limits that
    it was opened with, as ``OpenQueue`` says them."""
    return f"{queue.policy} {queue.wanted_messages} {queue.wanted_bytes}".encode()


def read_attributes(text: bytes) -> dict[str, Any]:
    """Return the arguments to open a queue with. ValueError if they are none."""
    policy, messages, size = text.decode().split(" ")
    if policy not in QUEUE_POLICIES:
        raise ValueError(f"{policy!r} is no policy of a queue")
    return {"policy": policy, "max_messages": int(messages), "max_bytes": int(size)}


def spell_state(queue: "Queue") -> bytes:
    """Return what else of a durable queue is stored: up to which number messages may have been
    given; with checkpoints also up to which all are done with, and each as number and name; with a
    taker its name. One that has more than a number is kept when it is empty."""
    if not queue.checkpoints and not queue.taker:
        return b"%d" % queue.given
    words = [b"%d" % queue.given, b"%d" % (queue.done if queue.checkpoints else 0)]
    words += [
        b"%d=%s" % (number, name.hex().encode()) for name, number in queue.checkpoints.items()
    ]
    if queue.taker:
        words.append(b"@" + queue.taker.hex().encode())
    return b" ".join(words)


def read_state(text: bytes) -> tuple[int, int, dict[bytes, int], bytes]:
    """Return given, done, checkpoints, and the taker. ValueError if it is none."""
    given, *more = text.split(b" ")
    checkpoints: dict[bytes, int] = {}
    taker = b""
    if not more:
        return int(given), 0, checkpoints, taker
    for word in more[1:]:
        if word.startswith(b"@"):
            taker = bytes.fromhex(word[1:].decode())
            continue
        number, _, name = word.rpartition(b"=")
        checkpoints[bytes.fromhex(name.decode())] = int(number)
    return int(given), int(more[0]), checkpoints, taker


def read_place(key: bytes) -> tuple[bytes, int]:
    """Return the queue and the number of a key. ValueError if it is none."""
    if len(key) <= _NUMBER.size:
        raise ValueError(f"{key!r} is no place in a queue")
    return key[: -_NUMBER.size], _NUMBER.unpack_from(key, len(key) - _NUMBER.size)[0]


def spell_remembered(name: bytes) -> bytes:
    """Return the key, among those of queues, of what is remembered under a name."""
    return spell_place(_REMEMBERED + name, _REMEMBERED_NUMBER)


def read_remembered(queue: bytes) -> bytes | None:
    """Return the name, if what ``read_place`` calls a queue is something remembered, else None."""
    return queue.removeprefix(_REMEMBERED) if queue.startswith(_REMEMBERED) else None


def is_message(key: bytes) -> bool:
    """Whether a key is that of a message, which is never used again."""
    name, number = read_place(key)
    return number > 0 and read_remembered(name) is None


@dataclass(slots=True, eq=False)
class _Consumer:
    """``in_flight``: what it was given and has not acknowledged, as it was given.

    ``looked_at``: its filter has been asked about all messages up to this number. ``again``: those
    of them, a heap, that it wants and that have come back since.
    """

    credit: int
    acknowledged: bool
    ready: bool = True  # its connection takes more
    paced: bool = False  # it was given as much as it may be at once
    in_flight: dict[int, QueuedMessage] = field(default_factory=dict)
    # Of a durable queue, without acks: numbers of what it was given and not yet sent, its bytes.
    on_its_way: set[int] = field(default_factory=set)
    on_its_way_bytes: int = 0
    filter: Filter | None = None
    looked_at: int = 0
    again: list[int] = field(default_factory=list)

    @property
    def takes_anything(self) -> bool:
        """Whether what it is given is no matter of credit or of a filter."""
        return self.filter is None and not self.acknowledged

    @property
    def room(self) -> int:
        """How many more messages it may be given now."""
        if not self.ready or self.paced:
            return 0
        return self.credit - len(self.in_flight) if self.acknowledged else 1 << 30


class Queue:
    """Messages in order, each for one of the consumers, who are served in turn.

    A consumer with a filter is given what the filter wants; what no consumer wants waits for one
    that does. A filter is asked once about each message, and again about one that comes back.

    A message is in flight from its delivery until it is acknowledged. When a consumer leaves, what
    it had in flight comes back to its place, marked as redelivered, and is delivered before all
    that is younger. ``max_messages`` and ``max_bytes`` bound what waits and what is in flight, but
    for the message by which they are reached; what is in flight is never dropped, and one message
    may always wait behind it.

    A *checkpoint* is a name for a place: a number up to which all was done with when it was set.
    What is done with and behind a checkpoint is kept, so that it can wait once more (``go_back``):
    as much as may wait, then the oldest of it goes, and the checkpoints before it with it.

    A *taker* is a consumer that keeps what it is given, and knows by the numbers what it has
    (``begin_taking``): the numbers of a queue that has had one never begin again.

    ``durable``: its messages are stored elsewhere, too. Whoever does that asks for the numbers of
    those that are done with (``take_forgotten``), and for ``given``: those up to this number may
    have been given to a consumer, and are marked as redelivered when they are restored. What a
    consumer without acks is given is done with when it is sent (``sent``, ``proceed``), or when the
    consumer leaves.
    """

    def __init__(
        self,
        name: bytes,
        policy: QueuePolicy,
        *,
        permanent: bool,
        max_messages: int,
        max_bytes: int,
        durable: bool = False,
        after: int = 0,
    ) -> None:
        """``after``: the number before that of its first message."""
        self.name = name
        self.policy = policy
        self.permanent = permanent
        self.durable = durable
        self.wanted_messages = self.wanted_bytes = 0  # as it was opened
        self.is_stored = False  # a durable queue itself is
        self.given = 0
        self._forgotten: list[int] = []
        self._to_be_sent: set[int] = set()  # done with, but on their way to a consumer
        # On their way to consumers that have left: these may be sent yet, those of nobody will not.
        self._unsent: dict[ConnectionId, set[int]] = {}
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.dropped = 0  # messages, since the start
        self._waiting: deque[QueuedMessage] = deque()  # by number
        self._taken: set[int] = set()  # numbers of those that are in it still, but do not wait
        self._consumers: dict[ConnectionId, _Consumer] = {}  # who is next comes first
        self._last_number = after
        self._count = 0  # waiting and in flight
        self._bytes = 0
        self.taker = b""  # the last one; b"": there was none
        self.checkpoints: dict[bytes, int] = {}
        self._kept: deque[QueuedMessage] = deque()  # done with, for checkpoints
        self._kept_bytes = 0
        self._done_before = 0  # up to this number, of what is restored

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
        return len(self._waiting) - len(self._taken)

    @property
    def last_number(self) -> int:
        """The number of the message that was put last."""
        return self._last_number

    @property
    def numbers(self) -> list[int]:
        """The numbers of all messages: those that wait, are in flight, on their way, or kept."""
        found = [each.number for each in self._waiting if each.number not in self._taken]
        found += [each.number for each in self._kept]
        for consumer in self._consumers.values():
            found += consumer.in_flight
            found += consumer.on_its_way
        for on_its_way in self._unsent.values():
            found += on_its_way
        return found

    @property
    def consumers(self) -> Sequence[ConnectionId]:
        """The connections that take its messages."""
        return list(self._consumers)

    @property
    def receivers(self) -> Sequence[ConnectionId]:
        """Its consumers, and those that have left and may not have been sent all yet."""
        return [*self._consumers, *self._unsent]

    def has(self, connection: ConnectionId) -> bool:
        """Whether a connection is a consumer."""
        return connection in self._consumers

    def owing(self) -> Iterator[ConnectionId]:
        """Yield the consumers that have yet to acknowledge something."""
        for connection, consumer in self._consumers.items():
            if consumer.in_flight:
                yield connection

    def owes(self, connection: ConnectionId) -> bool:
        """Whether a consumer is one of those."""
        consumer = self._consumers.get(connection)
        return consumer is not None and bool(consumer.in_flight)

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
        size = message_size(topic, body, properties)
        message = QueuedMessage(self._last_number + 1, topic, body, properties, size)
        if self.full:
            if self.policy == "drop-newest" or (self.policy == "block" and self._is_beyond()):
                self.dropped += 1
                return False
            while self.policy == "drop-oldest" and self.full and self.waiting:
                self._forget(self._oldest())
                self.dropped += 1
        self._last_number += 1
        self._waiting.append(message)
        self._count += 1
        self._bytes += message.size
        return True

    def fitting(self, sizes: Sequence[int], start: int = 0) -> int:
        """Return how many messages there is room for, of these sizes from ``start`` on: one by
        which a limit is reached fits."""
        end = min(len(sizes), start + self.max_messages - self._count)
        left = self.max_bytes - self._bytes
        if end - start == len(sizes) and sum(sizes) <= left:
            return end
        place = start
        while place < end and left > 0:
            left -= sizes[place]
            place += 1
        return place - start

    def put_many(
        self,
        topics: Sequence[bytes],
        bodies: Sequence[bytes],
        properties: Sequence[Properties],
        sizes: Sequence[int],
    ) -> Sequence[QueuedMessage | None]:
        """Add messages at the end, as ``put`` does; returns each, None for one that was dropped.

        ``sizes``: of each (``message_size``).
        """
        messages = list(
            map(QueuedMessage, count(self._last_number + 1), topics, bodies, properties, sizes)
        )
        if self.fitting(sizes) < len(messages):
            return self._put_what_fits(messages)
        self._last_number += len(messages)
        self._waiting.extend(messages)
        self._count += len(messages)
        self._bytes += sum(sizes)
        return messages

    def _put_what_fits(self, messages: Iterable[QueuedMessage]) -> list[QueuedMessage | None]:
        return [
            self._waiting[-1] if self.put(each.topic, each.body, each.properties) else None
            for each in messages
        ]

    def restore(self, number: int, topic: bytes, body: bytes, properties: Properties) -> None:
        """Have a stored message back, whatever the limits say; call it in the order of numbers,
        with ``given`` as it was stored. ValueError if it is not in that order."""
        if self._waiting and number <= self._waiting[-1].number:
            raise ValueError(f"message {number} of {self.name!r} is out of order")
        size = message_size(topic, body, properties)
        message = QueuedMessage(number, topic, body, properties, size, number <= self.given)
        self._last_number = max(number, self.given, self._done_before)
        if number <= self._done_before:
            self._kept.append(message)
            self._kept_bytes += message.size
            return
        self._waiting.append(message)
        self._count += 1
        self._bytes += message.size

    # ---- checkpoints ----

    @property
    def kept(self) -> int:
        """How many messages are kept for checkpoints."""
        return len(self._kept)

    @property
    def done(self) -> int:
        """The number up to which nothing waits, is in flight, or on its way."""
        taken = self._taken
        waiting = (each.number for each in self._waiting if each.number not in taken)
        first = list(islice(waiting, 1))
        for consumer in self._consumers.values():
            first += consumer.in_flight
            first += [min(consumer.on_its_way)] if consumer.on_its_way else []
        for on_its_way in self._unsent.values():
            first += on_its_way
        return min(first, default=self._last_number + 1) - 1

    def set_checkpoint(self, name: bytes, number: int) -> bool:
        """Name the place behind a message; False if not all that came after it is there still."""
        # All behind the first checkpoint is there; many numbers were never used (``given``).
        if not min([self.done, *self.checkpoints.values()]) <= number <= self._last_number:
            return False
        self.checkpoints[name] = number
        self._release_kept()
        return True

    def forget_checkpoint(self, name: bytes) -> bool:
        """Forget a name, and what is kept for nothing else; False if there is none."""
        if self.checkpoints.pop(name, None) is None:
            return False
        self._release_kept()
        return True

    def go_back(self, name: bytes) -> bool:
        """Have all that was done with since a checkpoint wait again; False if there is none."""
        number = self.checkpoints.get(name)
        if number is None:
            return False
        again = [each for each in self._kept if each.number > number]
        self._kept = deque(each for each in self._kept if each.number <= number)
        for message in again:
            self._count += 1
            self._bytes += message.size
            self._kept_bytes -= message.size
        self._give_back(again)
        return True

    def restore_state(self, text: bytes) -> None:
        """Take back what ``spell_state`` gave, before the messages. ValueError if it is none."""
        self.given, self._done_before, self.checkpoints, self.taker = read_state(text)
        if self.taker:
            # What it was given under numbers that are not stored, as before a loss of power, must
            # not have the number of anything new: that would count as kept.
            self.given += _AHEAD_OF_TAKERS
        self._last_number = max(self.given, self._done_before)

    def _keep(self, messages: Iterable[QueuedMessage]) -> None:
        least = min(self.checkpoints.values())
        for message in messages:
            if message.number <= least:
                self._forgotten.append(message.number)
                continue
            if self._kept and message.number < self._kept[-1].number:  # acknowledged out of order
                insort(self._kept, message, key=_number)
            else:
                self._kept.append(message)
            self._kept_bytes += message.size
        while self._kept and (
            len(self._kept) > self.max_messages or self._kept_bytes > self.max_bytes
        ):
            lost = self._kept[0].number
            for name, number in list(self.checkpoints.items()):
                if number < lost:
                    del self.checkpoints[name]
            self._release_kept()

    def _release_kept(self) -> None:
        """Forget what is kept for no checkpoint."""
        least = min(self.checkpoints.values(), default=self._last_number)
        released = [each for each in self._kept if each.number <= least]
        if released:
            self._kept = deque(each for each in self._kept if each.number > least)
            self._kept_bytes -= sum(each.size for each in released)
            self._forgotten += [each.number for each in released]

    def take_forgotten(self) -> list[int]:
        """Return the numbers of what is done with since the last time, of a durable queue."""
        forgotten, self._forgotten = self._forgotten, []
        ways = [consumer.on_its_way for consumer in self._consumers.values()]
        for on_its_way in (*ways, *self._unsent.values()):
            if on_its_way and forgotten:
                self._to_be_sent.update([each for each in forgotten if each in on_its_way])
                forgotten = [each for each in forgotten if each not in on_its_way]
        return forgotten

    def consume(
        self,
        connection: ConnectionId,
        credit: int,
        acknowledged: bool,
        filter: Filter | None = None,
    ) -> None:
        """Add a consumer, or change what it takes (``credit``: messages in flight)."""
        consumer = self._consumers.get(connection)
        if consumer is None:
            self._consumers[connection] = _Consumer(credit, acknowledged, filter=filter)
        else:
            consumer.credit = credit
            consumer.acknowledged = acknowledged
            consumer.filter = filter
            consumer.looked_at = 0
            consumer.again.clear()

    def may_take(self, taker: bytes, number: int) -> bool:
        """Whether a taker's number is one of this queue: it was given under the last taker's name,
        and is not yet to come. Else it has lost what it had, or the queue is a new one."""
        return not number or (self.taker == taker and number <= self._last_number)

    def begin_taking(self, taker: bytes, number: int) -> None:
        """A taker, which may, is about to consume, and has kept all up to a number: that is done
        with."""
        self.taker = taker
        self._clear_taken()
        while self._waiting and self._waiting[0].number <= number:
            self._forget(self._waiting.popleft())

    def ready(self, connection: ConnectionId, ready: bool) -> None:
        """Say whether a consumer's connection takes more at the moment."""
        consumer = self._consumers.get(connection)
        if consumer is not None:
            consumer.ready = ready

    def sent(self, connection: ConnectionId) -> None:
        """Note that a consumer, also one that has left, was sent all that it was given."""
        consumer = self._consumers.get(connection)
        if consumer is not None:
            self._end_way(consumer)
        if self._unsent:
            self._are_sent(self._unsent.pop(connection, set()))

    def _end_way(self, consumer: _Consumer) -> None:
        on_its_way, consumer.on_its_way = consumer.on_its_way, set()
        consumer.on_its_way_bytes = 0
        self._are_sent(on_its_way)

    def _are_sent(self, numbers: set[int]) -> None:
        sent = numbers & self._to_be_sent
        self._to_be_sent -= sent
        self._forgotten += sent

    def proceed(self, connection: ConnectionId) -> None:
        """Give a consumer more again, which ``assign`` had given as much as it may at once: all of
        that is sent."""
        consumer = self._consumers.get(connection)
        if consumer is not None:
            consumer.paced = False
            self.sent(connection)

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

    def leave(self, connection: ConnectionId, *, is_sent: bool | None = True) -> None:
        """Remove a consumer; what it had in flight comes back in order.

        Not ``is_sent``: what is on its way to it will not be sent, and is never done with; so it
        comes again when this durable queue is restored. None: so it is unless ``sent`` says more.
        """
        consumer = self._consumers.pop(connection, None)
        if consumer is None:
            return
        if is_sent:
            self._end_way(consumer)
        elif consumer.on_its_way:
            whose = connection if is_sent is None else _NOBODY
            self._unsent.setdefault(whose, set()).update(consumer.on_its_way)
        self._give_back(sorted(consumer.in_flight.values(), key=_number))

    def _give_back(self, returned: list[QueuedMessage]) -> None:
        """Have messages, in order, wait again, before all that are younger."""
        if not returned:
            return
        self._clear_taken()
        for message in returned:
            message.redelivered = True
            for consumer in self._consumers.values():
                if message.number <= consumer.looked_at and _wants(consumer, message):
                    heappush(consumer.again, message.number)
        if self._waiting and self._waiting[0].number < returned[-1].number:
            # Others came back before: two ordered lists become one.
            self._waiting = deque(sorted([*returned, *self._waiting], key=_number))
        else:
            self._waiting.extendleft(reversed(returned))

    def assign(self, most: int = 1 << 62) -> dict[ConnectionId, list[QueuedMessage]]:
        """Give what waits to consumers with room, one message each in turn; who gets what.

        A consumer that was given ``most`` bytes gets no more until ``proceed``; of a durable queue
        one that does not acknowledge, when so much of all it was given is not sent yet.
        """
        given: dict[ConnectionId, list[QueuedMessage]] = {}
        sizes: dict[ConnectionId, int] = {}
        if not self.waiting:
            return given
        if not self._taken and all(each.takes_anything for each in self._consumers.values()):
            return self._deal(most)
        able = {
            connection: room
            for connection, consumer in self._consumers.items()
            if (room := consumer.room) > 0
        }
        while able:
            for connection in list(able):
                consumer = self._consumers[connection]
                message = self._next_of(consumer)
                if message is None:
                    del able[connection]
                    continue
                given.setdefault(connection, []).append(message)
                if self.durable and message.number > self.given:
                    self.given = self._last_number + _MARKED_AHEAD
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
        for connection, messages in given.items():
            self._note_way(self._consumers[connection], messages, sizes[connection], most)
        return given

    def _deal(self, most: int) -> dict[ConnectionId, list[QueuedMessage]]:
        """The same for consumers that take whatever comes, and are done with it: one message each
        in turn, many of them in one step."""
        consumers = self._consumers
        able = [connection for connection, each in consumers.items() if each.room > 0]
        if not able:
            return {}
        waiting = self._waiting
        left = most * len(able)
        if self._bytes < left:  # all of it, which is usual
            batch = list(waiting)
            waiting.clear()
        else:
            batch = []
            while waiting and left > 0:
                message = waiting.popleft()
                left -= message.size
                batch.append(message)
        if self.durable:
            if batch[-1].number > self.given:
                self.given = self._last_number + _MARKED_AHEAD
            if self.checkpoints:
                self._keep(batch)
            else:
                self._forgotten += [message.number for message in batch]
        self._count -= len(batch)
        given: dict[ConnectionId, list[QueuedMessage]] = {}
        total = 0
        for place, connection in enumerate(able[: len(batch)]):
            share = batch if len(able) == 1 else batch[place :: len(able)]
            size = sum([message.size for message in share])
            total += size
            given[connection] = share
            consumer = consumers[connection]
            consumer.paced = size >= most
            self._note_way(consumer, share, size, most)
        self._bytes -= total
        # Whoever was served last comes last the next time.
        served = len(batch) % len(able)
        for connection in able[served:] + able[:served] if len(batch) > served else able[:served]:
            consumers[connection] = consumers.pop(connection)
        return given

    def _note_way(
        self, consumer: _Consumer, given: Iterable[QueuedMessage], size: int, most: int
    ) -> None:
        """Note what a kill would lose, if it were done with now."""
        if self.durable and not consumer.acknowledged:
            consumer.on_its_way.update([each.number for each in given])
            consumer.on_its_way_bytes += size
            if consumer.on_its_way_bytes >= most:
                consumer.paced = True

    def _next_of(self, consumer: _Consumer) -> QueuedMessage | None:
        """Take the next message that a consumer wants; None if there is none."""
        if consumer.filter is None:
            return self._oldest() if self.waiting else None
        while consumer.again:
            message = self._take(heappop(consumer.again))
            if message is not None:
                return message
        waiting, taken = self._waiting, self._taken
        place = bisect_right(waiting, consumer.looked_at, key=_number)
        while place < len(waiting):
            message = waiting[place]
            consumer.looked_at = message.number
            if message.number not in taken and _wants(consumer, message):
                return self._take(message.number, place)
            place += 1
        return None

    def _oldest(self) -> QueuedMessage:
        """Take the oldest message that waits; there must be one."""
        while True:
            message = self._waiting.popleft()
            if not self._taken or message.number not in self._taken:
                return message
            self._taken.discard(message.number)

    def _take(self, number: int, place: int | None = None) -> QueuedMessage | None:
        """Take the message of a number; None if it does not wait."""
        waiting = self._waiting
        if place is None:
            place = bisect_right(waiting, number, key=_number) - 1
        if place < 0 or waiting[place].number != number or number in self._taken:
            return None
        message = waiting[place]
        if place == 0:
            waiting.popleft()
            return message
        self._taken.add(number)
        if len(self._taken) > max(_MOST_TAKEN, len(waiting) // 2):
            self._clear_taken()
        return message

    def _clear_taken(self) -> None:
        if self._taken:
            self._waiting = deque(each for each in self._waiting if each.number not in self._taken)
            self._taken.clear()

    def take_back(self, messages: Iterable[QueuedMessage]) -> None:
        """Have messages wait again that were assigned to a consumer which then was not there."""
        self._clear_taken()
        waiting = set(map(id, self._waiting))
        returned = [message for message in messages if id(message) not in waiting]
        for message in returned:
            self._count += 1
            self._bytes += message.size
        if self.durable:
            numbers = {message.number for message in returned}
            self._forgotten = [each for each in self._forgotten if each not in numbers]
            self._to_be_sent -= numbers
            for consumer in self._consumers.values():
                consumer.on_its_way -= numbers
            for on_its_way in self._unsent.values():
                on_its_way -= numbers
            kept = [each for each in self._kept if each.number not in numbers]
            if len(kept) < len(self._kept):
                self._kept = deque(kept)
                self._kept_bytes = sum(each.size for each in kept)
        self._give_back(returned)

    def is_paced(self, connection: ConnectionId) -> bool:
        """Whether a consumer waits for ``proceed``."""
        consumer = self._consumers.get(connection)
        return consumer is not None and consumer.paced

    def waits_until_sent(self, connection: ConnectionId) -> bool:
        """Whether something of it is done with when a consumer was sent all that it was given."""
        consumer = self._consumers.get(connection)
        return consumer is not None and bool(consumer.on_its_way)

    def _is_beyond(self) -> bool:
        return (
            self._count > self.max_messages + _MOST_OVER
            or self._bytes > self.max_bytes + _MOST_BYTES_OVER
        )

    def _forget(self, message: QueuedMessage) -> None:
        self._count -= 1
        self._bytes -= message.size
        if self.checkpoints:
            self._keep([message])
        elif self.durable:
            self._forgotten.append(message.number)


def _wants(consumer: _Consumer, message: QueuedMessage) -> bool:
    wanted = consumer.filter
    return wanted is not None and wanted(message.topic, message.properties, message.body)


def _number(message: QueuedMessage) -> int:
    return message.number
