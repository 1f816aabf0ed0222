"""One timer for many deadlines."""

import asyncio
from collections.abc import Callable


class Timer:
    """Calls ``expired`` at or before the earliest deadline it was set to, until ``cancel``.

    A call that comes too early costs one look; moving the timer at every read would cost more.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, expired: Callable[[], None]) -> None:
        self._loop = loop
        self._expired = expired
        self._timer: asyncio.TimerHandle | None = None
        self._cancelled = False

    def set(self, deadline: float) -> None:
        """Expire no later than ``deadline``, on the loop's clock."""
        if self._cancelled:
            return
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._run)

    def cancel(self) -> None:
        """Never expire again."""
        self._cancelled = True
        if self._timer is not None:
            self._timer.cancel()

    def _run(self) -> None:
        self._timer = None
        self._expired()
