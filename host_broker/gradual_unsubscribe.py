"""Subscriptions of subscribers that had many end step by step, while others are served.

Each that ends may be announced to somebody; ten thousand of them in one call would keep everybody
waiting for 80 ms. The edge sends nothing to connections that are leaving, and the broker puts
nothing into a queue that was deleted.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Generic, TypeVar

from host_broker.bus.bus import Bus
from host_broker.bus.subscriptions import Interest, SubscriberId

C = TypeVar("C")

_STEP = 256  # subscriptions that end in one call: about 2 ms


class GradualUnsubscribe(Generic[C]):
    """One subscriber after the other, so that what each of them announces stays together.

    ``due``: when ``step`` is to be called; None = nobody is leaving.
    """

    def __init__(self, bus: Bus) -> None:
        self.due: float | None = None
        self._bus = bus
        self._leaving: dict[SubscriberId, tuple[C, Iterator[Interest | None]]] = {}

    def __contains__(self, subscriber: SubscriberId) -> bool:
        """Whether a subscriber is leaving, and not gone yet."""
        return subscriber in self._leaving

    def is_needed(self, subscriber: SubscriberId) -> bool:
        """Whether a subscriber has more subscriptions than one call should end."""
        return self._bus.subscription_count(subscriber) > _STEP

    def begin(self, subscriber: SubscriberId, client: C, now: float) -> None:
        """Unsubscribe what is served no more, and is not leaving yet; ``client`` announces it."""
        self._leaving[subscriber] = client, self._bus.detach(subscriber)
        self.due = now

    def step(self, now: float) -> list[tuple[C, Interest | None]]:
        """Go on with whoever began first; returns the interests that ended, and whose they were."""
        subscriber, (client, interests) = next(iter(self._leaving.items()))
        ended = [(client, interest) for interest in islice(interests, _STEP)]
        if len(ended) < _STEP:
            del self._leaving[subscriber]
        self.due = now if self._leaving else None
        return ended
