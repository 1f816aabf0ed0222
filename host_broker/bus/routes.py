"""The cached answer to "who gets this topic": one dict lookup on the topic's bytes."""

from host_broker.bus.subscriptions import Subscriptions
from host_broker.outputs import ConnectionId

# A topic costs at most 255 bytes plus one entry here, so this bounds the cache to a few MiB.
_MAX_ROUTES = 16_384


class Group:
    """A set of receivers. Topics with the same receivers share one Group, by identity.

    ``verbatim`` take the stored form as it is; ``translated`` need their session to say it.
    """

    __slots__ = ("translated", "verbatim")

    def __init__(
        self, verbatim: tuple[ConnectionId, ...], translated: tuple[ConnectionId, ...]
    ) -> None:
        self.verbatim = verbatim
        self.translated = translated


class Routes:
    """Groups by topic, forgotten together whenever a subscription changes."""

    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions
        self._groups: dict[frozenset[ConnectionId], Group] = {}
        self.translated: set[ConnectionId] = set()
        self.by_topic: dict[bytes, Group] = {}

    def forget(self) -> None:
        """Drop every cached answer."""
        self.by_topic.clear()
        self._groups.clear()

    def find(self, topic: bytes) -> Group:
        """Return who gets a topic of the regular system, from the cache if possible."""
        group = self.by_topic.get(topic)
        if group is None:
            if len(self.by_topic) >= _MAX_ROUTES:
                self.forget()
            group = self.by_topic[topic] = self.group(topic, feedback=False)
        return group

    def group(self, topic: bytes, feedback: bool) -> Group:
        """Work out who gets a topic."""
        receivers = frozenset(self._subscriptions.matching(topic, feedback))
        group = self._groups.get(receivers)
        if group is None:
            group = Group(
                tuple(sorted(receivers - self.translated)),
                tuple(sorted(receivers & self.translated)),
            )
            if len(self._groups) < _MAX_ROUTES:
                self._groups[receivers] = group
        return group
