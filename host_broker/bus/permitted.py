"""The routes of the topics to which one principal may publish.

The hot path asks one table per publication, whoever publishes: that a topic has a value there means
both who gets it and that it may be published. So an ACL of a thousand rules costs a publication
nothing, once its topic is known.
"""

from typing import Generic, TypeVar

from host_broker.bus.topic_table import TopicTable

R = TypeVar("R")  # a route

_MOST_REFUSED = 1024  # topics, remembered: those who try what they may not cost no search


class PermittedTopics(Generic[R]):
    """Of one principal; ``clients`` is how many of its connections use it."""

    __slots__ = ("clients", "known", "refused", "table")

    def __init__(self) -> None:
        self.table: TopicTable[R] = TopicTable()
        self.known: set[bytes] = set()  # those with a value
        self.refused: set[bytes] = set()
        self.clients = 0

    def refuse(self, topic: bytes) -> None:
        """Remember that a topic may not be published."""
        if len(self.refused) >= _MOST_REFUSED:
            self.refused.clear()
        self.refused.add(topic)

    def put(self, topic: bytes, route: R) -> None:
        """Remember that a topic may be published, and who gets it."""
        self.table.put(topic, route)
        self.known.add(topic)

    def discard(self, topic: bytes) -> None:
        """Forget who gets a topic."""
        self.table.discard(topic)
        self.known.discard(topic)

    def forget(self) -> None:
        """Forget everything; marks stay, they are no matter of permission."""
        self.table.clear()
        self.known.clear()
        self.refused.clear()
