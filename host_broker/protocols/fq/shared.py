"""What all fq connections of a broker share."""

from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import pairwise

from host_broker.outputs import ConnectionId
from host_broker.protocol import BrokerContext
from host_broker.protocols.fq.codec import MAX_NAME
from host_broker.protocols.fq.functions import broker_functions
from host_broker.protocols.fq.queues import FqClient, Queues
from host_broker.protocols.fq.settings import FqSettings
from host_broker.protocols.fq.topics import Topics

_NOWHERE = IPv4Address(0)
_LOOPBACK = IPv4Address("127.0.0.1")


class FqShared:
    """``node``: this broker's name among its peers. ``clients``: those that are logged in, by the
    key with which their data connection begins."""

    def __init__(self, settings: FqSettings, context: BrokerContext) -> None:
        self.settings = settings
        self.context = context
        self.node = IPv4Address(settings.node_id).packed if settings.node_id else context.node
        self.max_payload = min(settings.max_payload, context.bus.max_body)
        self.topics = Topics()
        functions = broker_functions(context.random_u16)
        self.queues = Queues(context, functions, self.topics)
        self.clients: dict[bytes, FqClient] = {}
        self._made_ids = 0
        self._id_prefix = b""  # of ids of messages that have none

    def new_key(self) -> bytes:
        """Return a key that no client has (R4, A8)."""
        while True:
            key = self.random(MAX_NAME)
            if key not in self.clients:
                return key

    def unused_name(self) -> bytes:
        """Return a name for a queue without one: ``auto-`` and a UUID of random bits."""
        raw = bytearray(self.random(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        digits = raw.hex()
        cuts = (0, 8, 12, 16, 20, 32)
        parts = [digits[begin:end] for begin, end in pairwise(cuts)]
        return f"auto-{'-'.join(parts)}".encode()

    def new_id(self) -> bytes:
        """Return the id of a message that has none, since it came by another protocol."""
        if not self._made_ids:
            self._id_prefix = self.node + self.random(4)
        self._made_ids += 1
        return self._id_prefix + self._made_ids.to_bytes(8, "big")

    def queue_drops(self, client: FqClient) -> int:
        """Return how many messages were dropped since the queue of a client was full."""
        queue = self.context.queues.get(client.queue.path)
        return 0 if queue is None else queue.dropped

    def hop_of(self, connection: ConnectionId, loopback: bool) -> bytes:
        """Return where a connection comes from, as a hop: an IPv4 address (R24)."""
        try:
            address = ip_address(self.context.address_of(connection))
        except ValueError:  # a unix socket
            return (_LOOPBACK if loopback else _NOWHERE).packed
        if isinstance(address, IPv6Address):
            mapped = address.ipv4_mapped
            address = mapped or (_LOOPBACK if address.is_loopback else _NOWHERE)
        return address.packed

    def random(self, count: int) -> bytes:
        """Return so many random bytes."""
        draw = self.context.random_u16
        data = b"".join([draw().to_bytes(2, "big") for _ in range((count + 1) // 2)])
        return data[:count]
