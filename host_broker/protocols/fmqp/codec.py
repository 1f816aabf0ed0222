"""FMQP bytes to events. Never raises on a peer's bytes.

Same bytes, any cuts, same messages: only the size of the batches depends on the cuts.
"""

from typing import Literal

from host_broker.bus.publication import HEADER, Run, is_service
from host_broker.protocols.fmqp.dialect import REFUSED, Dialect
from host_broker.protocols.fmqp.events import (
    CACHE,
    FEEDBACK,
    SUBSCRIPTION,
    WILL,
    Event,
    Publication,
    Subscription,
)
from host_broker.protocols.fmqp.topics import reason
from host_broker.wire.budget import Budget
from host_broker.wire.buffering import Unfinished
from host_broker.wire.repeats import repeats
from host_broker.wire.violation import Violation

_HEADER_LENGTH = 6
_REFUSALS = {
    "R4": "a broker sent a subscription",
    "R44": "a client published in the feedback system",
    "fmqp.strict_reserved": "a reserved flag is set",
}
_UNCOMMON = SUBSCRIPTION | FEEDBACK  # REFUSED, which is -1, has all bits
_SMALL = 16 * 1024  # bytes; a shorter unfinished packet is what a connection costs anyway


class Codec:
    """Reads one connection. ``role`` is whose bytes these are read by.

    ``max_body``: a longer body is skipped without being buffered; ``hard_body_limit``: a length
    above it is a fatal violation, after which nothing is read (bytes, A11). ``budget``: what a long
    unfinished packet takes it from; one that finds nothing left is skipped. Call ``close`` then.
    """

    def __init__(
        self,
        role: Literal["broker", "client"],
        max_body: int,
        hard_body_limit: int,
        dialect: Dialect | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._of_broker = role == "broker"
        self._max_body = max_body
        self._hard_body_limit = hard_body_limit
        dialect = dialect if dialect is not None else Dialect()
        self._topics = dialect.topics
        self._flags = dialect.flags
        self._unfinished = Unfinished()
        self._skip = 0  # bytes of a too long packet still to come
        self._offset = 0  # bytes of the connection before the data being read
        self._dead = False
        self._budget = budget
        self._taken = 0  # bytes of the budget

    def close(self) -> None:
        """Forget what is unfinished."""
        self._unfinished.drop()
        self._give_back()

    def receive_data(self, data: bytes) -> list[Event]:
        """Take one read (immutable: batches refer to it) and return what it completes."""
        if self._dead:
            return []
        if self._unfinished.is_empty and not self._skip:
            return self._read(data, 0)
        events: list[Event] = []
        position = 0
        while not self._unfinished.is_empty:
            packet, position = self._unfinished.finish(data, position)
            if packet is None:
                if len(self._unfinished) > _SMALL:
                    self._take(events)
                return events
            if self._taken:
                self._give_back()
            # Either this is one whole packet, or its header told how much more is needed.
            events += self._read(packet, 0)
        if self._skip:
            skipped = min(self._skip, len(data) - position)
            self._skip -= skipped
            self._offset += skipped
            position += skipped
        if position < len(data) and not self._dead:
            events += self._read(data, position)
        return events

    def _read(self, data: bytes, position: int) -> list[Event]:
        """Read from ``position`` on."""
        events: list[Event] = []
        self._offset -= position
        scan, learn, max_body = self._topics.table.scan, self._topics.learn, self._max_body
        size = len(data)
        first = position  # of the plain publications that are not yet among the events
        count = 0
        needed = _HEADER_LENGTH
        while True:
            position, plain = scan(data, position, max_body)
            count += plain
            if size - position < _HEADER_LENGTH:
                break
            flags, topic_length, body_length = HEADER.unpack_from(data, position)
            body = position + _HEADER_LENGTH + topic_length
            end = body + body_length
            if body_length > max_body:
                if count:
                    events.append(Run(data, first, position, count))
                events.append(self._too_long(body_length, position))
                count = 0
                if self._dead or end > size:
                    self._skip = end - size
                    position = size
                    break
                position = first = end
                continue
            if end > size:
                needed = end - position
                break
            if flags == 0 and body_length and learn(data[body - topic_length : body]):
                position = end
                count += 1
                continue
            if count:
                events.append(Run(data, first, position, count))
                count = 0
            position = first = self._single(events, data, position, body, end)
        if count:
            events.append(Run(data, first, position, count))
        self._offset += position
        if position < size:
            self._unfinished.keep(data[position:], needed)
            if size - position > _SMALL:
                self._take(events)
        return events

    def _single(self, events: list[Event], data: bytes, position: int, body: int, end: int) -> int:
        """Read the packet at ``position``, and what only repeats it; returns where that ends.

        What may be said without end at no cost to the speaker must cost us next to nothing:
        incorrect packets, and those without a body that nobody keeps.
        """
        raw = data[position + _HEADER_LENGTH : body]
        flags = self._flags[data[position]]
        topics = self._topics
        known = topics.table.is_marked(raw)
        rule = "" if known else topics.broken_rule(raw)
        if not rule and flags & _UNCOMMON:
            rule = self._refused(flags)
        if rule:
            again = repeats(data, position, end)
            last = events[-1] if events else None
            if type(last) is Violation and last.rule == rule:
                last.count += 1 + again
                last.distinct += 1
            else:
                offset = self._offset + position
                why = _REFUSALS[rule] if rule in _REFUSALS else reason(rule, raw)
                events.append(Violation(rule, why, offset, fatal=False, count=1 + again))
            return end + again * (end - position)
        topic = raw if known else topics.normal(raw)
        if flags & SUBSCRIPTION:
            events.append(Subscription(flags, topic))
            return end
        again = 0
        idle = body == end and not flags & (CACHE | WILL)
        if idle and self._of_broker and not is_service(topic):
            again = repeats(data, position, end)
        events.append(Publication(flags, topic, data[body:end], 1 + again))
        return end + again * (end - position)

    def _refused(self, flags: int) -> str:
        """Return the rule that flags break, "" if none."""
        if flags == REFUSED:
            return "fmqp.strict_reserved"
        if flags & SUBSCRIPTION:
            return "" if self._of_broker else "R4"
        return "R44" if flags & FEEDBACK and self._of_broker else ""

    def _take(self, events: list[Event]) -> None:
        """Take what is kept from the budget, or do not keep it."""
        if self._budget is None:
            return
        kept = len(self._unfinished)
        if self._budget.take(kept - self._taken):
            self._taken = kept
            return
        reason = "all clients together hold as much as bus.max_held_bytes allows"
        events.append(Violation("bus.max_held_bytes", reason, self._offset, fatal=False))
        self._skip = self._unfinished.drop()
        self._offset += kept
        self._give_back()

    def _give_back(self) -> None:
        if self._budget is not None:
            self._budget.give(self._taken)
            self._taken = 0

    def _too_long(self, length: int, position: int) -> Violation:
        fatal = self._dead = length > self._hard_body_limit
        limit, name = (
            (self._hard_body_limit, "fmqp.hard_body_limit")
            if fatal
            else (self._max_body, "bus.max_body")
        )
        reason = f"a body of {length} bytes is longer than {name} = {limit}"
        return Violation(name, reason, self._offset + position, fatal=fatal)
