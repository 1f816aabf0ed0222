"""FMQP inside LightMQ: a LightMQ connection as the line of an ``FmqpClient``."""

import time

from host_broker.client.errors import ConnectionLost
from host_broker.client.lightmq import LightmqClient
from host_broker.protocols.lightmq.codec import MAX_SEND


class CarriedLine:
    """A ``Line``: what is sent are SENDs, what the broker SENDs is read and acknowledged.

    The broker PINGs; it is answered while the client reads. So a program that reads nothing for
    longer than the broker's patience is disconnected, and its last wills are published.
    """

    def __init__(self, session: LightmqClient) -> None:
        """``session`` is for this alone."""
        self.address = session.address
        self._session = session
        self._heard = False  # FMQP, not only LightMQ

    def send(self, data: bytes, deadline: float) -> None:
        """See ``Line``."""
        for start in range(0, len(data), MAX_SEND):
            left_s = max(0.0, deadline - time.monotonic())
            self._session.post(data[start : start + MAX_SEND], left_s)

    def read(self, deadline: float) -> bytes | None:
        """See ``Line``."""
        while True:
            request = self._session.receive(max(0.0, deadline - time.monotonic()))
            if request is None:
                return None
            self._session.respond(request, b"")
            if request.data:
                self._heard = True
                return request.data

    def close(self) -> None:
        """See ``Line``."""
        self._session.close()

    def abort(self) -> None:
        """See ``Line``."""
        self._session.abort()

    def broken(self, reason: str) -> ConnectionLost:
        """See ``Line``."""
        self.abort()
        return ConnectionLost(f"{self.address}: {reason}{self.doubt()}")

    def doubt(self) -> str:
        """See ``Line``. A listener for LightMQ accepts us, and understands nothing else."""
        return "" if self._heard else "; does the broker listen for lightmq+fmqp there?"
