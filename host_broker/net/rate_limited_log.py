"""What clients do wrong, logged once for each peer and not too often."""

import logging
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)

_REMEMBERED = 1024  # peers and reasons; then the oldest may be logged once more
_LINES = 20
_PER_S = 60.0


class RateLimitedLog:
    """Logs each reason once per peer, at most 20 in a minute; then how many were left out.

    ``what`` the lines are about.
    """

    def __init__(
        self, what: str = "clients were refused", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what = what
        self._clock = clock
        self._logged: dict[tuple[str, str], None] = {}
        self._began = clock()
        self._lines = 0
        self._suppressed = 0

    def write(self, peer: str, reason: str, text: str) -> None:
        """Log ``text``, unless ``reason`` has been logged of ``peer``."""
        key = (peer, reason)
        if key in self._logged:
            return
        now = self._clock()
        if now - self._began >= _PER_S:
            self._began, self._lines = now, 0
            if self._suppressed:
                _log.warning("%d more %s, without a line each", self._suppressed, self._what)
                self._suppressed = 0
        if self._lines >= _LINES:
            self._suppressed += 1
            return
        self._lines += 1
        self._logged[key] = None
        if len(self._logged) > _REMEMBERED:
            del self._logged[next(iter(self._logged))]
        _log.warning("%s", text)
