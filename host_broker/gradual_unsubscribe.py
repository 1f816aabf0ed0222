"""Subscriptions of connections that had many end step by step, while others are served.

Each that ends may be announced to somebody; ten thousand of them in one call would keep everybody
waiting for 80 ms. The edge sends nothing to connections that are leaving.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Generic, TypeVar

from host_broker.bus.bus import Bus
from host_broker.bus.subscriptions import Interest
from host_broker.outputs import ConnectionId

C = TypeVar("C")

_STEP = 256  # subscriptions that end in one call: about 2 ms


class GradualUnsubscribe(Generic[C]):
    """One connection after the other, so that what each of them announces stays together.

    ``due``: when ``step`` is to be called; None = nobody is leaving.
    """

    def __init__(self, bus: Bus) -> None:
        self.due: float | None = None
        self._bus = bus
        self._leaving: dict[ConnectionId, tuple[C, Iterator[Interest | None]]] = {}

    def __contains__(self, connection: ConnectionId) -> bool:
        """Whether a connection is leaving, and not gone yet."""
        return connection in self._leaving

    def is_needed(self, connection: ConnectionId) -> bool:
        """Whether a connection has more subscriptions than one call should end."""
        return self._bus.subscription_count(connection) > _STEP

    def begin(self, connection: ConnectionId, client: C, now: float) -> None:
        """Unsubscribe a connection that is served no more, and is not leaving yet."""
        self._leaving[connection] = client, self._bus.detach(connection)
        self.due = now

    def step(self, now: float) -> list[tuple[C, Interest | None]]:
        """Go on with whoever began first; returns the interests that ended, and whose they were."""
        connection, (client, interests) = next(iter(self._leaving.items()))
        ended = [(client, interest) for interest in islice(interests, _STEP)]
        if len(ended) < _STEP:
            del self._leaving[connection]
        self.due = now if self._leaving else None
        return ended
