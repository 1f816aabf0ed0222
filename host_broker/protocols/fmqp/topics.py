"""Which bytes are topics (R5 to R9), remembered for those that need no change."""

from typing import Any

from host_broker.bus.publication import is_service
from host_broker.bus.topic_table import TopicTable

# 255 bytes each at most: about 6 MiB per broker in the worst case.
MAX_KNOWN = 16_384
MAX_KNOWN_OF_ONE = 4_096  # in the table of one principal, of which there may be many

_REASONS = {
    "R5": "the topic {!r} is not UTF-8",
    "R7": "the topic {!r} contains NUL",
    "R9": "the topic {!r} has no level",
    "fmqp.ascii_topics": "the topic {!r} is not ASCII",
}


class TopicFault(ValueError):
    """Bytes that are no topic; ``rule`` is the requirement they break."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule = rule


def broken_rule(raw: bytes) -> str:
    """Return the requirement that keeps bytes from being a topic, "" if none does.

    Not an exception: a peer can have this asked 40 000 times with one read.
    """
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError:
            return "R5"
    if b"\0" in raw:
        return "R7"
    return "" if raw.strip(b"/") else "R9"


def reason(rule: str, raw: bytes) -> str:
    """Say what is wrong with bytes that break a rule."""
    return _REASONS[rule].format(raw)


def normal(raw: bytes) -> bytes:
    """Return a topic without the slashes at its ends (R8); TopicFault if it is none."""
    if rule := broken_rule(raw):
        raise TopicFault(rule, reason(rule, raw))
    return raw.strip(b"/")


class PlainTopics:
    """Topics seen that are normal as sent and not the broker's: most of all traffic.

    They are marked in ``table``, the bus's; by default in one of their own.
    ``collapse_inner``: levels without a letter do not count, ``a//b`` is ``a/b`` (A8).
    ``ascii_only``: other topics are none (A10). ``most``: so many are remembered.
    """

    def __init__(
        self,
        table: TopicTable[Any] | None = None,
        *,
        collapse_inner: bool = False,
        ascii_only: bool = False,
        most: int = MAX_KNOWN,
    ) -> None:
        self._most = most
        self.table: TopicTable[Any] = TopicTable() if table is None else table
        self._collapse_inner = collapse_inner
        self._ascii_only = ascii_only

    def broken_rule(self, raw: bytes) -> str:
        """Return the rule that keeps bytes from being a topic, "" if none does."""
        if self._ascii_only and not raw.isascii():
            return "fmqp.ascii_topics"
        return broken_rule(raw)

    def normal(self, raw: bytes) -> bytes:
        """Return a topic that breaks no rule in its one spelling."""
        topic = raw.strip(b"/")
        if self._collapse_inner:
            while b"//" in topic:  # halves the longest gap, so at most 7 times
                topic = topic.replace(b"//", b"/")
        return topic

    def learn(self, raw: bytes) -> bool:
        """Remember a raw topic if it is plain; returns whether it is."""
        plain = not self.broken_rule(raw) and self.normal(raw) == raw and not is_service(raw)
        if plain:
            if self.table.marked >= self._most:
                self.table.unmark_all()
            self.table.mark(raw)
        return plain
