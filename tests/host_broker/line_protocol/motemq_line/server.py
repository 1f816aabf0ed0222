"""The line protocol in one broker: makes its sessions."""

from host_broker.outputs import ConnectionId
from host_broker.protocol import BrokerContext, ProtocolServer
from motemq_line.codec import Codec
from motemq_line.session import LineSession, Refusal
from motemq_line.settings import LineSettings


class LineServer(ProtocolServer):
    """Sessions share nothing but the settings and the broker's memory."""

    def __init__(self, settings: LineSettings, context: BrokerContext) -> None:
        self.idle_timeout_s = settings.idle_timeout_s
        self._settings = settings
        self._held = context.held
        # A body is a part of its line, so that none is longer than the bus allows.
        self._max_line = min(settings.max_line, context.bus.max_body)

    def session(self, connection: ConnectionId, now: float, loopback: bool) -> LineSession:
        """Begin a connection."""
        codec = Codec(self._max_line, self._settings.max_errors, self._held)
        return LineSession(codec, self._held, self._settings.queue_messages)

    def refusing(self, connection: ConnectionId, now: float) -> Refusal:
        """Begin a connection that is only told that the broker is stopping."""
        return Refusal()
