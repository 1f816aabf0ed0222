"""Connections that ended with many subscriptions leave step by step, while others are served.

Each subscription that ends may be announced to somebody; ten thousand of them in one call would
keep everybody waiting for 80 ms. Nothing is sent to those who leave: their sockets are closed.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice

from host_broker.bus.exchange import Exchange
from host_broker.bus.subscriptions import Interest
from host_broker.execution import Client, Execution
from host_broker.outputs import ConnectionId

_STEP = 256  # subscriptions that end in one call: about 2 ms


class Departures:
    """One after the other, so that what each of them announces stays together.

    ``due``: when ``step`` is to be called; None = nobody is leaving.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.due: float | None = None
        self._exchange = exchange
        self._leaving: deque[tuple[Client, Iterator[Interest | None]]] = deque()

    def worth_it(self, connection: ConnectionId) -> bool:
        """Whether a connection has more subscriptions than one call should end."""
        return self._exchange.subscription_count(connection) > _STEP

    def begin(self, client: Client, now: float) -> None:
        """Have a client leave that the broker knows no more."""
        client.closing = True
        client.steps = 0  # its wills are searched for as anybody's
        self._leaving.append((client, self._exchange.detach(client.connection)))
        self.due = now

    def step(self, execution: Execution, now: float) -> Client | None:
        """Go on with whoever began first; returns it when it has left the bus."""
        client, interests = self._leaving[0]
        ended = 0
        for interest in islice(interests, _STEP):
            execution.interest(client, interest)
            ended += 1
        self.due = now
        if ended == _STEP:
            return None
        self._leaving.popleft()
        if not self._leaving:
            self.due = None
        return client
