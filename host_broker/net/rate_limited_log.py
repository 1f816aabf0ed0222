"""What clients do wrong, logged once for each peer and not too often."""

import logging
import time
from collections.abc import Callable
from typing import ClassVar

_log = logging.getLogger(__name__)

_REMEMBERED = 1024  # peers and reasons; then the oldest may be logged once more
_APART_S = 1.0
_COUNTED_AFTER_S = 60.0
_LONGEST_COUNT_S = 24 * 3600.0


class RateLimitedLog:
    """Logs each reason once per peer, and at most a line a second for each, of few reasons.

    What was left out is counted. The count is logged after a minute; if it goes on like that,
    after twice as long each time, up to a day. ``left_out`` is the count since the start.
    """

    left_out: ClassVar[int] = 0  # of all of them

    def __init__(
        self,
        later: Callable[[float, Callable[[], None]], object],
        what: str = "clients were refused",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``later`` calls back after so many seconds; ``what`` the lines are about."""
        self._later = later
        self._what = what
        self._clock = clock
        self._logged: dict[tuple[str, str], None] = {}
        self._last: dict[str, float] = {}  # by reason
        self._left_out = 0
        self._counted_after_s = _COUNTED_AFTER_S

    def write(self, peer: str, reason: str, text: str) -> None:
        """Log ``text``, unless ``reason`` has been logged of ``peer`` or just now."""
        key = (peer, reason)
        now = self._clock()
        if key in self._logged or now - self._last.get(reason, -_APART_S) < _APART_S:
            if not self._left_out:
                self._later(self._counted_after_s, self._count)
            self._left_out += 1
            RateLimitedLog.left_out += 1
            return
        self._last[reason] = now
        self._logged[key] = None
        if len(self._logged) > _REMEMBERED:
            del self._logged[next(iter(self._logged))]
        self._counted_after_s = _COUNTED_AFTER_S
        _log.warning("%s", text)

    def _count(self) -> None:
        left_out, self._left_out = self._left_out, 0
        self._counted_after_s = min(2 * self._counted_after_s, _LONGEST_COUNT_S)
        _log.warning("%d more %s, without a line each", left_out, self._what)
