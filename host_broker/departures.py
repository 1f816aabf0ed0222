"""Subscriptions of connections that had many end step by step, while others are served.

Each that ends may be announced to somebody; ten thousand of them in one call would keep everybody
waiting for 80 ms. The edge sends nothing to those who leave.
"""

from collections.abc import Iterator
from itertools import islice

from host_broker.bus.exchange import Exchange
from host_broker.bus.subscriptions import Interest
from host_broker.clients import Client
from host_broker.outputs import ConnectionId

_STEP = 256  # subscriptions that end in one call: about 2 ms


class Departures:
    """One after the other, so that what each of them announces stays together.

    ``due``: when ``step`` is to be called; None = nobody is leaving.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.due: float | None = None
        self._exchange = exchange
        self._leaving: dict[ConnectionId, tuple[Client, Iterator[Interest | None]]] = {}

    def __contains__(self, connection: ConnectionId) -> bool:
        """Whether a connection is leaving, and not gone yet."""
        return connection in self._leaving

    def worth_it(self, connection: ConnectionId) -> bool:
        """Whether a connection has more subscriptions than one call should end."""
        return self._exchange.subscription_count(connection) > _STEP

    def begin(self, client: Client, now: float) -> None:
        """Have a client leave that is served no more, and is not leaving yet."""
        self._leaving[client.connection] = client, self._exchange.detach(client.connection)
        self.due = now

    def step(self, now: float) -> list[tuple[Client, Interest | None]]:
        """Go on with whoever began first; returns the interests that ended, and whose they were."""
        connection, (client, interests) = next(iter(self._leaving.items()))
        ended = [(client, interest) for interest in islice(interests, _STEP)]
        if len(ended) < _STEP:
            del self._leaving[connection]
        self.due = now if self._leaving else None
        return ended
