"""MicroMsg2 in one broker: makes its sessions."""

from collections.abc import Sequence

from host_broker.outputs import ConnectionId
from host_broker.protocol import BrokerContext, ProtocolServer
from host_broker.protocols.micromsg2.events import Extension
from host_broker.protocols.micromsg2.extensions import (
    ACK,
    BATCH_ACK,
    DOTNET,
    JSON,
    LOGIN,
    PUBSUB,
    WINDOW_KEY,
)
from host_broker.protocols.micromsg2.negotiation import Offer
from host_broker.protocols.micromsg2.session import MicroMsg2Session, Refusing
from host_broker.protocols.micromsg2.settings import MicroMsg2Settings
from host_broker.protocols.micromsg2.vendor import (
    VendorExtension,
    installed_extensions,
    registry_of,
)

IDENTITY = "motemq"


class MicroMsg2Server(ProtocolServer):
    """Sessions share nothing but what the broker offers and its memory.

    ``vendors``: extensions from outside; None: those of installed packages.
    """

    def __init__(
        self,
        settings: MicroMsg2Settings,
        context: BrokerContext,
        vendors: Sequence[VendorExtension] | None = None,
    ) -> None:
        self._settings = settings
        self._max_body = context.bus.max_body
        self._held = context.held
        window = Extension(BATCH_ACK, ((WINDOW_KEY, str(settings.window)),))
        others = (Extension(name) for name in (ACK, DOTNET, JSON, LOGIN, PUBSUB))
        self._vendors = installed_extensions() if vendors is None else tuple(vendors)
        said = {
            policy: tuple(
                Extension(each.name, each.properties)
                for each in self._vendors
                if each.policy == policy
            )
            for policy in ("required", "suggested", "accepted")
        }
        self._offer = Offer(
            IDENTITY,
            required=said["required"],
            optional=said["suggested"],
            accepted=(window, *others, *said["accepted"]),
            registry=registry_of(self._vendors),
        )

    def session(self, connection: ConnectionId, now: float, loopback: bool) -> MicroMsg2Session:
        """Begin a connection, which must end its handshake in time."""
        return MicroMsg2Session(
            self._settings, self._offer, self._max_body, self._held, now, self._vendors
        )

    def refusing(self, connection: ConnectionId, now: float) -> Refusing:
        """Begin a connection that is only told that the broker is stopping."""
        return Refusing()

    def settings_changed(self, settings: MicroMsg2Settings) -> None:
        """Do nothing: they hold until a restart."""
