"""The two halves of a session's sliding window (LINK.md, "Sending and receiving").

Both are pure: frames' numbers, bytes and the time in seconds in, answers out.
"""

from collections import deque
from dataclasses import dataclass

from boards.bridge.reliable_frame import WINDOW

_FIRST_RTT_S = 0.2
_LEAST_S = 0.01
SLACK_S = 0.05  # of a busy computer
_NEWS = 4  # so much growth of the room is told at once


@dataclass(slots=True)
class _Kept:
    """A frame that is not acknowledged. ``order``: of its last transmission, 0: to be sent."""

    payload: bytes
    order: int = 0
    sent_before: bool = False


class SendWindow:
    """What was given to send and is not yet acknowledged: ``WINDOW`` frames at most.

    ``size``: bytes of payload that the peer takes per frame; ``room``: frames it takes now;
    ``patience_s``: without an acknowledgement of anything new, then it is ``stuck``.
    """

    def __init__(self, size: int, room: int, patience_s: float, now: float) -> None:
        self.resent = 0
        self._moved = now  # when the peer last acknowledged anything new, or owed nothing
        self._size = size
        self._room = room
        self._patience_s = patience_s
        self._base = self._number = 0  # the oldest that is kept; the next new one
        self._kept: dict[int, _Kept] = {}
        self._order = self._read = 0
        self._rtt = _FIRST_RTT_S
        self._timed: tuple[int, float] | None = None  # one transmission, and when it was
        self._last_sent = now
        self._tries = 0

    @property
    def number(self) -> int:
        """The number of the next new frame."""
        return self._number

    @property
    def transmissions(self) -> int:
        """How many frames have gone, those that went again counted again."""
        return self._order

    @property
    def read(self) -> int:
        """The newest of these that the peer has; a line does not reorder: none before it is on it.

        Those before it that the peer has not were lost.
        """
        return self._read

    @property
    def empty(self) -> bool:
        """True when all that was queued has been acknowledged."""
        return self._base == self._number

    @property
    def free(self) -> int:
        """How many bytes ``queue`` would take now at least."""
        return (WINDOW - self._count(self._number)) * self._size

    def queue(self, data: bytes, now: float) -> int:
        """Keep as much of ``data`` as fits, return how many bytes that is (perhaps 0)."""
        if self.empty:
            self._moved = self._last_sent = now
        taken = 0
        last = self._kept.get((self._number - 1) & 255)
        if last is not None and not last.sent_before:
            taken = min(len(data), self._size - len(last.payload))
            last.payload += data[:taken]
        while taken < len(data) and self._count(self._number) < WINDOW:
            payload = data[taken : taken + self._size]
            self._kept[self._number] = _Kept(payload)
            self._number = (self._number + 1) & 255
            taken += len(payload)
        return taken

    def due(self, now: float) -> tuple[int, bytes] | None:
        """Return the (number, payload) that is to be sent next, as sent; None if there is none."""
        for number, kept in self._kept.items():
            if self._count(number) >= self._room:
                return None
            if not kept.order:
                self._order += 1
                kept.order = self._order
                self.resent += kept.sent_before
                kept.sent_before = True
                self._last_sent = now
                if self._timed is None:
                    self._timed = (self._order, now)
                return number, kept.payload
        return None

    def acknowledged(self, next_number: int, room: int, mask: int, now: float) -> None:
        """Take what a frame of the peer says about ours; nonsense is ignored."""
        if self._count(next_number) > self._count(self._number):
            return
        self._room = room
        if not room:
            self._moved = now
        newest = -1
        while self._base != next_number:
            newest = max(newest, self._dropped(self._base))
            self._base = (self._base + 1) & 255
        for bit in range(WINDOW - 1):
            if mask >> bit & 1:
                newest = max(newest, self._dropped((next_number + 1 + bit) & 255))
        if newest < 0:
            return
        self._read = max(self._read, newest)
        # A line does not reorder: older transmissions that did not arrive never will.
        for kept in self._kept.values():
            if kept.order < newest:
                kept.order = 0
        self._tries = 0
        self._moved = self._last_sent = now
        if self._timed is not None and self._timed[0] <= newest:
            self._rtt += (now - self._timed[1] - self._rtt) / 4
            self._timed = None

    def next_deadline(self) -> float | None:
        """Return when ``tick`` or ``stuck`` will have something to say."""
        due = [self._resend_at()] if self._may_be_lost else []
        if not self.empty and self._room:
            due.append(self._moved + self._patience_s + SLACK_S)
        return min(due, default=None)

    def tick(self, now: float) -> None:
        """Have the oldest frame sent again if it is time."""
        if self._may_be_lost and now >= self._resend_at():
            self._kept[self._base].order = 0
            self._room = max(self._room, 1)
            self._tries += 1
            self._timed = None

    def is_lost(self, heard: float) -> bool:
        """Return whether all that was sent is lost: the peer spoke a round trip later, at
        ``heard``, and had not even the oldest."""
        return not self.empty and not self._may_be_lost and heard > self._last_sent + self._rtt

    @property
    def _may_be_lost(self) -> bool:
        """The oldest frame was sent and is not waiting to be sent again, or there was no room."""
        return not self.empty and (self._kept[self._base].order > 0 or not self._room)

    def stuck(self, now: float) -> bool:
        """Return whether the peer has room and acknowledged nothing new for so long."""
        return not self.empty and self._room > 0 and now >= self._moved + self._patience_s + SLACK_S

    def _count(self, number: int) -> int:
        return (number - self._base) & 255

    def _dropped(self, number: int) -> int:
        kept = self._kept.pop(number, None)
        return kept.order if kept else -1

    def _resend_at(self) -> float:
        wait = 2 * self._rtt + _LEAST_S
        doubled = min(wait * (1 << min(self._tries, 8)), self._patience_s / 8)
        return self._last_sent + max(wait, doubled)


