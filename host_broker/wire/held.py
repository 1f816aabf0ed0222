"""The unfinished frame of one connection, and its share of the memory that all connections have."""

from typing import Any

from host_broker.wire.budget import Budget
from host_broker.wire.buffering import Unfinished
from host_broker.wire.violation import Violation

SMALL = 4 * 1024  # bytes; a shorter unfinished frame is what a connection costs anyway


class HeldFrame(Unfinished):
    """An unfinished frame that takes its memory from a budget, if there is one.

    Call ``settle`` after each read, and ``release`` at the end of the connection.
    """

    __slots__ = ("_budget", "_taken")

    def __init__(self, budget: Budget | None = None) -> None:
        super().__init__()
        self._budget = budget
        self._taken = 0  # bytes of the budget

    def settle(self, offset: int) -> Violation | None:
        """Take what is kept from the budget, and give back what no longer is.

        Returns a violation at ``offset``, which is fatal, if so much is not left.
        """
        kept = len(self)
        if self._settle(kept if kept > SMALL else 0):
            return None
        reason = "all clients together hold as much as bus.max_held_bytes allows"
        return Violation("bus.max_held_bytes", reason, offset, fatal=True)

    def release(self) -> None:
        """Forget what is kept, and give its memory back."""
        self.drop()
        self._settle(0)

    def _settle(self, wanted: int) -> bool:
        """Have taken exactly so much; False if so much is not left."""
        if self._budget is None:
            return True
        if wanted > self._taken:
            if not self._budget.take(wanted - self._taken):
                return False
        else:
            self._budget.give(self._taken - wanted)
        self._taken = wanted
        return True


class FrameReader:
    """What codecs have in common that read frames: one that is unfinished, and an end.

    ``_offset``: the bytes of the connection before what is read next. ``_dead``: nothing more is
    read, since the connection has ended, or what came cannot be read any further.
    """

    def __init__(self, budget: Budget | None) -> None:
        self._unfinished = HeldFrame(budget)
        self._offset = 0
        self._dead = False

    def close(self) -> None:
        """Forget what is unfinished; call it at the end."""
        self._dead = True
        self._unfinished.release()

    def _hold(self, events: list[Any]) -> list[Any]:
        """Have what is kept be in the budget, or end; returns ``events`` with what is wrong."""
        violation = self._unfinished.settle(self._offset)
        if violation is not None:
            self.close()
            events.append(violation)
        return events
