"""A LightMQ client of a desk: says frames, hears events."""

from typing import Any

from host_broker.protocols.lightmq.codec import Codec
from host_broker.protocols.lightmq.dialects import DialectName
from host_broker.protocols.lightmq.events import Connack, Send
from tests.host_broker.desk import Desk


class Peer:
    """Speaks a dialect to a listener (``lightmq`` or ``lightmq+fmqp``) of a desk."""

    def __init__(
        self, desk: Desk, dialect: DialectName = "spec", *, listener: str = "lightmq"
    ) -> None:
        self.desk = desk
        self.codec = Codec("client", dialect)
        self.connection = desk.open(listener)
        self._early: list[Any] = []  # events that came with the CONNACK

    def connect(self, client_id: str) -> Connack:
        """Say CONNECT; returns the CONNACK, which nothing may come before."""
        connack, *self._early = self.say(self.codec.connect(client_id))
        assert isinstance(connack, Connack)
        return connack

    def say(self, data: bytes) -> list[Any]:
        """Send bytes and return the events that came."""
        self.desk.send(self.connection, data)
        return self.heard()

    def heard(self) -> list[Any]:
        """Return the events that came since the last time."""
        early, self._early = self._early, []
        return [*early, *self.codec.receive_data(self.desk.got(self.connection))]

    def sends(self) -> list[Send]:
        """Return the SENDs that came since the last time; nothing else may have come."""
        heard = self.heard()
        assert all(isinstance(event, Send) for event in heard), heard
        return heard

    @property
    def closed(self) -> bool:
        return self.why_closed != ""

    @property
    def why_closed(self) -> str:
        """Why the broker asked for the close; "" if it did not."""
        reasons = [c.reason for c in self.desk.closes if c.connection == self.connection]
        assert len(reasons) < 2
        return reasons[0] if reasons else ""


def board(desk: Desk, client_id: str, *, listener: str = "lightmq") -> Peer:
    """Connect a client that is accepted."""
    peer = Peer(desk, listener=listener)
    assert peer.connect(client_id).accepted
    return peer
