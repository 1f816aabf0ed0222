"""LightMQ in one broker: its sessions, in two kinds, and what they share."""

from collections.abc import Sequence

from host_broker.bus.commands import Command
from host_broker.bus.subscriptions import Interest
from host_broker.outputs import ConnectionId
from host_broker.protocol import NOTHING, BrokerContext, ProtocolServer
from host_broker.protocols.lightmq.admission import Admission
from host_broker.protocols.lightmq.caller import MARK, Caller
from host_broker.protocols.lightmq.codec import Codec
from host_broker.protocols.lightmq.mailbox import Mailbox
from host_broker.protocols.lightmq.paths import level
from host_broker.protocols.lightmq.role import Role
from host_broker.protocols.lightmq.session import LightmqSession
from host_broker.protocols.lightmq.settings import LightmqSettings
from host_broker.protocols.lightmq.shared import Shared
from host_broker.protocols.lightmq.tunnel import Tunnel
from host_broker.protocols.lightmq.unseen import Unseen


class LightmqServer(ProtocolServer):
    """Makes sessions of clients that are themselves on the bus, or call one that is."""

    idle_timeout_s = 0.0  # it PINGs
    stored_form = False

    def __init__(self, settings: LightmqSettings, context: BrokerContext) -> None:
        self.shared = Shared(
            settings, context.random_u16, context.held, Admission(settings.clients)
        )

    def session(self, connection: ConnectionId, now: float, loopback: bool) -> LightmqSession:
        """Begin a connection, which must say CONNECT in time."""
        shared = self.shared

        def accept(client_id: str, codec: Codec, now: float) -> Role | None:
            settings = shared.settings
            name, mark, called = client_id.partition(MARK)
            if not (mark and settings.calls):
                return Mailbox(level(client_id), codec, shared)

            def connected() -> bool:
                there = shared.named.get(called)
                return there is not None and there.callable

            if not called:
                return Unseen(level(name), codec, shared)
            if not connected():
                return None
            return Caller(connection, called, codec, settings.max_pending, connected)

        return LightmqSession(connection, shared, accept, now)

    def refusing(self, connection: ConnectionId, now: float) -> LightmqSession:
        """Begin a connection whose CONNECT is answered with "unavailable"."""
        return LightmqSession(connection, self.shared, _refuse_all, now)

    def settings_changed(self, settings: LightmqSettings) -> None:
        """Take another list of clients."""
        self.shared.admission.change(settings.clients)

    def interest(self, interest: Interest) -> Sequence[Command]:
        """Note who wants to answer clients."""
        self.shared.responders.changed(interest)
        return NOTHING

    def client_count(self, count: int) -> Sequence[Command]:
        """Do nothing: LightMQ has no word for it."""
        return NOTHING


class TunnelServer(ProtocolServer):
    """Makes sessions whose SENDs carry another protocol, for clients with the same names."""

    idle_timeout_s = 0.0
    stored_form = False

    def __init__(self, shared: Shared, inner: ProtocolServer) -> None:
        self._shared = shared
        self._inner = inner

    def session(self, connection: ConnectionId, now: float, loopback: bool) -> LightmqSession:
        """Begin a connection; the one it carries begins when the client is accepted."""

        def accept(client_id: str, codec: Codec, now: float) -> Role:
            present = not (self._shared.settings.calls and client_id.endswith(MARK))
            inner = self._inner.session(connection, now, loopback)
            return Tunnel(inner, codec, self._shared, present)

        return LightmqSession(connection, self._shared, accept, now)

    def refusing(self, connection: ConnectionId, now: float) -> LightmqSession:
        """Begin a connection whose CONNECT is answered with "unavailable"."""
        return LightmqSession(connection, self._shared, _refuse_all, now)

    def settings_changed(self, settings: LightmqSettings) -> None:
        """Do nothing: they are shared."""

    def interest(self, interest: Interest) -> Sequence[Command]:
        """Do nothing: the server of what is tunnelled is told, too."""
        return NOTHING

    def client_count(self, count: int) -> Sequence[Command]:
        """Do nothing, for the same reason."""
        return NOTHING


def _refuse_all(client_id: str, codec: Codec, now: float) -> None:
    """Accept nobody, for now."""
