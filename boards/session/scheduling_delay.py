"""How long this machine holds a process up: measured, so that verdicts on time allow for it."""

import threading
import time
from typing import Self

_NAP_S = 0.01


class SchedulingDelay:
    """Watches while a ``with`` block lasts: a thread that naps, and sees how late it wakes up.

    A process that waits for a socket is woken as late as one that waits for a clock, so what holds
    this one up holds up a broker and a proxy on the same machine, too.
    """

    def __init__(self) -> None:
        self._worst_s = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stalls", daemon=True)

    @property
    def worst_ms(self) -> float:
        """The longest delay so far, in ms."""
        return self._worst_s * 1e3

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        due = time.monotonic() + _NAP_S
        while not self._end.wait(max(0.0, due - time.monotonic())):
            now = time.monotonic()
            self._worst_s = max(self._worst_s, now - due)
            due = now + _NAP_S
