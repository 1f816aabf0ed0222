"""What clients do wrong, told to the log once for each peer and not too often."""

import logging
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)

_REMEMBERED = 1024  # peers and reasons; then the oldest may be told once more
_LINES = 20
_PER_S = 60.0


class Complaints:
    """Tells each reason once per peer, at most 20 in a minute; then how many were not told."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: dict[tuple[str, str], None] = {}
        self._began = clock()
        self._lines = 0
        self._untold = 0

    def tell(self, peer: str, reason: str, text: str) -> None:
        """Log ``text``, unless ``reason`` has been told of ``peer``."""
        key = (peer, reason)
        if key in self._told:
            return
        now = self._clock()
        if now - self._began >= _PER_S:
            self._began, self._lines = now, 0
            if self._untold:
                _log.warning("%d more clients were refused, without a line each", self._untold)
                self._untold = 0
        if self._lines >= _LINES:
            self._untold += 1
            return
        self._lines += 1
        self._told[key] = None
        if len(self._told) > _REMEMBERED:
            del self._told[next(iter(self._told))]
        _log.warning("%s", text)
