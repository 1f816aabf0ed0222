"""Who wants which paths, in two separate topic systems: regular and feedback (FMQP R43)."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from host_broker.bus.delivery import Filter, SubscriptionId
from host_broker.bus.prefix_tree import PrefixTree
from host_broker.bus.trie import Trie
from host_broker.bus.work import Work

SubscriberId = int  # a connection's id, or that of a queue, which is negative


@dataclass(frozen=True, slots=True)
class Interest:
    """Somebody began (or ended) to want a path; ``count`` of those who now say they want it."""

    topic: bytes
    count: int
    began: bool


@dataclass(frozen=True, slots=True)
class SubscriptionKey:
    """What makes a subscription of a subscriber unique."""

    topic: bytes
    feedback: bool = False
    prefix: bool = False
    id: SubscriptionId = 0


@dataclass(slots=True, eq=False)
class Subscription:
    """A subscriber's standing request. ``filter`` None: everything under its topic.

    ``prefix``: every topic that begins with these bytes, instead of those equivalent to it.
    """

    subscriber: SubscriberId
    topic: bytes
    id: SubscriptionId
    filter: Filter | None
    prefix: bool
    quiet: bool


@dataclass(slots=True)
class _Subscribed:
    """The subscriptions to one topic, in the order in which they were made."""

    of: dict[tuple[SubscriberId, SubscriptionId], Subscription] = field(default_factory=dict)
    loud_count: int = 0  # kept, because counting 10 000 of them per subscription is quadratic


class Subscriptions:
    """All subscriptions of all subscribers.

    At most ``limit`` per subscriber, and ``max_nodes`` levels of index in all: one client's 10 000
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
        self._work = work if work is not None else Work()
        self._systems: tuple[Trie[_Subscribed], Trie[_Subscribed]] = (
            Trie(work, apart),
            Trie(work, apart),
        )
        self._prefixes: PrefixTree[_Subscribed] = PrefixTree(self._work)
        self._of: dict[SubscriberId, dict[SubscriptionKey, Subscription]] = {}

    def add(
        self,
        subscriber: SubscriberId,
        key: SubscriptionKey,
        filter: Filter | None = None,
        quiet: bool = False,
    ) -> tuple[bool, Interest | None]:
        """Subscribe. Returns whether it was accepted, and the interest to announce.

        A quiet subscription never hides a loud one that the same client already made.
        """
        mine = self._of.setdefault(subscriber, {})
        if key not in mine and len(mine) >= self._limit:
            return False, None
        subscribed = self._subscribed(key)
        if subscribed is None:
            nodes = sum(trie.nodes for trie in self._systems) + len(self._prefixes)
            if nodes + key.topic.count(b"/") >= self._max_nodes:
                return False, None
            subscribed = _Subscribed()
            self._put(key, subscribed)
        known = subscribed.of.get((subscriber, key.id))
        was_quiet = known is None or known.quiet
        subscription = mine[key] = Subscription(
            subscriber, key.topic, key.id, filter, key.prefix, quiet and was_quiet
        )
        subscribed.of[subscriber, key.id] = subscription
        subscribed.loud_count += was_quiet and not quiet
        if key.feedback or quiet:
            return True, None
        return True, Interest(key.topic, subscribed.loud_count, began=True)

    def remove(self, subscriber: SubscriberId, key: SubscriptionKey) -> Interest | None:
        """Unsubscribe from exactly this (FMQP R17); returns the interest to announce."""
        subscription = self._of.get(subscriber, {}).pop(key, None)
        subscribed = self._subscribed(key) if subscription is not None else None
        if subscription is None or subscribed is None:
            return None
        del subscribed.of[subscriber, key.id]
        subscribed.loud_count -= not subscription.quiet
        if not subscribed.of:
            self._drop(key)
        if key.feedback or subscription.quiet:
            return None
        return Interest(key.topic, subscribed.loud_count, began=False)

    def get(self, subscriber: SubscriberId, key: SubscriptionKey) -> Subscription | None:
        """Return exactly this subscription of a subscriber, None if it has not made it."""
        return self._of.get(subscriber, {}).get(key)

    def of(self, subscriber: SubscriberId) -> list[SubscriptionKey]:
        """Return a subscriber's subscriptions, in the order in which they were made."""
        return list(self._of.get(subscriber, ()))

    def count(self, subscriber: SubscriberId) -> int:
        """Return how many subscriptions a subscriber has."""
        return len(self._of.get(subscriber, ()))

    def forget(self, subscriber: SubscriberId) -> None:
        """Forget a subscriber that has no subscriptions left."""
        self._of.pop(subscriber, None)

    def matching(self, topic: bytes, feedback: bool) -> list[Subscription]:
        """Return all subscriptions under which a topic comes (FMQP R14, R15)."""
        found: list[Subscription] = []
        for subscribed in self._systems[feedback].equivalent(topic):
            found += subscribed.of.values()
        if not feedback and len(self._prefixes):
            for subscribed in self._prefixes.beginning(topic):
                found += subscribed.of.values()
        return found

    def look(self, topic: bytes) -> Iterator[bool]:
        """Look for a subscription under which a regular topic comes, step by step (``Trie.look``):
        whether one was found. Nothing is to be asked after that."""
        yield any(True for _ in self._prefixes.beginning(topic))
        for subscribed in self._systems[False].look(topic):
            yield subscribed is not None and bool(subscribed.of)

    def _subscribed(self, key: SubscriptionKey) -> _Subscribed | None:
        if key.prefix:
            return self._prefixes.get(key.topic)
        return self._systems[key.feedback].get(key.topic)

    def _put(self, key: SubscriptionKey, subscribed: _Subscribed) -> None:
        if key.prefix:
            self._prefixes.put(key.topic, subscribed)
        else:
            self._systems[key.feedback].put(key.topic, subscribed)

    def _drop(self, key: SubscriptionKey) -> None:
        if key.prefix:
            self._prefixes.remove(key.topic)
        else:
            self._systems[key.feedback].remove(key.topic)
