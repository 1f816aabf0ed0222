"""What a receiver may acknowledge while some of what came is still in use.

An ack covers all that came before (R29). So it says no more than what lies before the first
message that somebody has not finished with.
"""

from collections import deque


class Receipt:
    """One message that is to be acknowledged when somebody has finished with it."""

    __slots__ = ("is_open", "number")

    def __init__(self, number: int, is_open: bool) -> None:
        self.number = number
        self.is_open = is_open


class Receipts:
    """The numbers of what came on one connection, in order."""

    def __init__(self) -> None:
        self._pending: deque[Receipt] = deque()  # the first one is open
        self._covered: int | None = None  # what an ack may say
        self._due = False

    def came(self, number: int) -> None:
        """Note what nobody has to finish with, as far as this number."""
        if not self._pending:
            self._cover(number)
        elif self._pending[-1].is_open:
            self._pending.append(Receipt(number, False))
        else:
            self._pending[-1].number = number

    def hold(self, number: int) -> Receipt:
        """Note a message that is not to be acknowledged before ``settle``."""
        receipt = Receipt(number, True)
        self._pending.append(receipt)
        return receipt

    def settle(self, receipt: Receipt) -> None:
        """Somebody has finished with a message; of another connection, or twice, is harmless."""
        receipt.is_open = False
        while self._pending and not self._pending[0].is_open:
            self._cover(self._pending.popleft().number)

    def again(self) -> None:
        """What was acknowledged came once more: say so again."""
        self._due = self._covered is not None

    def take(self) -> int | None:
        """Return the number to acknowledge, None if nothing is new."""
        if not self._due:
            return None
        self._due = False
        return self._covered

    def _cover(self, number: int) -> None:
        self._covered = number
        self._due = True
