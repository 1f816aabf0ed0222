"""Messages on their way to a broker, through as many connections as it takes."""

from collections import deque
from collections.abc import Callable

from host_broker.cli.outlet import Outlet
from host_broker.cli.reconnecting import Reconnection
from host_broker.client import ClientError

_MARK_EVERY = 100  # messages; fewer cost more echoes, more cost more repetitions
_MOST_MESSAGES = 1000
_MOST_BYTES = 4 * 1024 * 1024


class Delivery:
    """Sends in order. With ``reconnection.again`` a lost connection is replaced by another, and
    what the broker has not shown to have processed is sent again.

    So every message arrives, and a few may arrive twice. FMQP acknowledges nothing; what shows
    that messages were processed is a message to ourselves that was sent after them. At most
    1000 messages or 4 MiB (and one message more) are held for that.
    """

    def __init__(
        self,
        connect: Callable[[], Outlet],
        reconnection: Reconnection,
        say: Callable[[str], None],
        *,
        repeat_all: bool = False,
        repeat_last: bool = False,
    ) -> None:
        """``connect`` returns a new outlet with its will and feedback.

        ``repeat_all``: messages are wills, each new connection needs them. ``repeat_last``: the
        last one is sent on each new connection, because a will has replaced it meanwhile.
        """
        self.sent = 0  # messages, each counted once
        self.sent_bytes = 0  # of their payloads
        self.processed = False  # all of it, by the broker
        self._connect = connect
        self._reconnection = reconnection
        self._say = say
        self._repeat_all = repeat_all
        self._repeat_last = repeat_last
        self._asks = reconnection.again and not repeat_all  # what was processed, to drop it
        self._outlet: Outlet | None = None
        self._held: deque[bytes] = deque()
        self._held_bytes = 0
        self._on_way = 0  # of those held, how many this connection has taken
        self._released = 0  # how many were ever dropped from the front of those held
        self._marks: deque[tuple[int, int]] = deque()  # a mark, and what may be dropped then
        self._last: bytes | None = None

    @property
    def unconfirmed(self) -> int:
        """Messages of which nobody knows whether they arrived."""
        return len(self._held)

    def open(self) -> None:
        """Connect. Like all that follows: raises ``ClientError`` when there is no next try."""
        self._steadily(None)

    def send(self, payload: bytes) -> None:
        """Send a message; it is held before, so that no loss can miss it."""
        self._last = payload
        self._hold(payload)
        self.processed = False
        self._steadily(None)
        self.sent += 1
        self.sent_bytes += len(payload)

    def watch(self, until: float = 0.0) -> None:
        """Listen to the broker until then (monotonic()), once in any case."""

        def act(outlet: Outlet) -> None:
            outlet.watch(until)
            if self._asks and self._on_way and not self._marks:
                self._mark(outlet)  # nothing new comes: find out soon

        self._steadily(act)

    def finish(self) -> None:
        """Return when the broker has processed everything."""
        self._steadily(lambda outlet: outlet.finish())
        self._release(self._released + len(self._held))
        self.processed = True

    def close(self) -> None:
        """Close the connection; the broker publishes the wills."""
        if self._outlet is not None:
            self._outlet.close()
            self._outlet = None

    def _steadily(self, act: Callable[[Outlet], None] | None) -> None:
        while True:
            try:
                outlet = self._outlet or self._new_outlet()
                self._send_held(outlet)
                if act is not None:
                    act(outlet)
                self._look_back(outlet)
                return
            except ClientError as error:
                self.close()
                self._reconnection.lost(error)

    def _new_outlet(self) -> Outlet:
        outlet = self._outlet = self._connect()
        self._on_way = 0
        self._marks.clear()
        if self._reconnection.again:
            outlet.finish()  # a port that accepts and hangs up is no broker: wait longer then
            if self._reconnection.well():
                self._say("connected again")
            if self._repeat_last and not self._held and self._last is not None:
                self._hold(self._last)
        return outlet

    def _send_held(self, outlet: Outlet) -> None:
        while self._on_way < len(self._held):
            processed = outlet.send(self._held[self._on_way])
            self._on_way += 1
            if processed or not self._reconnection.again:
                self._release(self._released + 1)
            elif len(self._held) >= _MOST_MESSAGES or self._held_bytes >= _MOST_BYTES:
                outlet.finish()
                self._release(self._released + self._on_way)
            elif self._on_way % _MARK_EVERY == 0:
                self._mark(outlet)

    def _mark(self, outlet: Outlet) -> None:
        self._marks.append((outlet.mark(), self._released + self._on_way))

    def _look_back(self, outlet: Outlet) -> None:
        while self._marks and self._marks[0][0] <= outlet.reached:
            self._release(self._marks.popleft()[1])

    def _hold(self, payload: bytes) -> None:
        self._held.append(payload)
        self._held_bytes += len(payload)

    def _release(self, until: int) -> None:
        if self._repeat_all:
            return
        while self._released < until:
            self._held_bytes -= len(self._held.popleft())
            self._released += 1
            self._on_way = max(0, self._on_way - 1)
