"""What a client is yet to be told of its topics: pure, bounded, the newest wins.

Nothing is sent as it comes. Updates wait until the client has taken what it was sent before
(``Pace``), and then go out together: so a slow client makes nobody wait, and what it does not take
is dropped here, the oldest first, and counted.
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import islice, takewhile
from math import ceil

from host_broker.bus.delivery import Delivery
from host_broker.bus.publication import NO_PROPERTIES, Properties
from host_broker.protocols.umq.patterns import Part
from host_broker.stats import Dropped
from host_broker.wire.budget import Budget

_OVERHEAD = 100  # bytes of one that waits, beyond topic and body
# Of one batch; then the client has to take it before there are more, and others have their turn:
# spelling so much takes some 0.3 ms.
_BATCH_BYTES = 16 * 1024
_MOST_ATTACHMENTS = 36**2  # of one message
# With ``every_s`` no more than a share of all topics is told at once, and one share in each such
# part of that time: a thousand would make the others wait, and the client, too. Shares are a little
# larger than it takes to tell all in that time, so that they spread over it by themselves.
_PARTS = 11
_LONGEST_PART_S = 0.1  # what is new is not told later than that
_LARGER = 1.1
_LEAST_SHARE = 64  # topics


@dataclass(slots=True, eq=False)
class Topic:
    """A subscription: the id that the client chose, and what it asked for; ``parts``: what that is
    to the bus.

    ``is_made``: the client was told that it is. ``is_unwanted``: it has said before that it wants
    no more of it.

    With ``every_s``, ``told`` has the topics that were told in that time and when, the earliest
    first; ``later`` the latest publication of those of them that have a new one, ``ready`` of all
    other topics that have one. ``share_at``: no share is told before that. ``timed_at``: the time
    by which it is among those that are looked at when they are due, None: it is not.
    """

    id: int
    pattern: str
    every_s: float = 0.0
    binary: bool = False
    parts: Sequence[Part] = ()
    is_open: bool = True
    is_made: bool = False
    is_unwanted: bool = False
    dropped: int = 0  # since the client was told last
    share_at: float = 0.0
    timed_at: float | None = None
    told: dict[bytes, float] = field(default_factory=dict)
    later: dict[bytes, "Waiting"] = field(default_factory=dict)
    ready: dict[bytes, "Waiting"] = field(default_factory=dict)

    @property
    def due(self) -> float | None:
        """When the next share of it is to be told, None: nothing waits."""
        if self.ready:
            return self.share_at
        if self.later:
            return max(self.share_at, next(iter(self.told.values())) + self.every_s)
        return None

    def share(self, now: float, most_told: int) -> "list[Waiting]":
        """Take the next publications that are told with ``every_s``.

        It is remembered of ``most_told`` topics that they were told. So many others meanwhile, and
        one may be told earlier than it should be.
        """
        part_s = min(self.every_s / _PARTS, _LONGEST_PART_S)
        self.share_at = now + part_s
        over = now - self.every_s
        for topic in [*takewhile(lambda each: self.told[each] <= over, self.told)]:
            self._forget(topic)
        count = len(self.told) + len(self.ready)
        most = max(_LEAST_SHARE, ceil(_LARGER * count * part_s / self.every_s))
        topics = [*islice(self.ready, most)]
        self.told.update(dict.fromkeys(topics, now))
        share = [self.ready.pop(each) for each in topics]
        for topic in [*islice(self.told, max(0, len(self.told) - most_told))]:
            self._forget(topic)
        return share

    def _forget(self, topic: bytes) -> None:
        """Forget that a topic was told: what it has is told with the next share."""
        del self.told[topic]
        waiting = self.later.pop(topic, None)
        if waiting is not None:
            self.ready[topic] = waiting


@dataclass(slots=True, eq=False)
class Waiting:
    """One publication that waits to be told."""

    subscription: Topic
    topic: bytes
    body: bytes
    at_ms: int
    size: int  # bytes that count against the limits
    properties: Properties = NO_PROPERTIES
    kept: bool = False
    replaced: int = 0


class Updates:
    """The topics of one client, by the numbers it chose, and what waits for it."""

    def __init__(self, max_updates: int, max_bytes: int, held: Budget, dropped: Dropped) -> None:
        """``dropped`` counts what is not told, of all clients; ``held`` is the memory of all."""
        self.topics: dict[int, Topic] = {}
        self._max_updates = max_updates
        self._max_bytes = max_bytes
        self._held = held
        self._dropped = dropped
        self._kept: deque[Waiting] = deque()  # is never dropped: it comes as it is taken
        self._live: deque[Waiting] = deque()
        # A heap of those where something waits for its time, by when they are due or earlier; no
        # two have the same number.
        self._timed: list[tuple[float, int, Topic]] = []
        self._last_timed = 0
        self._count = 0  # in ``live``, and what waits for its time
        self._bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait and may be dropped."""
        return self._bytes

    @property
    def tells_kept(self) -> bool:
        """Whether something that was retained is yet to be told."""
        return bool(self._kept)

    def add(self, delivery: Delivery, now: float, now_ms: int) -> None:
        """Take what is published; ``now_ms`` is the time of day."""
        at_ms = delivery.kept_ms if delivery.kept else now_ms
        topics = [self.topics[each] for each in delivery.subscriptions if each in self.topics]
        properties, kept = delivery.properties, delivery.kept
        extra = sum(len(name) + len(value) for name, value in properties.items()) + _OVERHEAD
        for _, topic, body in delivery.each():
            size = len(topic) + len(body) + extra
            for subscription in topics:
                before = None
                if subscription.every_s and not kept:
                    before = subscription.later.get(topic) or subscription.ready.get(topic)
                    if before is not None and size <= before.size:
                        # The usual case, of which there may be thousands in a turn.
                        if size < before.size:
                            self._shrink(before, size)
                        before.body, before.at_ms, before.properties = body, at_ms, properties
                        before.replaced += 1
                        continue
                waiting = Waiting(subscription, topic, body, at_ms, size, properties, kept)
                if kept:
                    self._kept.append(waiting)
                elif subscription.every_s:
                    self._replace(waiting, before)
                elif self._make_room(waiting):
                    self._live.append(waiting)

    def end(self, subscription: Topic) -> None:
        """Forget a topic with what waits of it."""
        self.topics.pop(subscription.id, None)
        self._clear(subscription)
        self._timed = [each for each in self._timed if each[2] is not subscription]
        heapify(self._timed)

    def close(self) -> None:
        """Forget all."""
        for subscription in self.topics.values():
            self._clear(subscription)
        self.topics.clear()
        self._timed.clear()
        for waiting in self._live:
            self._give_back(waiting)
        self._live.clear()
        self._kept.clear()

    def due(self, now: float) -> bool:
        """Whether there is anything to tell now."""
        if self._kept or self._live:
            return True
        deadline = self.deadline
        return deadline is not None and deadline <= now

    @property
    def deadline(self) -> float | None:
        """When what waits for its time is to be told, None: nothing does."""
        first = self._first_timed()
        return None if first is None else first[0]

    def take(self, now: float) -> list[tuple[Topic, str, list[bytes]]]:
        """Return the next updates, as many as go out at once: topic, payload of T, attachments."""
        while (first := self._first_timed()) is not None and first[0] <= now:
            self._live += first[1].share(now, self._max_updates)
        size = 0
        messages: list[tuple[Topic, list[object], list[bytes]]] = []
        while size < _BATCH_BYTES and (self._kept or self._live):
            if self._kept:
                waiting = self._kept.popleft()
            else:
                waiting = self._live.popleft()
                self._give_back(waiting)
            subscription = waiting.subscription
            if not subscription.is_open:
                continue
            last = messages[-1] if messages else None
            if last is None or last[0] is not subscription or len(last[2]) >= _MOST_ATTACHMENTS:
                last = subscription, [], []
                messages.append(last)
                if subscription.dropped:
                    last[1].append({"dropped": subscription.dropped})
                    subscription.dropped = 0
            last[1].append(told(waiting, last[2], binary=subscription.binary))
            size += waiting.size
        return [(topic, spelled(payload), binaries) for topic, payload, binaries in messages]

    def _replace(self, waiting: Waiting, before: Waiting | None) -> None:
        """Keep the latest of each topic only; ``before``: what was."""
        subscription, topic = waiting.subscription, waiting.topic
        waits = subscription.later if topic in subscription.told else subscription.ready
        if before is not None:
            waiting.replaced = before.replaced + 1
            del waits[topic]
            self._give_back(before)
        if not self._make_room(waiting):
            return
        waits[topic] = waiting
        self._time(subscription)

    def _time(self, subscription: Topic) -> None:
        """Have a subscription looked at when it is due."""
        due = subscription.due
        if due is not None and (subscription.timed_at is None or due < subscription.timed_at):
            subscription.timed_at = due
            self._last_timed += 1
            heappush(self._timed, (due, self._last_timed, subscription))

    def _first_timed(self) -> tuple[float, Topic] | None:
        """Return when the first is due of those where something waits for its time, and which.

        What is due later than it was before, or not at all, is noticed when it is found here.
        """
        while self._timed:
            timed_at, _, first = self._timed[0]
            if timed_at == first.timed_at:
                if timed_at == first.due:
                    return timed_at, first
                first.timed_at = None
            heappop(self._timed)
            self._time(first)
        return None

    def _clear(self, subscription: Topic) -> None:
        """End a subscription with what waits for its time."""
        subscription.is_open = False
        for waits in (subscription.later, subscription.ready):
            for waiting in waits.values():
                self._give_back(waiting)
            waits.clear()

    def _make_room(self, waiting: Waiting) -> bool:
        """Count one more that waits, in the place of the oldest if there are too many.

        False: even then there is no memory for it, and it is dropped.
        """
        size = waiting.size
        while self._count and (
            self._count >= self._max_updates or self._bytes + size > self._max_bytes
        ):
            self._drop_oldest()
        while not self._held.take(size):
            if not self._count:
                self._drop(waiting)
                return False
            self._drop_oldest()
        self._count += 1
        self._bytes += size
        return True

    def _drop_oldest(self) -> None:
        if self._live:
            oldest = self._live.popleft()
        else:
            first = self._first_timed()
            assert first is not None  # noqa: S101 - else nothing is counted
            waits = first[1].ready or first[1].later
            oldest = waits.pop(next(iter(waits)))
        self._give_back(oldest)
        if oldest.subscription.is_open:
            self._drop(oldest)

    def _drop(self, waiting: Waiting) -> None:
        """Count what will not be told, with what it has replaced."""
        count = 1 + waiting.replaced
        waiting.subscription.dropped += count
        self._dropped.add(count, len(waiting.topic) + len(waiting.body))

    def _shrink(self, waiting: Waiting, size: int) -> None:
        """Count something that waits as no larger than this."""
        less = waiting.size - size
        if less:
            waiting.size = size
            self._bytes -= less
            self._held.give(less)

    def _give_back(self, waiting: Waiting) -> None:
        self._count -= 1
        self._bytes -= waiting.size
        self._held.give(waiting.size)


def told(waiting: Waiting, attachments: list[bytes], *, binary: bool = False) -> dict[str, object]:
    """Return a publication as JSON has it; a body that is no text becomes an attachment."""
    member: dict[str, object] = {
        "topic": waiting.topic.decode(errors="replace"),
        "at": waiting.at_ms or None,
    }
    text = None if binary else as_text(waiting.body)
    if text is None:
        member["attachment"] = True
        attachments.append(waiting.body)
    else:
        member["text"] = text
    if waiting.kept:
        member["retained"] = True
    if waiting.replaced:
        member["replaced"] = waiting.replaced
    if waiting.properties:
        member["properties"] = texts(waiting.properties)
    return member


def as_text(body: bytes) -> str | None:
    """Return a body as text, None if it is none."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def texts(properties: Mapping[str, bytes]) -> dict[str, str]:
    """Return those properties that are text."""
    found = {}
    for name, value in properties.items():
        text = as_text(value)
        if text is not None:
            found[name] = text
    return found


def spelled(value: object) -> str:
    """Return JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
