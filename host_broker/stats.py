"""Counts of one broker since its start: what it accepted, and what it did not deliver."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

_RULE = re.compile(r"([A-Z][0-9]{1,3}|[a-z0-9_]{1,40}\.[a-z0-9_]{1,60}): ")
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
    # The same by protocol and by the rule or limit that was broken, "other" where there is none.
    closed: dict[str, Counter[str]] = field(default_factory=dict)

    def discard(self, protocol: str, rule: str, count: int = 1) -> None:
        """Count what was discarded of a protocol's connection."""
        self.discarded.setdefault(protocol, Counter())[rule] += count

    def close(self, protocol: str, reason: str) -> None:
        """Count that a protocol's connection was asked to close; the reason may begin with a
        rule (``R6: …``) or a limit (``lightmq.ping_timeout_s: …``)."""
        self.closes += 1
        named = _RULE.match(reason)
        self.closed.setdefault(protocol, Counter())[named[1] if named else "other"] += 1

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
