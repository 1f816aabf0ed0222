"""Acks: how much a sender may have out, and what a receiver acknowledges when.

``ack`` and ``batch-ack`` differ in the size of the window only (A15). Every message frame has a
number and is acknowledged, each fragment, too (A17). Time is an argument.
"""

from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Generic, TypeVar

from host_broker.protocols.micromsg2.extensions import MAX_WINDOW
from host_broker.protocols.micromsg2.negotiation import Acks
from host_broker.protocols.micromsg2.refusal import Refusal

LAST_NUMBER = 65535  # then comes 1; 0 is never sent (R22, A12)
ACK_DELAY_S = 0.5  # as SharpMessaging
UNLIMITED = 1 << 30

_NUMBER = Struct(">H")

T = TypeVar("T")


def spell_ack(number: int) -> bytes:
    """Spell the payload of an ack (R32)."""
    return _NUMBER.pack(number)


def read_ack(payload: bytes) -> int | Refusal:
    """Read the payload of an ack."""
    if len(payload) != _NUMBER.size:
        return Refusal("R32", f"an ack has {len(payload)} bytes instead of two")
    return int.from_bytes(payload, "big")


class SendWindow(Generic[T]):
    """Numbers the frames of one direction, and keeps what of them is not acknowledged, in order.

    ``acks``: what was agreed on; None: nothing is acknowledged, so that nothing is kept and there
    is always room (R25, R31). ``last``: the number before the first.
    """

    def __init__(self, acks: Acks | None, last: int = LAST_NUMBER) -> None:
        self._limit = None if acks is None else acks.window
        self._last = last
        self._outstanding: deque[T] = deque()
        self.unknown_acks = 0  # acks of what was not outstanding (A14)

    @property
    def room(self) -> int:
        """How many frames may be sent now (R26)."""
        return UNLIMITED if self._limit is None else self._limit - len(self._outstanding)

    def __len__(self) -> int:
        """How many frames are not acknowledged."""
        return len(self._outstanding)

    @property
    def outstanding(self) -> tuple[T, ...]:
        """What is not acknowledged, the oldest first."""
        return tuple(self._outstanding)

    def send(self, item: T) -> int:
        """Note a frame, for which there must be room; returns its number.

        ``item`` is what ``acknowledge`` returns when it is acknowledged.
        """
        if self.room <= 0:
            raise ValueError(f"{self._limit} frames wait for an ack, and no more may be sent")
        self._last = self._last % LAST_NUMBER + 1
        if self._limit is not None:
            self._outstanding.append(item)
        return self._last

    def send_many(self, items: Sequence[T]) -> int:
        """Note frames, for which there must be room; returns the number of the first of them."""
        if self.room < len(items):
            raise ValueError(f"{self._limit} frames wait for an ack, and no more may be sent")
        first = self._last % LAST_NUMBER + 1
        self._last = (self._last + len(items) - 1) % LAST_NUMBER + 1
        if self._limit is not None:
            self._outstanding.extend(items)
        return first

    def acknowledge(self, number: int) -> list[T]:
        """Return what an ack covers: all up to its number, which is included, whether or not
        numbers have wrapped in between (R29, A13). That makes room again at once (R28).

        Nothing, if the number is not outstanding: it was acknowledged before, or never sent (A14).
        """
        outstanding = self._outstanding
        # The numbers of what is outstanding follow each other, and the last one is known.
        behind = (self._last - number) % LAST_NUMBER
        if behind >= len(outstanding) or not 1 <= number <= LAST_NUMBER:
            self.unknown_acks += 1
            return []
        if not behind:
            covered = list(outstanding)
            outstanding.clear()
            return covered
        return [outstanding.popleft() for _ in range(len(outstanding) - behind)]


class ReceiveWindow:
    """What of the frames of one direction is to be acknowledged, and when.

    ``acks``: what was agreed on; None: nothing is acknowledged, and every frame is new.
    ``delay_s``: so long an ack may wait for more frames; less if the peer takes a frame for lost
    sooner. ``deadline``: when ``take`` wants to be called, on the clock of ``now``; None: not yet.
    """

    def __init__(self, acks: Acks | None, delay_s: float = ACK_DELAY_S) -> None:
        self._limit = 0 if acks is None else acks.per_ack or acks.window
        if acks is not None and acks.expire_s is not None:
            delay_s = min(delay_s, acks.expire_s / 2)
        self._delay_s = delay_s
        self._last = 0
        self._seen = 0  # frames, as many as can be told from new ones
        self._unacknowledged = 0  # frames
        self._again = False  # what was acknowledged has come once more
        self.deadline: float | None = None
        self.duplicates = 0

    def receive(self, number: int, now: float) -> bool:
        """Note a frame; returns whether it is new.

        One that was sent again, because its ack came late, is not, and is acknowledged again. A
        stream keeps its order, so that a frame is either one of the last ones, or new.
        """
        if not self._limit:
            return True
        behind = (self._last - number) % (LAST_NUMBER + 1)
        if number > self._last:
            behind -= 1  # 0 is left out, as a rule
        if behind < self._seen:
            self.duplicates += 1
            self._again = True
            return False
        self._last = number
        # Not only a window: SharpMessaging's ``ack`` sends, and resends, ten.
        self._seen = min(self._seen + 1, MAX_WINDOW)
        self._unacknowledged += 1
        if self.deadline is None:
            self.deadline = now + self._delay_s
        return True

    def receive_many(self, first: int, count: int, now: float) -> bool:
        """Note new frames that follow each other; False, and nothing is noted, if the first is not
        the next one that is awaited."""
        if not self._limit:
            return True
        if first != self._last % LAST_NUMBER + 1:
            return False
        self._last = (self._last + count - 1) % LAST_NUMBER + 1
        self._seen = min(self._seen + count, self._limit)
        self._unacknowledged += count
        if self.deadline is None:
            self.deadline = now + self._delay_s
        return True

    def take(self, now: float) -> int | None:
        """Return the number to acknowledge now, None if nothing is or it may wait.

        It may not if as many frames as the window has are unacknowledged, if the oldest of them has
        waited for ``delay_s``, or if one came again.
        """
        waited = self.deadline is not None and now >= self.deadline
        if waited or self._again or (self._limit and self._unacknowledged >= self._limit):
            return self.take_early()
        return None

    def take_early(self) -> int | None:
        """Return the number that acknowledges all that has come, None if all of it is."""
        if not (self._unacknowledged or self._again):
            return None
        self._unacknowledged = 0
        self._again = False
        self.deadline = None
        return self._last
