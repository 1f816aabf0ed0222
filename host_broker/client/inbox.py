"""Messages that have come and were not taken yet, with marks between them."""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from host_broker.client_session import Message

OVERHEAD_BYTES = 256  # what a small message costs beside its payload


@dataclass(frozen=True, slots=True)
class Mark:
    """At this place a subscription became active, or was interrupted."""

    subscription: int
    active: bool


@dataclass(frozen=True, slots=True)
class Behind:
    """What follows, up to the next of these, was told of this subscription; None: of any."""

    subscription: int | None


Item = Message | Mark | Behind


class Inbox:
    """Not safe by itself: its user holds a lock. ``waiting``: tasks that wait for more.

    ``in_hand``: the message that was taken last, if the broker is to be told when the program has
    finished with it, which is when it asks for the next one.
    """

    def __init__(self) -> None:
        self.items: deque[Item] = deque()
        self.in_hand: Message | None = None
        self.waiting: list[asyncio.Future[None]] = []

    def put(self, items: Iterable[Item]) -> None:
        """Add; in the loop's thread, because it wakes tasks."""
        self.items.extend(items)
        if self.waiting:
            self.wake()

    def wake(self) -> None:
        """Let every waiting task look again."""
        for waiting in self.waiting:
            if not waiting.done():
                waiting.set_result(None)
        self.waiting.clear()
