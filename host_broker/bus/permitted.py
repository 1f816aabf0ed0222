"""The routes of the topics to which one principal may publish.

The hot path asks one table per publication, whoever publishes: that a topic has a value there means
both who gets it and that it may be published. So an ACL of a thousand rules costs a publication
nothing, once its topic is known.
"""

from collections.abc import Collection
from typing import Generic, TypeVar

from host_broker.bus.topic_table import TopicTable

R = TypeVar("R")  # a route

_MOST_REFUSED = 1024  # topics, remembered: those who try what they may not cost no search


class PermittedTopics(Generic[R]):
    """Of one principal; ``clients`` is how many of its connections use it.

    ``known`` are the topics with their routes. Most boards publish one after the other; for who has
    many in a read there is the same as a ``table``, which takes more memory.
    """

    __slots__ = ("_refused", "_table", "clients", "known")

    def __init__(self) -> None:
        self.known: dict[bytes, R] = {}
        self.clients = 0
        self._refused: set[bytes] | None = None
        self._table: TopicTable[R] | None = None

    @property
    def table(self) -> TopicTable[R]:
        """The same as ``known``, for the hot path's loops; from now on it is kept."""
        if self._table is None:
            self._table = TopicTable()
            for topic, route in self.known.items():
                self._table.put(topic, route)
        return self._table

    @property
    def refused(self) -> Collection[bytes]:
        """Topics that may not be published."""
        return self._refused or ()

    def refuse(self, topic: bytes) -> None:
        """Remember that a topic may not be published."""
        if self._refused is None or len(self._refused) >= _MOST_REFUSED:
            self._refused = set()
        self._refused.add(topic)

    def put(self, topic: bytes, route: R) -> None:
        """Remember that a topic may be published, and who gets it."""
        self.known[topic] = route
        if self._table is not None:
            self._table.put(topic, route)

    def discard(self, topic: bytes) -> None:
        """Forget who gets a topic."""
        self.known.pop(topic, None)
        if self._table is not None:
            self._table.discard(topic)

    def forget_routes(self) -> None:
        """Forget who gets what; marks stay, they are no matter of permission."""
        self.known.clear()
        if self._table is not None:
            self._table.clear()

    def forget(self) -> None:
        """Forget also what was refused."""
        self.forget_routes()
        self._refused = None
