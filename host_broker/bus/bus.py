"""The bus: subscriptions, routes, retained messages and queues. Who gets what, and no more."""

from collections.abc import Callable, Iterator
from itertools import islice
from operator import index

from host_broker.bus.delivery import Filter
from host_broker.bus.ordered import OrderedKeys
from host_broker.bus.permitted import PermittedTopics
from host_broker.bus.queue import Queue, QueuePolicy
from host_broker.bus.retained import Retained
from host_broker.bus.routes import Route, Routes
from host_broker.bus.subscriptions import Interest, SubscriberId, SubscriptionKey, Subscriptions
from host_broker.bus.topic_table import TopicTable
from host_broker.bus.work import Work
from host_broker.outputs import ConnectionId
from host_broker.settings import BusSettings


class Bus:
    """Answers; it delivers nothing itself."""

    def __init__(
        self,
        settings: BusSettings,
        service: bytes,
        is_guarded: Callable[[bytes], bool] = lambda topic: False,
        stores: bool = False,
    ) -> None:
        """``service``: the first level that no ``*`` equals unless the settings say otherwise.
        ``is_guarded``: whether not everybody may publish a topic. ``stores``: whether there is a
        place for what waits in durable queues."""
        apart = None if settings.wildcard_matches_service else service
        self._settings = settings
        self.work = Work()
        self._subscriptions = Subscriptions(settings.max_subscriptions, work=self.work, apart=apart)
        self._routes = Routes(self._subscriptions, self.work, is_guarded)
        # Values: who gets a topic, of the topics for which that was asked lately. Marks: which are
        # plain, of those that were seen lately.
        self.topics: TopicTable[Route] = self._routes.by_topic
        self.retained = Retained(
            settings.max_retained, settings.max_retained_bytes, self.work, apart
        )
        self.queues: dict[bytes, Queue] = {}
        self._queues_in_order: OrderedKeys[bytes] = OrderedKeys()
        self._stores = stores
        self._queue_ids: dict[bytes, SubscriberId] = {}
        self._queue_names: dict[SubscriberId, bytes] = {}
        self._last_queue_id = 0
        # Numbers of durable queues are not used again by a queue of the same name: what is stored
        # under them may not be forgotten yet.
        self._last_deleted = 0

    # ---- topics ----

    def attach(self, connection: ConnectionId, verbatim: bool) -> None:
        """Say how a connection takes publications: in stored form as they are, or translated."""
        if verbatim:
            self._routes.verbatim.add(connection)

    def subscription_count(self, subscriber: SubscriberId) -> int:
        """Return how many subscriptions a subscriber has."""
        return self._subscriptions.count(subscriber)

    def detach(self, subscriber: SubscriberId) -> Iterator[Interest | None]:
        """Forget a subscriber and its subscriptions, one for each step, in the order they were
        made; yields the interest that ended with it, if any."""
        for key in self._subscriptions.of(subscriber):
            yield self.unsubscribe(subscriber, key)
        self._routes.verbatim.discard(subscriber)
        self._subscriptions.forget(subscriber)

    def has_subscription(self, subscriber: SubscriberId, key: SubscriptionKey) -> bool:
        """Whether a subscriber has exactly this subscription."""
        return self._subscriptions.get(subscriber, key) is not None

    def subscribe(
        self, subscriber: SubscriberId, key: SubscriptionKey, filter: Filter | None, quiet: bool
    ) -> tuple[bool, Interest | None]:
        """Subscribe; returns whether the limits allowed it, and the interest to announce."""
        known = self._subscriptions.get(subscriber, key)
        accepted, interest = self._subscriptions.add(subscriber, key, filter, quiet)
        if accepted and not key.feedback and (known is None or known.filter is not filter):
            self._routes.changed(key.topic, key.prefix)
        return accepted, interest

    def unsubscribe(self, subscriber: SubscriberId, key: SubscriptionKey) -> Interest | None:
        """Unsubscribe; returns the interest to announce."""
        if not key.feedback and self._subscriptions.get(subscriber, key) is not None:
            self._routes.changed(key.topic, key.prefix)
        return self._subscriptions.remove(subscriber, key)

    def route(self, topic: bytes) -> Route:
        """Return who gets a topic."""
        return self._routes.find(topic)

    def topics_lately(self) -> list[bytes]:
        """Return the topics that were published lately, in no order."""
        return self._routes.topics()

    def copy_route(self, topic: bytes, route: Route, permitted: PermittedTopics[Route]) -> None:
        """Have a principal's table know a route that ``route`` gave, as long as it is right."""
        self._routes.copy(topic, route, permitted)

    def forget_permitted(self, permitted: PermittedTopics[Route]) -> None:
        """Forget all that a principal's table knows."""
        self._routes.release(permitted)

    def subscriptions_of(self, subscriber: SubscriberId) -> list[SubscriptionKey]:
        """Return a subscriber's subscriptions, in the order in which they were made."""
        return self._subscriptions.of(subscriber)

    def feedback_route(self, topic: bytes) -> Route:
        """Return who gets a topic of the feedback system."""
        return self._routes.route(topic, feedback=True)

    def look_for_subscribers(self, topic: bytes) -> Iterator[bool]:
        """Look whether anybody is subscribed to a topic: True ends it, False is one more step."""
        return self._subscriptions.look(topic)

    # ---- queues ----

    def open_queue(
        self,
        name: bytes,
        policy: QueuePolicy = "block",
        *,
        permanent: bool = True,
        max_messages: int = 0,
        max_bytes: int = 0,
        durable: bool = True,
        restored: bool = False,
    ) -> Queue | None:
        """Return the queue of this name, made if there is none; None if there are too many, but
        for one that is ``restored``. What is not permanent is not durable."""
        queue = self.queues.get(name)
        if queue is None and (restored or len(self.queues) < self._settings.max_queues):
            most, most_bytes = self._settings.max_queue_messages, self._settings.max_queue_bytes
            # They are on file with the queue, which nobody could read otherwise.
            max_messages, max_bytes = index(max_messages), index(max_bytes)
            queue = self.queues[name] = Queue(
                name,
                policy,
                permanent=permanent,
                max_messages=max(0, min(max_messages or most, most)),
                max_bytes=min(max_bytes or most_bytes, most_bytes),
                durable=durable and permanent and self._stores,
                after=self._last_deleted if durable and permanent and self._stores else 0,
            )
            queue.wanted_messages, queue.wanted_bytes = max_messages, max_bytes
            self._queues_in_order.add(name)
            self._last_queue_id -= 1
            self._queue_ids[name] = self._last_queue_id
            self._queue_names[self._last_queue_id] = name
        return queue

    def queue_subscriber(self, name: bytes) -> SubscriberId:
        """Return the subscriber id of a queue that is open."""
        return self._queue_ids[name]

    def queue_of(self, subscriber: SubscriberId) -> Queue | None:
        """Return the queue that is this subscriber, None if it was deleted."""
        name = self._queue_names.get(subscriber)
        return None if name is None else self.queues[name]

    def delete_queue(self, name: bytes) -> SubscriberId:
        """Forget a queue with all that waits in it; returns the subscriber that is to be detached.

        Until it is, it is a subscriber that gets nothing.
        """
        subscriber = self._queue_ids.pop(name)
        if self.queues[name].durable:
            self._last_deleted = max(self._last_deleted, self.queues[name].last_number)
        del self._queue_names[subscriber], self.queues[name]
        self._queues_in_order.discard(name)
        return subscriber

    def queues_behind(self, prefix: bytes, after: bytes, most: int) -> list[Queue]:
        """Return the first queues behind ``after``, by name, that begin with ``prefix``. It costs a
        step for each, however many others there are."""
        names = self._queues_in_order.behind(max(prefix, after), itself=after < prefix)
        found: list[Queue] = []
        for name in islice(names, most):
            if not name.startswith(prefix):
                break
            found.append(self.queues[name])
        self.work.spend(len(found))
        return found
