"""The cached answer to "who gets this topic": one dict lookup on the topic's bytes."""

from weakref import WeakValueDictionary

from host_broker.bus.subscriptions import Subscriptions
from host_broker.bus.trie import Trie
from host_broker.bus.work import Work
from host_broker.outputs import ConnectionId

# What the cache may hold before it starts anew: topics of at most 255 bytes, the index of them
# (330 bytes a node), and the receivers in all groups made (8 bytes each). Some 50 MiB at most.
_MAX_ROUTES = 16_384
_MAX_NODES = 65_536
_MAX_RECEIVERS = 2_000_000


class Group:
    """A set of receivers. Topics with the same receivers share one Group, by identity.

    ``verbatim`` take the stored form as it is; ``translated`` need their session to say it.
    """

    __slots__ = ("__weakref__", "translated", "verbatim")

    def __init__(
        self, verbatim: tuple[ConnectionId, ...], translated: tuple[ConnectionId, ...]
    ) -> None:
        self.verbatim = verbatim
        self.translated = translated


_NOBODY = Group((), ())


class Routes:
    """Groups by topic. A change of subscriptions makes those forgotten that it concerns.

    With a thousand clients that subscribe and unsubscribe all the time, a publisher of other
    topics notices nothing.
    """

    def __init__(self, subscriptions: Subscriptions, work: Work) -> None:
        self._subscriptions = subscriptions
        self._work = work
        self._groups: WeakValueDictionary[tuple[ConnectionId, ...], Group] = WeakValueDictionary()
        self._receivers = 0
        self._known: Trie[bytes] = Trie(work)  # the keys of by_topic, to be found by equivalence
        self.translated: set[ConnectionId] = set()
        self.by_topic: dict[bytes, Group] = {}
        self.changes = 0  # how often something of it was forgotten

    def changed(self, topic: bytes) -> None:
        """Forget the answers that a subscription to ``topic``, or its end, has made wrong."""
        if not self.by_topic:
            return
        stale = list(self._known.equivalent(topic))
        if self._work.left <= 0:
            self.forget()  # the search was cut short
            return
        self.changes += bool(stale)
        for each in stale:
            del self.by_topic[each]
            self._known.remove(each)

    def find(self, topic: bytes) -> Group:
        """Return who gets a topic of the regular system, from the cache if possible."""
        group = self.by_topic.get(topic)
        if group is not None:
            return group
        group = self.group(topic, feedback=False)
        if self._work.left > 0:
            if (
                len(self.by_topic) >= _MAX_ROUTES
                or self._known.nodes >= _MAX_NODES
                or self._receivers >= _MAX_RECEIVERS
            ):
                self.forget()
            self.by_topic[topic] = group
            self._known.put(topic, topic)
        return group

    def group(self, topic: bytes, feedback: bool) -> Group:
        """Work out who gets a topic; nobody, once the work allowed is done."""
        receivers = tuple(sorted(self._subscriptions.matching(topic, feedback)))
        if self._work.left <= 0:
            return _NOBODY
        group = self._groups.get(receivers)
        if group is None:
            group = self._groups[receivers] = self._divided(receivers)
            self._receivers += len(receivers)
        return group

    def _divided(self, receivers: tuple[ConnectionId, ...]) -> Group:
        translated = self.translated
        if translated.isdisjoint(receivers):
            return Group(receivers, ())
        return Group(
            tuple(each for each in receivers if each not in translated),
            tuple(each for each in receivers if each in translated),
        )

    def forget(self) -> None:
        """Forget all answers."""
        self.changes += 1
        self.by_topic.clear()
        self._known = Trie(self._work)
        self._receivers = 0
