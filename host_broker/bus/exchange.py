"""The bus: subscriptions, routes and retained messages, and deliveries made of them."""

from collections.abc import Iterator, Mapping

from host_broker.bus.publication import FEEDBACK, HEADER, RETAINED, pack
from host_broker.bus.retained import Retained
from host_broker.bus.routes import Group, Routes
from host_broker.bus.subscriptions import Interest, Subscriptions
from host_broker.bus.work import Work
from host_broker.outputs import Buffer, ConnectionId

Translation = tuple[ConnectionId, bytes]  # a receiver and a run of stored publications for it
Sends = dict[ConnectionId, list[Buffer]]


class Exchange:
    """Who gets what. Verbatim receivers are served into ``sends``; what it returns are runs that
    some receiver's session must translate."""

    def __init__(
        self,
        max_subscriptions: int,
        max_retained: int,
        max_retained_bytes: int,
        apart: bytes | None = None,
    ) -> None:
        """``apart``: a first level that no ``*`` equals."""
        self.work = Work()
        self._subscriptions = Subscriptions(max_subscriptions, work=self.work, apart=apart)
        self._routes = Routes(self._subscriptions, self.work)
        # Who gets a topic, of the topics for which that was asked lately.
        self.known: Mapping[bytes, Group] = self._routes.by_topic
        self.retained = Retained(max_retained, max_retained_bytes, self.work, apart)

    @property
    def changes(self) -> int:
        """How often something of ``known`` was forgotten."""
        return self._routes.changes

    def forget(self) -> None:
        """Forget all that is ``known``."""
        self._routes.forget()

    def attach(self, connection: ConnectionId, verbatim: bool) -> None:
        """Say how a connection takes publications: in stored form, or translated."""
        if not verbatim:
            self._routes.translated.add(connection)

    def subscription_count(self, connection: ConnectionId) -> int:
        """Return how many subscriptions a connection has."""
        return self._subscriptions.count(connection)

    def detach(self, connection: ConnectionId) -> Iterator[Interest | None]:
        """Forget a connection and its subscriptions, one for each step, in the order they were
        made; yields the interest that ended with it, if any."""
        subscriptions = self._subscriptions
        for topic, feedback in subscriptions.of(connection):
            if not feedback:
                self._routes.changed(topic)
            yield subscriptions.remove(connection, topic, feedback)
        self._routes.translated.discard(connection)
        subscriptions.forget(connection)

    def subscribe(
        self, connection: ConnectionId, topic: bytes, feedback: bool, quiet: bool
    ) -> tuple[bool, Interest | None]:
        """Subscribe; returns whether the limit allowed it, and the interest to announce."""
        known = self._subscriptions.has(connection, topic, feedback)
        accepted, interest = self._subscriptions.add(connection, topic, feedback, quiet)
        if accepted and not feedback and not known:
            self._routes.changed(topic)
        return accepted, interest

    def unsubscribe(
        self, connection: ConnectionId, topic: bytes, feedback: bool
    ) -> Interest | None:
        """Unsubscribe; returns the interest to announce."""
        if not feedback and self._subscriptions.has(connection, topic, feedback):
            self._routes.changed(topic)
        return self._subscriptions.remove(connection, topic, feedback)

    def publish_run(self, sends: Sends, run: bytes, topics: set[bytes]) -> list[Translation]:
        """Deliver plain publications in stored form, whose topics are ``topics``.

        All of it as it is, if all topics have the same receivers; else a slice for each stretch
        with the same receivers.
        """
        cached, find = self._routes.by_topic, self._routes.find
        translations: list[Translation] = []
        groups = {cached.get(topic) or find(topic) for topic in topics}
        if len(groups) == 1:
            self._deliver(sends, groups.pop(), run, translations)
            return translations
        header = HEADER.unpack_from
        group: Group | None = None
        start = position = 0
        while position < len(run):
            _, topic_length, body_length = header(run, position)
            body = position + HEADER.size + topic_length
            topic = run[body - topic_length : body]
            found = cached.get(topic) or find(topic)
            if found is not group:
                if group is not None:
                    self._deliver(sends, group, run[start:position], translations)
                group = found
                start = position
            position = body + body_length
        if group is not None:
            self._deliver(sends, group, run[start:], translations)
        return translations

    def verbatim(self, topics: set[bytes]) -> Group | None:
        """Return who gets all of ``topics``, if that is known and nobody needs a translation."""
        cached = self._routes.by_topic
        if len(topics) == 1:
            for topic in topics:
                group = cached.get(topic)
        else:
            groups = set(map(cached.get, topics))
            if len(groups) != 1:
                return None
            group = groups.pop()
        return None if group is None or group.translated else group

    def publish(self, sends: Sends, topic: bytes, packet: bytes) -> list[Translation]:
        """Deliver one publication that has a body, in stored form."""
        translations: list[Translation] = []
        self._deliver(sends, self._routes.find(topic), packet, translations)
        return translations

    def wanted(self, topic: bytes) -> bool:
        """Whether a publication would be delivered to anybody."""
        group = self._routes.group(topic, feedback=False)
        return bool(group.verbatim or group.translated)

    def announce(self, sends: Sends, topic: bytes, body: bytes, idle: bool) -> list[Translation]:
        """Deliver and keep a feedback message, an empty one too (FMQP R45, R46, A5)."""
        packet = pack(FEEDBACK | RETAINED, topic, body)
        self.retained.put(topic, packet, feedback=True, idle=idle)
        translations: list[Translation] = []
        group = self._routes.group(topic, feedback=True)
        self._deliver(sends, group, packet, translations)
        return translations

    @staticmethod
    def _deliver(sends: Sends, group: Group, run: bytes, translations: list[Translation]) -> None:
        for connection in group.verbatim:
            buffers = sends.get(connection)
            if buffers is None:
                sends[connection] = [run]
            else:
                buffers.append(run)
        if group.translated:
            translations.extend((connection, run) for connection in group.translated)
