"""One connection through the proxy, without I/O: bytes and endings in, bytes and endings out.

Time is an argument: ns of one monotonic clock. An ending travels behind the bytes before it, as a
FIN or a RST does on a line, and is delayed and held back like them.
"""

from collections import deque
from dataclasses import dataclass, field

from boards.faults.trace import How, Side, Trace

# Per direction; above it the sender is not read, so that it feels the back-pressure.
BUFFER_LIMIT = 65536
_LINGER_NS = (
    2_000_000_000  # for the ends to answer a FIN with theirs; then the connection is closed
)


@dataclass(slots=True)
class _Way:
    """What one side sent and the other has not got yet."""

    waiting: deque[tuple[int, bytes]] = field(default_factory=deque)  # due, data
    out: bytearray = field(default_factory=bytearray)
    size: int = 0
    ended: How = ""
    ended_due: int = 0
    told: How = ""


def other(side: Side) -> Side:
    """Return the far side."""
    return "broker" if side == "client" else "client"


class Relay:
    """A connection between a client and its broker.

    The owner reads a side only while ``reads(side)``, hands on ``out(side)`` and reports it with
    ``sent``, does what ``take_endings`` says, dials the broker when ``wants_broker``, and closes
    both sides when ``finished``. ``held``: a black hole, nothing passes and nothing is lost.
    """

    def __init__(self, trace: Trace, *, delay_ns: int = 0, held: bool = False) -> None:
        self.trace = trace
        self.delay_ns = delay_ns
        self.held = held
        self._from: dict[Side, _Way] = {"client": _Way(), "broker": _Way()}
        self._endings: list[tuple[Side, How]] = []
        self._linger_until = 0

    @property
    def wants_broker(self) -> bool:
        """True until the broker was dialled, unless the line is dead."""
        trace = self.trace
        return not (self.held or trace.dialled_ns or trace.dial_error or self._linger_until)

    def dialled(self, now: int) -> None:
        """Note that the broker took the connection."""
        self.trace.dialled_ns = now

    def dial_failed(self, reason: str, now: int) -> None:
        """End it towards the client with a RST: nobody is there."""
        self.trace.dial_error = reason
        self._tell("client", "rst", now)
        self._linger_until = now

    def reads(self, side: Side) -> bool:
        """Return whether ``side`` may be read now."""
        way = self._from[side]
        if way.ended:
            return False
        if self._linger_until:
            return True  # to hear its end; what it says is dropped
        return not self.held and way.size < BUFFER_LIMIT

    def received(self, side: Side, data: bytes, now: int) -> None:
        """Take what ``side`` sent."""
        self.trace.came(side, len(data), now)
        if self._linger_until:
            return
        way = self._from[side]
        way.size += len(data)
        way.waiting.append((now + self.delay_ns, data))

    def ended(self, side: Side, how: How, now: int) -> None:
        """Take the end of what ``side`` sends: a FIN or a RST."""
        way = self._from[side]
        if way.ended:
            return
        way.ended, way.ended_due = how, now + self.delay_ns
        self.trace.ended(side, how, now)
        if how == "rst":
            # There is nobody left to take what the other side says.
            self._from[other(side)] = _Way(ended="rst", told="rst")
            if not self.trace.dialled_ns:
                way.told = "rst"
                self._tell(other(side), "rst", now)  # it may be being dialled

    def cut(self, how: How, now: int) -> None:
        """End it now towards both sides, whatever was under way. ``rst`` closes it at once."""
        self.trace.cut = True
        for side, way in self._from.items():
            way.waiting.clear()
            way.out.clear()
            way.size = 0
            self._tell(side, how, now)
        self._linger_until = now + (_LINGER_NS if how == "fin" else 0)

    def out(self, side: Side) -> bytearray:
        """Return what ``side`` is to be sent now; ``tick`` fills it."""
        return self._from[other(side)].out

    def sent(self, side: Side, count: int, now: int) -> None:
        """Note that ``side`` took ``count`` bytes of ``out(side)``."""
        way = self._from[other(side)]
        del way.out[:count]
        way.size -= count
        self.trace.went(side, count, now)

    def tick(self, now: int) -> None:
        """Let pass what is due."""
        if self.held or self._linger_until:
            return
        for side, way in self._from.items():
            while way.waiting and way.waiting[0][0] <= now:
                way.out += way.waiting.popleft()[1]
            if not way.ended or way.told or way.waiting or way.ended_due > now:
                continue
            if not self.trace.dialled_ns:
                continue
            # A RST overtakes what the kernel did not take: it is lost there as well.
            if way.ended == "rst" or not way.out:
                way.out.clear()
                way.told = way.ended
                self._tell(other(side), way.ended, now)

    def take_endings(self) -> list[tuple[Side, How]]:
        """Return which sides have to be told of an end now, and how."""
        endings, self._endings = self._endings, []
        return endings

    def next_deadline(self) -> int | None:
        """Return when ``tick`` or ``finished`` is due, None if only bytes can change anything."""
        if self._linger_until:
            return self._linger_until
        if self.held:
            return None
        due = [way.waiting[0][0] for way in self._from.values() if way.waiting]
        due += [way.ended_due for way in self._from.values() if way.ended and not way.told]
        return min(due, default=None)

    def finished(self, now: int) -> bool:
        """Return whether both sides can be closed."""
        ways = self._from.values()
        if self._linger_until:
            return now >= self._linger_until or all(way.ended for way in ways)
        return all(way.told for way in ways)

    def _tell(self, side: Side, how: How, now: int) -> None:
        self.trace.told(side, how, now)
        self._endings.append((side, how))
