"""The last retained message of each path, in both topic systems, within one budget."""

from dataclasses import dataclass

from host_broker.bus.trie import NODE_BYTES, Trie
from host_broker.bus.work import Work


@dataclass(slots=True)
class _Kept:
    packet: bytes  # the stored form


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
        self._systems: tuple[Trie[_Kept], Trie[_Kept]] = (Trie(work, apart), Trie(work, apart))
        # The same, by literal topic: replacing a message, the usual case, walks no trie.
        self._exact: tuple[dict[bytes, _Kept], dict[bytes, _Kept]] = ({}, {})
        self._idle: dict[bytes, None] = {}  # feedback topics nobody wants, oldest first
        self.count = 0
        self.refused = 0  # messages that did not fit, since the start
        self._packet_bytes = 0

    @property
    def memory(self) -> int:
        """Bytes in use."""
        index = sum(system.nodes for system in self._systems)
        return self._packet_bytes + NODE_BYTES * index

    def put(
        self, topic: bytes, packet: bytes, *, feedback: bool = False, idle: bool = False
    ) -> bool:
        """Replace a topic's message; False if it does not fit (the old one is gone all the same:
        it has been displaced)."""
        kept = self._exact[feedback].get(topic)
        if kept is None:
            kept = self._exact[feedback][topic] = _Kept(packet)
            self._systems[feedback].put(topic, kept)
            self.count += 1
            self._packet_bytes += len(packet)
        else:
            self._packet_bytes += len(packet) - len(kept.packet)
            kept.packet = packet
        if feedback:
            self._idle.pop(topic, None)
        if self._too_much() and not self._make_room(topic, feedback):
            self.clear(topic, feedback=feedback)
            self.refused += 1
            return False
        if idle:
            self._idle[topic] = None
        return True

    def clear(self, topic: bytes, *, feedback: bool = False) -> bool:
        """Forget a topic's message; returns whether there was one."""
        kept = self._exact[feedback].pop(topic, None)
        if kept is None:
            return False
        self._systems[feedback].remove(topic)
        self.count -= 1
        self._packet_bytes -= len(kept.packet)
        if feedback:
            self._idle.pop(topic, None)
        return True

    def equivalent(self, topic: bytes, *, feedback: bool = False) -> list[bytes]:
        """Return the stored forms of all messages equivalent to a topic (R21)."""
        return [kept.packet for kept in self._systems[feedback].equivalent(topic)]

    def _make_room(self, topic: bytes, feedback: bool) -> bool:
        kept = self._exact[feedback][topic]
        if len(kept.packet) > self._max_bytes:
            return False  # not worth sacrificing anything for
        while self._idle and self._too_much():
            self.clear(next(iter(self._idle)), feedback=True)
        return not self._too_much()

    def _too_much(self) -> bool:
        return self.count > self._max_count or self.memory > self._max_bytes
