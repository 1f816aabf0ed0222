"""The last retained message of each path, in both topic systems, within one budget."""

from dataclasses import dataclass

from host_broker.bus.trie import Trie


@dataclass(frozen=True, slots=True)
class Kept:
    """A retained message: its topic and its stored form."""

    topic: bytes
    packet: bytes
    size: int  # topic and body bytes


class Retained:
    """One message per literal topic and system (FMQP R20 to R22, A7), at most ``max_count``
    topics and ``max_bytes`` of topics and bodies.

    At the limit a new topic is refused, because evicting would let one client delete what others
    keep. The exception are feedback messages that say nobody is interested: they are made by
    subscribing and unsubscribing, so the oldest of them give way (A5).
    """

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._systems: tuple[Trie[Kept], Trie[Kept]] = (Trie(), Trie())
        self._idle: dict[bytes, None] = {}  # feedback topics nobody wants, oldest first
        self.count = 0
        self.bytes = 0

    def put(
        self, topic: bytes, packet: bytes, *, feedback: bool = False, idle: bool = False
    ) -> bool:
        """Replace a topic's message; False if it does not fit (the old one is gone all the same:
        it has been displaced)."""
        self.clear(topic, feedback=feedback)
        size = len(packet) - 6
        while self._idle and not self._fits(size):
            self.clear(next(iter(self._idle)), feedback=True)
        if not self._fits(size):
            return False
        self._systems[feedback].put(topic, Kept(topic, packet, size))
        self.count += 1
        self.bytes += size
        if idle:
            self._idle[topic] = None
        return True

    def clear(self, topic: bytes, *, feedback: bool = False) -> None:
        """Forget a topic's message, if there is one."""
        kept = self._systems[feedback].get(topic)
        if kept is None:
            return
        self._systems[feedback].remove(topic)
        self.count -= 1
        self.bytes -= kept.size
        if feedback:
            self._idle.pop(topic, None)

    def equivalent(self, topic: bytes, *, feedback: bool = False) -> list[bytes]:
        """Return the stored forms of all messages equivalent to a topic (R21)."""
        return [kept.packet for kept in self._systems[feedback].equivalent(topic)]

    def _fits(self, size: int) -> bool:
        return self.count < self._max_count and self.bytes + size <= self._max_bytes
