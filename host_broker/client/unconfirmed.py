"""Publications of which nobody knows yet whether the broker has them. No clock, no sockets."""

from collections import deque
from collections.abc import Iterator

from host_broker.client_session import Publication

MOST_MESSAGES = 1000
MOST_BYTES = 4 * 1024 * 1024
_MARK_EVERY = 100  # messages; fewer cost more questions, more cost more repetitions


class Unconfirmed:
    """Holds what was published until the broker has shown to have processed it.

    So every message reaches a broker, and a few may do so twice. What shows it is an operation that
    was begun after them: a mark. At most 1000 messages or 4 MiB (and one message more) are held.
    """

    def __init__(self) -> None:
        self._held: deque[Publication] = deque()
        self._held_bytes = 0
        self._released = 0  # how many were ever dropped from the front
        self._marked = 0  # how many, from the first ever, the latest mark is about
        self._marks: dict[int, int] = {}  # operation: how many may be dropped then

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Publication]:
        return iter(self._held)

    @property
    def full(self) -> bool:
        """Whether a mark must be answered before the next message."""
        return len(self._held) >= MOST_MESSAGES or self._held_bytes >= MOST_BYTES

    @property
    def wants_mark(self) -> bool:
        """Whether a mark is due: many messages have none, or some have and nothing is under way."""
        without = self._released + len(self._held) - self._marked
        return without >= _MARK_EVERY or (without > 0 and not self._marks)

    def hold(self, publication: Publication) -> None:
        """Remember a message, before it is sent: so no loss can miss it."""
        self._held.append(publication)
        self._held_bytes += len(publication.payload)

    def mark(self, operation: int) -> None:
        """The operation began after everything held now."""
        self._marked = self._marks[operation] = self._released + len(self._held)

    def reached(self, operation: int) -> None:
        """The operation was answered: the broker has all that was held when it began."""
        until = self._marks.pop(operation, 0)
        while self._released < until:
            self._held_bytes -= len(self._held.popleft().payload)
            self._released += 1

    def lost(self) -> None:
        """The connection has ended: no mark will be answered, all must be sent again."""
        self._marks.clear()
        self._marked = self._released
