"""When which connection wants a tick: cheap when deadlines only move back, as they mostly do."""

from collections.abc import Iterator
from heapq import heappop, heappush

from host_broker.outputs import ConnectionId


class Deadlines:
    """A heap with at most a few entries per connection.

    A deadline that moves back keeps its old entry and is looked at again when that comes up; so a
    busy connection costs nothing per read, and ``next`` may be early but never late.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, ConnectionId]] = []
        self._wanted: dict[ConnectionId, float] = {}
        self._entered: dict[ConnectionId, float] = {}

    def renew(self, connection: ConnectionId, deadline: float | None) -> None:
        """Set or (None) drop a connection's deadline. Raises TypeError for what is no time."""
        if deadline is None:
            self._wanted.pop(connection, None)
            return
        is_earlier = deadline < self._entered.get(connection, float("inf"))
        self._wanted[connection] = deadline
        if is_earlier:
            self._enter(connection, deadline)

    def next(self) -> float | None:
        """Return when to look again."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> Iterator[ConnectionId]:
        """Give, once each, the connections whose deadline has come."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            entered, connection = heappop(self._heap)
            if self._entered.get(connection) != entered:
                continue  # overtaken by an earlier entry
            del self._entered[connection]
            wanted = self._wanted.get(connection)
            if wanted is None:
                continue
            if wanted <= now:
                del self._wanted[connection]
                found.append(connection)
            elif wanted > now:  # what is no number never comes, and has no place in a heap
                self._enter(connection, wanted)
        yield from found

    def _enter(self, connection: ConnectionId, deadline: float) -> None:
        self._entered[connection] = deadline
        heappush(self._heap, (deadline, connection))
