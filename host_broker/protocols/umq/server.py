"""UMQ in one broker: makes its sessions."""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from host_broker.bus.commands import Command
from host_broker.bus.subscriptions import Interest
from host_broker.outputs import ConnectionId
from host_broker.protocol import NOTHING, BrokerContext, ProtocolServer
from host_broker.protocols.umq.session import Misdirected, Refusal, UmqSession
from host_broker.protocols.umq.settings import UmqSettings
from host_broker.protocols.umq.shared import UmqShared


class UmqServer(ProtocolServer):
    """Its connections share what they may look at, and who takes calls."""

    def __init__(self, settings: UmqSettings, context: BrokerContext) -> None:
        self._shared = UmqShared(settings, context, f"MoteMQ {_version()}")

    def session(self, connection: ConnectionId, now: float, loopback: bool) -> UmqSession:
        """Begin a connection, which begins with a request for a WebSocket."""
        return UmqSession(self._shared, connection, now)

    def internal(self, connection: ConnectionId, now: float) -> Misdirected:
        """Begin a connection for a page."""
        return Misdirected()

    def refusing(self, connection: ConnectionId, now: float) -> Refusal:
        """Begin a connection that is only told that the broker is stopping."""
        return Refusal()

    def interest(self, interest: Interest) -> Sequence[Command]:
        """Note who takes calls."""
        self._shared.interested(interest)
        return NOTHING


def _version() -> str:
    try:
        return version("motemq")
    except PackageNotFoundError:
        return "unknown"
