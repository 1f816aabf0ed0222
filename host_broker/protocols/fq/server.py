"""fq in one broker: makes its sessions."""

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
<<<<<<< HEAD
        self._shared = shared = FqShared(settings, context)
        self._peering = Peering(shared, lambda: context.random_u16() / 65536)
        self._keeper = shared.queues.keeper = TableKeeper(shared.queues, self._peering.changed)
=======
        self.settings = settings
        self.context = context
        self.node = IPv4Address(settings.node_id).packed if settings.node_id else context.node
        self.max_payload = min(settings.max_payload, context.bus.max_body)
        self.topics = Topics()
        functions = broker_functions(context.random_u16)
        self.queues = Queues(context.stores, functions, self.topics, context.clock_ns)
        self.peering = Peering(self, lambda: context.random_u16() / 65536)
        self.keeper = self.queues.keeper = TableKeeper(self.queues, self.peering.changed)
        self.clients: dict[bytes, FqClient] = {}
        self._made_ids = 0
        self._id_prefix = b""  # of ids of messages that have none
>>>>>>> fq1

    def session(self, connection: ConnectionId, now: float, loopback: bool) -> FqSession:
        """Begin a connection, of which the first bytes say what it is."""
        return FqSession(self._shared, connection, loopback, now)

    def internal(self, connection: ConnectionId, now: float) -> InternalSession:
        """Begin a connection for a page, or for the tables."""
        return InternalSession(self._shared, self._keeper, self._peering, connection)

    def dialed(self, connection: ConnectionId, tag: object, now: float) -> Session:
        """Begin a connection to another broker."""
        if not isinstance(tag, Tag):
            raise TypeError(f"fq has not dialed for {tag!r}")
        return self._peering.dialed(connection, tag, now)
