"""fq in one broker: makes its sessions."""

from collections.abc import Sequence

from host_broker.bus.commands import Command
from host_broker.bus.delivery import SubscriptionId
from host_broker.outputs import ConnectionId
from host_broker.protocol import BrokerContext, ProtocolServer, Session
from host_broker.protocols.fq.internal import InternalSession
from host_broker.protocols.fq.keeper import TableKeeper
from host_broker.protocols.fq.peering import Peering, Tag
from host_broker.protocols.fq.session import FqSession
from host_broker.protocols.fq.settings import FqSettings
from host_broker.protocols.fq.shared import FqShared


class FqServer(ProtocolServer):
    """Its connections share clients, queues, and what of that lasts."""

    def __init__(self, settings: FqSettings, context: BrokerContext) -> None:
        self._shared = shared = FqShared(settings, context)
        self._peering = Peering(shared, lambda: context.random_u16() / 65536)
        self._keeper = shared.queues.keeper = TableKeeper(shared.queues, self._peering.changed)

    def session(self, connection: ConnectionId, now: float, loopback: bool) -> FqSession:
        """Begin a connection, of which the first bytes say what it is."""
        return FqSession(self._shared, connection, loopback, now)

    def internal(self, connection: ConnectionId, now: float) -> InternalSession:
        """Begin a connection for a page, or for the tables."""
        return InternalSession(self._shared, self._keeper, self._peering, connection)

    def subscription_lost(
        self, queue: bytes, topic: bytes, id: SubscriptionId
    ) -> Sequence[Command]:
        """End the binding: all that it wanted, and its row."""
        return self._shared.queues.lost(queue, id)

    def dialed(self, connection: ConnectionId, tag: object, now: float) -> Session:
        """Begin a connection to another broker."""
        if not isinstance(tag, Tag):
            raise TypeError(f"fq has not dialed for {tag!r}")
        return self._peering.dialed(connection, tag, now)
