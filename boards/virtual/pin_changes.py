"""The last changes of a board's pins, numbered: who looks now and then misses none."""

from collections import deque
from typing import Any

from boards.control_port import Answer, Refused, Request

_MAX_KEPT = 500  # an answer with all of them stays below what a client of the control port reads


class PinChanges:
    """Remembers the last changes; a pin that changes for ever displaces them, and is counted."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, bool]] = deque(maxlen=_MAX_KEPT)
        self._count = 0

    def add(self, pin: int, level: bool) -> None:
        """Note that ``pin`` has now this level."""
        self._kept.append((pin, level))
        self._count += 1

    def since(self, count: int) -> dict[str, Any]:
        """Return the changes after the first ``count``, how many of them are lost, the count."""
        first_kept = self._count - len(self._kept)
        start = max(count - first_kept, 0)
        return {
            "changes": [list(change) for change in list(self._kept)[start:]],
            "lost": max(first_kept - count, 0),
            "count": self._count,
        }

    def answer(self, request: Request, answer: Answer) -> None:
        """Serve the control request ``gpio_changes``."""
        since = request.get("since")
        if type(since) is not int or since < 0:
            raise Refused("since must be a number, 0 or the count of an earlier answer")
        answer(self.since(since))
