"""Subscriptions of connections that had many end step by step, while others are served.

Each that ends may be announced to somebody; ten thousand of them in one call would keep everybody
waiting for 80 ms. The edge sends nothing to those who leave.
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

    def begin(self, client: Client) -> None:
        """Have a client leave that the broker knows no more; ``step`` must be called soon."""
        client.closing = True
        client.steps = 0  # its wills are searched for as anybody's
        self._leaving.append((client, self._exchange.detach(client.connection)))

    def step(self, execution: Execution, now: float) -> None:
        """Go on with whoever began first."""
        client, interests = self._leaving[0]
        ended = 0
        for interest in islice(interests, _STEP):
            execution.interest(client, interest)
            ended += 1
        if ended < _STEP:
            self._leaving.popleft()
        self.due = now if self._leaving else None
