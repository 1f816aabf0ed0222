"""The cached answer to "who gets this topic": one lookup on the topic's bytes."""

from collections.abc import Callable
from weakref import WeakValueDictionary

from host_broker.bus.delivery import SubscriptionId
from host_broker.bus.permitted import PermittedTopics
from host_broker.bus.subscriptions import SubscriberId, Subscription, Subscriptions
from host_broker.bus.topic_table import TopicTable
from host_broker.bus.trie import Trie
from host_broker.bus.work import Work
from host_broker.outputs import ConnectionId

# What the cache may hold before it starts anew: topics of at most 255 bytes, the index of them
# (330 bytes a node), and the receivers in all routes made (8 bytes each). Some 50 MiB at most.
_MAX_TOPICS = 16_384
_MAX_NODES = 65_536
_MAX_RECEIVERS = 2_000_000
_MAX_COPIES = 4 * _MAX_TOPICS  # in the tables of principals, all together


class Match:
    """A subscriber that does not take the stored form as it is, and why it gets a topic.

    ``ids`` are those of its subscriptions without a filter; ``filtered`` are the others, each of
    which is asked per publication.
    """

    __slots__ = ("filtered", "ids", "subscriber")

    def __init__(
        self,
        subscriber: SubscriberId,
        ids: tuple[SubscriptionId, ...],
        filtered: tuple[Subscription, ...],
    ) -> None:
        self.subscriber = subscriber
        self.ids = ids
        self.filtered = filtered


class Route:
    """Who gets a topic. Topics for the same receivers share one ``Route``, by identity.

    ``verbatim`` are the connections that take the stored form as it is, each once; ``matches`` are
    all others: sessions that translate, queues, and whoever asks a filter. ``is_certain``: somebody
    gets the topic without asking a filter.
    """

    __slots__ = ("__weakref__", "is_certain", "matches", "verbatim")

    def __init__(self, verbatim: tuple[ConnectionId, ...], matches: tuple[Match, ...]) -> None:
        self.verbatim = verbatim
        self.matches = matches
        self.is_certain = bool(verbatim) or any(match.ids for match in matches)


NOBODY = Route((), ())

_Match = tuple[SubscriberId, tuple[SubscriptionId, ...], tuple[Subscription, ...]]
_Key = tuple[tuple[ConnectionId, ...], tuple[_Match, ...]]


def _wishes(
    subscriptions: list[Subscription],
) -> tuple[tuple[SubscriptionId, ...], tuple[Subscription, ...]]:
    """Return the ids of those without a filter, and the others."""
    plain = {each.id for each in subscriptions if each.filter is None}
    return tuple(sorted(plain)), tuple([each for each in subscriptions if each.filter is not None])


class Routes:
    """Routes by topic. A change of subscriptions makes those forgotten that it concerns.

    With a thousand clients that subscribe and unsubscribe all the time, a publisher of other
    topics notices nothing.
    """

    def __init__(
        self,
        subscriptions: Subscriptions,
        work: Work,
        is_guarded: Callable[[bytes], bool] = lambda topic: False,
    ) -> None:
        """``is_guarded``: whether not everybody may publish a topic; such ones are not in
        ``by_topic``, so that whoever looks there has to ask."""
        self._is_guarded = is_guarded
        self._guarded: dict[bytes, Route] = {}
        self._copies: dict[bytes, list[PermittedTopics[Route]]] = {}
        self._copy_count = 0
        self._subscriptions = subscriptions
        self._work = work
        self._shared: WeakValueDictionary[_Key, Route] = WeakValueDictionary()
        self._receivers = 0
        self._index: Trie[bytes] = Trie(work)  # the topics known, to be found by equivalence
        self.by_topic: TopicTable[Route] = TopicTable()
        self.verbatim: set[ConnectionId] = set()  # who takes the stored form as it is

    def changed(self, topic: bytes, prefix: bool) -> None:
        """Forget the answers that a subscription to ``topic``, or its end, has made wrong."""
        if not len(self.by_topic) and not self._guarded:
            return
        found = self._index.beginning_with(topic) if prefix else self._index.equivalent(topic)
        stale = list(found)
        if self._work.left <= 0:
            self.forget()  # the search was cut short
            return
        for each in stale:
            self.by_topic.discard(each)
            self._guarded.pop(each, None)
            self._index.remove(each)
            for permitted in self._copies.pop(each, ()):
                permitted.discard(each)
                self._copy_count -= 1

    def find(self, topic: bytes) -> Route:
        """Return who gets a topic of the regular system, from the cache if possible."""
        route = self.by_topic.get(topic)
        if route is None:
            route = self._guarded.get(topic)
        if route is not None:
            return route
        route = self.route(topic, feedback=False)
        if self._work.left > 0:
            if (
                len(self.by_topic) + len(self._guarded) >= _MAX_TOPICS
                or self._index.nodes >= _MAX_NODES
                or self._receivers >= _MAX_RECEIVERS
            ):
                self.forget()
            if self._is_guarded(topic):
                self._guarded[topic] = route
            else:
                self.by_topic.put(topic, route)
            self._index.put(topic, topic)
        return route

    def copy(self, topic: bytes, route: Route, permitted: PermittedTopics[Route]) -> None:
        """Have a principal's table know a route that was found, as long as it is right."""
        if topic in permitted.known or not (topic in self.by_topic or topic in self._guarded):
            return
        if self._copy_count >= _MAX_COPIES:
            self._forget_copies()
        permitted.put(topic, route)
        self._copies.setdefault(topic, []).append(permitted)
        self._copy_count += 1

    def release(self, permitted: PermittedTopics[Route]) -> None:
        """Forget all that a principal's table knows."""
        for topic in permitted.known:
            copies = self._copies[topic]
            copies.remove(permitted)
            self._copy_count -= 1
            if not copies:
                del self._copies[topic]
        permitted.forget()

    def _forget_copies(self) -> None:
        for copies in self._copies.values():
            for permitted in copies:
                permitted.forget_routes()
        self._copies.clear()
        self._copy_count = 0

    def route(self, topic: bytes, feedback: bool) -> Route:
        """Work out who gets a topic; nobody, once the work allowed is done."""
        verbatim_ones = self.verbatim
        straight: list[ConnectionId] = []  # without a filter, and verbatim: more than once, perhaps
        others: dict[SubscriberId, list[Subscription]] = {}
        for each in self._subscriptions.matching(topic, feedback):
            if each.filter is None and each.subscriber in verbatim_ones:
                straight.append(each.subscriber)
            else:
                others.setdefault(each.subscriber, []).append(each)
        if self._work.left <= 0:
            return NOBODY
        verbatim = tuple(straight) if len(straight) < 2 else tuple(sorted(set(straight)))
        matches: tuple[_Match, ...] = ()
        if others:
            matches = tuple(
                (subscriber, *_wishes(others[subscriber]))
                for subscriber in sorted(others.keys() - set(verbatim))
            )
        key: _Key = verbatim, matches
        route = self._shared.get(key)
        if route is None:
            route = self._shared[key] = Route(verbatim, tuple(Match(*match) for match in matches))
            self._receivers += len(verbatim) + len(matches)
        return route

    def topics(self) -> list[bytes]:
        """Return the topics that were seen lately, in no order."""
        return [*self.by_topic.topics(), *self._guarded]

    def forget(self) -> None:
        """Forget all answers."""
        self.by_topic.clear()
        self._guarded.clear()
        self._forget_copies()
        self._index = Trie(self._work)
        self._receivers = 0
