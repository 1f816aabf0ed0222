"""FMQP in one broker: its sessions, its feedback system, and ``$/info/clients``."""

from collections.abc import Sequence
from struct import Struct
from typing import Any

from host_broker.bus.commands import Announce, Command, Publish
from host_broker.bus.subscriptions import Interest
from host_broker.bus.topic_table import TopicTable
from host_broker.outputs import ConnectionId
from host_broker.protocol import BrokerContext, ProtocolServer
from host_broker.protocols.fmqp.dialect import Dialect
from host_broker.protocols.fmqp.session import FmqpSession, LsbSession, Shared
from host_broker.protocols.fmqp.settings import FmqpSettings
from host_broker.protocols.fmqp.statistics import Meter
from host_broker.protocols.fmqp.topics import MAX_KNOWN, MAX_KNOWN_OF_ONE, PlainTopics

_COUNT = Struct(">Q")


class FmqpServer(ProtocolServer):
    """Makes sessions, which share what is known about topics."""

    stored_form = True

    def __init__(self, settings: FmqpSettings, context: BrokerContext) -> None:
        self.idle_timeout_s = settings.idle_timeout_s
        self._settings = settings
        self._bus = context.bus
        self._topics_of = context.topics_of
        self._dialect = self._dialect_of(context.topics)
        self._shared = Shared(Meter(), context.held, context.stats)

    def session(self, connection: ConnectionId, now: float, loopback: bool) -> FmqpSession:
        """Begin a connection; only some may stop the broker (A16)."""
        make = LsbSession if self._settings.bit_order == "lsb" else FmqpSession
        dialect = self._dialect
        if self._topics_of is not None:
            table = self._topics_of(connection)
            if table is not dialect.topics.table:
                dialect = self._dialect_of(table, MAX_KNOWN_OF_ONE)
        return make(self._settings, self._bus, dialect, self._shared, loopback)

    def _dialect_of(self, table: TopicTable[Any], most: int = MAX_KNOWN) -> Dialect:
        settings = self._settings
        topics = PlainTopics(
            table,
            collapse_inner=settings.collapse_inner,
            ascii_only=settings.ascii_topics,
            most=most,
        )
        return Dialect(topics, settings.bit_order, settings.strict_reserved)

    def refusing(self, connection: ConnectionId, now: float) -> None:
        """R33: no new client is accepted, and FMQP has no word to say so."""

    def settings_changed(self, settings: FmqpSettings) -> None:
        """Do nothing: none of them can."""

    def interest(self, interest: Interest) -> Sequence[Command]:
        """Announce on the same topic in the feedback system (R45).

        The body is the 64-bit number of those who want it, empty for none (A4, ``count``); or
        0x01 for every subscription and empty for every end of one (``event``).
        """
        if self._settings.feedback_payload == "event":
            body = b"\x01" if interest.began else b""
        else:
            body = _COUNT.pack(interest.count) if interest.count else b""
        idle = interest.count == 0
        forget = idle and self._settings.feedback_cache_empty == "drop"
        return [Announce(interest.topic, body, idle, forget)]

    def client_count(self, count: int) -> Sequence[Command]:
        """R40, R41: on every change, the number of clients, cached."""
        return [Publish(b"$/info/clients", _COUNT.pack(count), retain=True, own=True)]
