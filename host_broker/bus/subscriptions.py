"""Who wants which paths, in two separate topic systems: regular and feedback (FMQP R43)."""

from dataclasses import dataclass, field

from host_broker.bus.trie import Trie
from host_broker.bus.work import Work
from host_broker.outputs import ConnectionId


@dataclass(frozen=True, slots=True)
class Interest:
    """Somebody began (or ended) to want a path; ``count`` of those who now say they want it."""

    topic: bytes
    count: int
    began: bool


@dataclass(slots=True)
class _Subscribers:
    quiet: dict[ConnectionId, bool] = field(default_factory=dict)
    loud_count: int = 0  # kept, because counting 10 000 of them per subscription is quadratic


class Subscriptions:
    """All subscriptions of all connections.

    At most ``limit`` per connection, and ``max_nodes`` levels of index in all: one client's 10 000
    subscriptions of 128 levels would otherwise take 400 MB. The default is about 330 MB.
    """

    def __init__(
        self,
        limit: int,
        max_nodes: int = 1_000_000,
        work: Work | None = None,
        apart: bytes | None = None,
    ) -> None:
        self._limit = limit
        self._max_nodes = max_nodes
        self._systems: tuple[Trie[_Subscribers], Trie[_Subscribers]] = (
            Trie(work, apart),
            Trie(work, apart),
        )
        self._of: dict[ConnectionId, dict[tuple[bytes, bool], None]] = {}

    def add(
        self, connection: ConnectionId, topic: bytes, feedback: bool, quiet: bool
    ) -> tuple[bool, Interest | None]:
        """Subscribe. Returns whether it was accepted, and the interest to announce.

        A quiet subscription never hides a loud one that the same client already made.
        """
        mine = self._of.setdefault(connection, {})
        if (topic, feedback) not in mine and len(mine) >= self._limit:
            return False, None
        system = self._systems[feedback]
        subscribers = system.get(topic)
        if subscribers is None:
            if sum(trie.nodes for trie in self._systems) + topic.count(b"/") >= self._max_nodes:
                return False, None
            subscribers = _Subscribers()
            system.put(topic, subscribers)
        was_quiet = subscribers.quiet.get(connection, True)
        subscribers.quiet[connection] = quiet and was_quiet
        subscribers.loud_count += was_quiet and not quiet
        mine[topic, feedback] = None
        if feedback or quiet:
            return True, None
        return True, Interest(topic, subscribers.loud_count, began=True)

    def remove(self, connection: ConnectionId, topic: bytes, feedback: bool) -> Interest | None:
        """Unsubscribe from exactly this topic (R17); returns the interest to announce."""
        mine = self._of.get(connection, {})
        if (topic, feedback) not in mine:
            return None
        del mine[topic, feedback]
        system = self._systems[feedback]
        subscribers = system.get(topic)
        if subscribers is None:
            return None
        quiet = subscribers.quiet.pop(connection, True)
        subscribers.loud_count -= not quiet
        if not subscribers.quiet:
            system.remove(topic)
        if feedback or quiet:
            return None
        return Interest(topic, subscribers.loud_count, began=False)

    def of(self, connection: ConnectionId) -> list[tuple[bytes, bool]]:
        """Return the topics of a connection, and of which system, in the order of subscribing."""
        return list(self._of.get(connection, ()))

    def count(self, connection: ConnectionId) -> int:
        """Return how many subscriptions a connection has."""
        return len(self._of.get(connection, ()))

    def forget(self, connection: ConnectionId) -> None:
        """Forget a connection that has no subscriptions left."""
        self._of.pop(connection, None)

    def has(self, connection: ConnectionId, topic: bytes, feedback: bool) -> bool:
        """Whether a connection has exactly this subscription."""
        return (topic, feedback) in self._of.get(connection, ())

    def matching(self, topic: bytes, feedback: bool) -> set[ConnectionId]:
        """Return everyone with an equivalent subscription, each once (R14, R15)."""
        found: set[ConnectionId] = set()
        for subscribers in self._systems[feedback].equivalent(topic):
            found.update(subscribers.quiet)
        return found