class ReceiveWindow:
    """What has come: in order until it is taken, out of order until the gap is filled."""

    def __init__(self) -> None:
        self.next = 0  # the lowest number that has not come
        self._ordered: deque[bytes] = deque()
        self._early: dict[int, bytes] = {}
        self._told_edge = WINDOW

    @property
    def room(self) -> int:
        """How many numbers from ``next`` on would be stored."""
        return WINDOW - len(self._ordered)

    @property
    def mask(self) -> int:
        """Bit i: ``next`` + 1 + i has come."""
        return sum(1 << ((number - self.next - 1) & 255) for number in self._early)

    @property
    def readable(self) -> int:
        """Bytes that ``take`` would return."""
        return sum(map(len, self._ordered))

    @property
    def has_news(self) -> bool:
        """True when the room has grown by much since ``tell``."""
        return (self.next + self.room - self._told_edge) & 255 >= _NEWS

    def tell(self) -> tuple[int, int, int]:
        """Return (next, room, mask), as told to the peer."""
        self._told_edge = (self.next + self.room) & 255
        return self.next, self.room, self.mask

    def store(self, number: int, payload: bytes) -> int:
        """Store a frame if it is new and has room; return the bytes that became readable."""
        if (number - self.next) & 255 >= self.room:
            return 0
        self._early[number] = payload
        ready = 0
        while (piece := self._early.pop(self.next, None)) is not None:
            self._ordered.append(piece)
            ready += len(piece)
            self.next = (self.next + 1) & 255
        return ready

    def take(self, limit: int) -> bytes:
        """Return up to ``limit`` bytes of the stream, and forget them."""
        taken: list[bytes] = []
        while limit > 0 and self._ordered:
            piece = self._ordered.popleft()
            taken.append(piece[:limit])
            if len(piece) > limit:
                self._ordered.appendleft(piece[limit:])
            limit -= len(taken[-1])
        return b"".join(taken)
