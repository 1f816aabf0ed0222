"""The routes of the topics to which one principal may publish.

The hot path asks one table per publication, whoever publishes: that a topic has a value there means
both who gets it and that it may be published. So an ACL of a thousand rules costs a publication
nothing, once its topic is known.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

from host_broker.bus.topic_table import TopicTable

K = TypeVar("K", bound=Hashable)  # whose
R = TypeVar("R")  # a route

# Topics in the tables of those who have left, all together; some 800 bytes each at most.
MAX_IDLE_TOPICS = 16_384
# Topics that were judged, of all principals together, since marks were last forgotten: a protocol
# marks what its client publishes, and clients may have tens of thousands of names.
MAX_JUDGED = 65_536
_MOST_REFUSED = 1024  # topics, remembered: those who try what they may not cost no search
_MOST_ALLOWED = 4096  # topics of which it is not known who gets them
_EMPTY_TABLE = 16  # topics that take as much memory


class PermittedTopics(Generic[R]):
    """Of one principal; ``clients`` is how many of its connections use it.

    ``known`` are the topics with their routes. Most boards publish one after the other; for who has
    many in a read there is the same as a ``table``, which takes more memory. When somebody
    subscribes, routes are forgotten, and that the topic may be published is not.
    """

    __slots__ = ("_allowed", "_refused", "_table", "clients", "known")

    def __init__(self) -> None:
        self.known: dict[bytes, R] = {}
        self.clients = 0
        self._allowed: set[bytes] | None = None
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
    def size(self) -> int:
        """How many topics take as much memory; 0: nothing is known."""
        marked = 0 if self._table is None else self._table.marked
        topics = max(len(self.known) + len(self.allowed), marked) + len(self.refused)
        return topics and topics + _EMPTY_TABLE

    @property
    def allowed(self) -> Collection[bytes]:
        """Topics that may be published; who gets them has to be found."""
        return self._allowed or ()

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
        if self._allowed:
            self._allowed.discard(topic)
        if self._table is not None:
            self._table.put(topic, route)

    def discard(self, topic: bytes) -> None:
        """Forget who gets a topic."""
        if self.known.pop(topic, None) is not None:
            if self._allowed is None or len(self._allowed) >= _MOST_ALLOWED:
                self._allowed = set()
            self._allowed.add(topic)
        if self._table is not None:
            self._table.discard(topic)

    def forget_routes(self) -> None:
        """Forget all routes; marks stay, they are no matter of permission."""
        self.known.clear()
        if self._table is not None:
            self._table.clear()

    def unmark_all(self) -> None:
        """Forget all marks."""
        if self._table is not None:
            self._table.unmark_all()

    def forget(self) -> None:
        """Forget also what was allowed and refused."""
        self.forget_routes()
        self._allowed = self._refused = None


class PermittedTables(Generic[K, R]):
    """The table of each principal; one whose last client has left is kept for the next.

    A client that comes again and again, as a board that sleeps, need not have all its topics judged
    anew. Those who left hold ``MAX_IDLE_TOPICS`` at most; then the one that has been away longest
    is forgotten.
    """

    def __init__(self, forget: Callable[[PermittedTopics[R]], None]) -> None:
        """``forget`` is called with a table before it is dropped."""
        self._forget = forget
        self._tables: dict[K, PermittedTopics[R]] = {}
        self._idle: OrderedDict[K, int] = OrderedDict()  # how much each holds
        self._judged = 0
        self.idle_topics = 0

    def __len__(self) -> int:
        return len(self._tables)

    def use(self, key: K) -> PermittedTopics[R]:
        """Return a principal's table, for one more of its clients."""
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = PermittedTopics()
        elif not table.clients:
            self.idle_topics -= self._idle.pop(key)
        table.clients += 1
        return table

    def leave(self, key: K) -> None:
        """One of its clients needs it no more."""
        table = self._tables[key]
        table.clients -= 1
        if table.clients:
            return
        self._idle[key] = size = table.size
        self.idle_topics += size
        if not size:
            self._drop(key)
        while self.idle_topics > MAX_IDLE_TOPICS:
            self._drop(next(iter(self._idle)))

    def judged(self) -> None:
        """Another topic of somebody was judged: from time to time marks are forgotten."""
        self._judged += 1
        if self._judged >= MAX_JUDGED:
            self._judged = 0
            for table in self._tables.values():
                table.unmark_all()

    def forget(self) -> None:
        """Forget what everybody may; those who left are dropped."""
        for key in list(self._idle):
            self._drop(key)
        for table in self._tables.values():
            self._forget(table)

    def _drop(self, key: K) -> None:
        self.idle_topics -= self._idle.pop(key)
        self._forget(self._tables.pop(key))
