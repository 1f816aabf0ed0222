"""The last retained message of each path, in both topic systems, within one budget."""

from dataclasses import dataclass
from itertools import islice

from host_broker.bus.ordered import OrderedKeys
from host_broker.bus.publication import HEADER, NO_PROPERTIES, Properties
from host_broker.bus.trie import NODE_BYTES, Trie
from host_broker.bus.work import Work


@dataclass(slots=True, eq=False, weakref_slot=True)
class RetainedMessage:
    """``packet`` is its stored form, encoding 1. Nobody changes it: another message replaces it.
    ``at_ms``: when it came, since 1970; 0: before the broker started."""

    topic: bytes
    packet: bytes
    properties: Properties = NO_PROPERTIES
    at_ms: int = 0

    @property
    def body(self) -> bytes:
        """What was published."""
        return self.packet[HEADER.size + len(self.topic) :]

    @property
    def size(self) -> int:
        """Bytes that count against ``bus.max_retained_bytes``, without the index."""
        size = len(self.packet)
        for name, value in self.properties.items():
            size += len(name) + len(value)
        return size


class _Entry:
    __slots__ = ("message",)

    def __init__(self, message: RetainedMessage) -> None:
        self.message = message


class Retained:
    """One message per literal topic and system (FMQP R20 to R22, A7), at most ``max_count``
    topics and ``max_bytes`` of memory: topics, bodies, and the index (a topic of 128 levels costs
    far more index than bytes).

    At the limit a new topic is refused, because evicting would let one client delete what others
    keep. The exception are feedback messages that say nobody is interested: they are made by
    subscribing and unsubscribing, so the oldest of them give way (A5).
    """

    def __init__(
        self,
        max_count: int,
        max_bytes: int,
        work: Work | None = None,
        apart: bytes | None = None,
    ) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._work = work if work is not None else Work()
        self._systems: tuple[Trie[_Entry], Trie[_Entry]] = (
            Trie(self._work, apart),
            Trie(self._work, apart),
        )
        # The same, by literal topic: replacing a message, the usual case, walks no trie.
        self._exact: tuple[dict[bytes, _Entry], dict[bytes, _Entry]] = ({}, {})
        self._ordered: OrderedKeys[bytes] = OrderedKeys()  # regular topics
        self._idle: dict[bytes, None] = {}  # feedback topics nobody wants, oldest first
        self.count = 0
        self.refused = 0  # messages that did not fit, since the start
        self._message_bytes = 0

    @property
    def memory(self) -> int:
        """Bytes in use."""
        index = sum(system.nodes for system in self._systems)
        return self._message_bytes + NODE_BYTES * index

    def put(
        self,
        topic: bytes,
        packet: bytes,
        properties: Properties = NO_PROPERTIES,
        *,
        feedback: bool = False,
        idle: bool = False,
        at_ms: int = 0,
    ) -> bool:
        """Replace a topic's message; False if it does not fit (the old one is gone all the same:
        it has been displaced)."""
        message = RetainedMessage(topic, packet, properties, at_ms)
        entry = self._exact[feedback].get(topic)
        if entry is None:
            entry = self._exact[feedback][topic] = _Entry(message)
            self._systems[feedback].put(topic, entry)
            if not feedback:
                self._ordered.add(topic)
            self.count += 1
        else:
            self._message_bytes -= entry.message.size
            entry.message = message
        self._message_bytes += message.size
        if feedback:
            self._idle.pop(topic, None)
        if self._too_much() and not self._make_room(message, feedback):
            self.clear(topic, feedback=feedback)
            self.refused += 1
            return False
        if idle:
            self._idle[topic] = None
        return True

    def clear(self, topic: bytes, *, feedback: bool = False) -> bool:
        """Forget a topic's message; returns whether there was one."""
        entry = self._exact[feedback].pop(topic, None)
        if entry is None:
            return False
        self._systems[feedback].remove(topic)
        if not feedback:
            self._ordered.discard(topic)
        self.count -= 1
        self._message_bytes -= entry.message.size
        if feedback:
            self._idle.pop(topic, None)
        return True

    def equivalent(self, topic: bytes, *, feedback: bool = False) -> list[RetainedMessage]:
        """Return all messages of topics equivalent to a topic (R21)."""
        return [entry.message for entry in self._systems[feedback].equivalent(topic)]

    def beginning_with(self, prefix: bytes) -> list[RetainedMessage]:
        """Return all messages of topics that begin with these bytes."""
        return [entry.message for entry in self._systems[False].beginning_with(prefix)]

    def get(self, topic: bytes) -> RetainedMessage | None:
        """Return the message of exactly this topic."""
        entry = self._exact[False].get(topic)
        return None if entry is None else entry.message

    def page(self, prefix: bytes, after: bytes, most: int) -> list[RetainedMessage]:
        """Return the messages of the first topics behind ``after`` that begin with ``prefix``. It
        costs a step for each, however many others there are."""
        topics = self._ordered.behind(max(prefix, after), itself=after < prefix)
        found: list[RetainedMessage] = []
        for topic in islice(topics, most):
            if not topic.startswith(prefix):
                break
            found.append(self._exact[False][topic].message)
        self._work.spend(len(found))
        return found

    def is_current(self, message: RetainedMessage, *, feedback: bool = False) -> bool:
        """Whether a message has been neither replaced nor cleared."""
        entry = self._exact[feedback].get(message.topic)
        return entry is not None and entry.message is message

    def _make_room(self, message: RetainedMessage, feedback: bool) -> bool:
        if message.size > self._max_bytes:
            return False  # not worth sacrificing anything for
        while self._idle and self._too_much():
            self.clear(next(iter(self._idle)), feedback=True)
        return not self._too_much()

    def _too_much(self) -> bool:
        return self.count > self._max_count or self.memory > self._max_bytes
