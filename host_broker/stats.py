"""Counts of one broker since its start: what it accepted, and what it did not deliver."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

SLOW = "slow"  # the reason of what a slow receiver was not sent


@dataclass(slots=True)
class Dropped:
    """What slow receivers were not sent."""

    messages: int = 0
    bytes: int = 0

    def add(self, messages: int, length: int) -> None:
        """Count so many messages of ``length`` bytes together."""
        self.messages += messages
        self.bytes += length


@dataclass(slots=True)
class Stats:
    """``discarded``: by protocol, then by the rule or limit that was broken. ``dropped``: by the
    protocol of the slow receivers, counted by the edge. Publications count when they are accepted
    from clients, wills when they are published."""

    publications: int = 0
    discarded: dict[str, Counter[str]] = field(default_factory=dict)
    dropped: dict[str, Dropped] = field(default_factory=dict)
    closes: int = 0  # connections the broker asked to close

    def discard(self, protocol: str, rule: str, count: int = 1) -> None:
        """Count what was discarded of a protocol's connection."""
        self.discarded.setdefault(protocol, Counter())[rule] += count

    def dropped_of(self, protocol: str) -> Dropped:
        """Return the count of what slow receivers of a protocol were not sent."""
        return self.dropped.setdefault(protocol, Dropped())

    def losses(self) -> Iterator[tuple[str, str, int]]:
        """Give (protocol, reason, messages) of all that was discarded or dropped."""
        for protocol, counts in self.discarded.items():
            for reason, count in counts.items():
                yield protocol, reason, count
        for protocol, dropped in self.dropped.items():
            if dropped.messages:
                yield protocol, SLOW, dropped.messages
