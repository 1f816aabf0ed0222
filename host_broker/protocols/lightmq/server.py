"""LightMQ in one broker: its sessions, in two kinds, and what they share."""

from collections.abc import Callable, Sequence

from host_broker.bus.commands import Command
from host_broker.bus.subscriptions import Interest
from host_broker.outputs import ConnectionId
from host_broker.protocols.lightmq.admission import Admission
from host_broker.protocols.lightmq.caller import MARK, Caller
from host_broker.protocols.lightmq.carrier import Carrier
from host_broker.protocols.lightmq.codec import Codec
from host_broker.protocols.lightmq.mailbox import Mailbox
from host_broker.protocols.lightmq.paths import level
from host_broker.protocols.lightmq.session import LightmqSession
from host_broker.protocols.lightmq.shared import Shared
from host_broker.protocols.lightmq.use import Use
from host_broker.protocols.session import NOTHING, ProtocolServer
from host_broker.settings import LightmqSettings


class LightmqServer:
    """Makes sessions of clients that are themselves on the bus, or call one that is."""

    journal_code = 2

    def __init__(self, settings: LightmqSettings, random_u16: Callable[[], int]) -> None:
        self._shared = Shared(settings, random_u16, Admission(settings.clients))

    def carrying(self, inner: ProtocolServer) -> "CarryingServer":
        """Return the other kind: its clients have the same names, and speak ``inner`` in SENDs."""
        return CarryingServer(self._shared, inner)

    def session(self, connection: ConnectionId, now: float, loopback: bool) -> LightmqSession:
        """Begin a connection, which must say CONNECT in time."""
        shared = self._shared

        def accept(client_id: str, codec: Codec, now: float) -> Use | None:
            settings = shared.settings
            _, mark, called = client_id.partition(MARK)
            if not (mark and settings.calls):
                return Mailbox(
                    level(client_id), codec, settings, shared.random_u16, shared.responders
                )

            def connected() -> bool:
                there = shared.named.get(called)
                return there is not None and there.callable

            if not connected():
                return None
            return Caller(connection, called, codec, settings.max_pending, connected)

        return LightmqSession(connection, shared, accept, now)

    def latecomer(self, connection: ConnectionId, now: float) -> LightmqSession:
        """Begin a connection whose CONNECT is answered with "unavailable"."""
        return LightmqSession(connection, self._shared, _nobody, now)

    def interest(self, interest: Interest) -> Sequence[Command]:
        """Note who wants to answer clients."""
        self._shared.responders.changed(interest)
        return NOTHING

    def population(self, count: int) -> Sequence[Command]:
        """Do nothing: LightMQ has no word for it."""
        return NOTHING


class CarryingServer:
    """Makes sessions whose SENDs carry another protocol."""

    journal_code = LightmqServer.journal_code

    def __init__(self, shared: Shared, inner: ProtocolServer) -> None:
        self._shared = shared
        self._inner = inner

    def session(self, connection: ConnectionId, now: float, loopback: bool) -> LightmqSession:
        """Begin a connection; the one it carries begins when the client is accepted."""
        shared = self._shared

        def accept(client_id: str, codec: Codec, now: float) -> Use:
            inner = self._inner.session(connection, now, loopback)
            return Carrier(inner, codec, shared.settings.carried_bytes, shared.random_u16)

        return LightmqSession(connection, shared, accept, now)

    def latecomer(self, connection: ConnectionId, now: float) -> LightmqSession:
        """Begin a connection whose CONNECT is answered with "unavailable"."""
        return LightmqSession(connection, self._shared, _nobody, now)

    def interest(self, interest: Interest) -> Sequence[Command]:
        """Do nothing: the server of what is carried is told, too."""
        return NOTHING

    def population(self, count: int) -> Sequence[Command]:
        """Do nothing, for the same reason."""
        return NOTHING


def _nobody(client_id: str, codec: Codec, now: float) -> None:
    """Accept nobody, for now."""
