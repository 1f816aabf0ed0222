"""The bus: subscriptions, routes and retained messages, and deliveries made of them."""

from host_broker.bus.commands import Part
from host_broker.bus.publication import FEEDBACK, RETAINED, pack
from host_broker.bus.retained import Retained
from host_broker.bus.routes import Group, Routes
from host_broker.bus.subscriptions import Interest, Subscriptions
from host_broker.outputs import Buffer, ConnectionId

Translation = tuple[ConnectionId, bytes]  # a receiver and a run of stored publications for it
Sends = dict[ConnectionId, list[Buffer]]


class Exchange:
    """Who gets what. Verbatim receivers are served into ``sends``; what it returns are runs that
    some receiver's session must translate."""

    def __init__(self, max_subscriptions: int, max_retained: int, max_retained_bytes: int) -> None:
        self._subscriptions = Subscriptions(max_subscriptions)
        self._routes = Routes(self._subscriptions)
        self.retained = Retained(max_retained, max_retained_bytes)

    def attach(self, connection: ConnectionId, verbatim: bool) -> None:
        """Say how a connection takes publications: in stored form, or translated."""
        if not verbatim:
            self._routes.translated.add(connection)

    def detach(self, connection: ConnectionId) -> list[Interest]:
        """Forget a connection and its subscriptions; returns the interests that ended."""
        if self._subscriptions.has_any(connection):
            self._routes.forget()
        self._routes.translated.discard(connection)
        return self._subscriptions.remove_all(connection)

    def subscribe(
        self, connection: ConnectionId, topic: bytes, feedback: bool, quiet: bool
    ) -> tuple[bool, Interest | None]:
        """Subscribe; returns whether the limit allowed it, and the interest to announce."""
        accepted, interest = self._subscriptions.add(connection, topic, feedback, quiet)
        if accepted and not feedback:
            self._routes.forget()
        return accepted, interest

    def unsubscribe(
        self, connection: ConnectionId, topic: bytes, feedback: bool
    ) -> Interest | None:
        """Unsubscribe; returns the interest to announce."""
        if not feedback:
            self._routes.forget()
        return self._subscriptions.remove(connection, topic, feedback)

    def publish_run(
        self, sends: Sends, run: bytes, data: bytes, start: int, parts: list[Part]
    ) -> list[Translation]:
        """Deliver plain publications: per stretch with the same receivers, one slice of ``data``.

        ``run`` is the slice of ``data`` at ``start`` that holds them all, already made for the
        journal.
        """
        routes = self._routes
        cached = routes.by_topic
        translations: list[Translation] = []
        group: Group | None = None
        first, end = start, start + len(run)
        for topic, offset, _ in parts:
            found = cached.get(topic) or routes.find(topic)
            if found is not group:
                if group is not None:
                    self._deliver(sends, group, data[start:offset], translations)
                group = found
                start = offset
        if group is not None:
            self._deliver(sends, group, run if start == first else data[start:end], translations)
        return translations

    def publish(self, sends: Sends, topic: bytes, packet: bytes, retain: bool) -> list[Translation]:
        """Deliver one publication that has a body, in stored form, and retain it if asked."""
        if retain:
            self.retained.put(topic, packet)
        translations: list[Translation] = []
        self._deliver(sends, self._routes.find(topic), packet, translations)
        return translations

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
        translations.extend((connection, run) for connection in group.translated)
