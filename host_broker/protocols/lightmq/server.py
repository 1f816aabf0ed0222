"""LightMQ in one broker: its sessions, and who is connected under which name (R8)."""

from collections.abc import Callable, Sequence

from host_broker.bus.commands import Command
from host_broker.bus.subscriptions import Interest
from host_broker.outputs import ConnectionId
from host_broker.protocols.lightmq.session import LightmqSession
from host_broker.protocols.session import NOTHING
from host_broker.settings import LightmqSettings


class LightmqServer:
    """Makes sessions, which share the table of names and the source of ids."""

    journal_code = 2

    def __init__(self, settings: LightmqSettings, random_u16: Callable[[], int]) -> None:
        self._settings = settings
        self._random_u16 = random_u16
        self._named: dict[str, LightmqSession] = {}

    def session(self, connection: ConnectionId, now: float, loopback: bool) -> LightmqSession:
        """Begin a connection, which must say CONNECT in time."""
        return LightmqSession(connection, self._settings, self._named, self._random_u16, now)

    def interest(self, interest: Interest) -> Sequence[Command]:
        """Do nothing: LightMQ has no word for it."""
        return NOTHING

    def population(self, count: int) -> Sequence[Command]:
        """Do nothing: LightMQ has no word for it."""
        return NOTHING
