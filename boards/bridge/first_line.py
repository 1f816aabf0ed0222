"""Tells a web page's request from what a program says to a board. Pure.

A page that a browser shows can have it send requests to any port of this machine. Their first line
cannot be anything but HTTP's.
"""

import re
from typing import Literal

_METHODS = (
    *(b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"PATCH "),
    *(b"OPTIONS ", b"CONNECT ", b"TRACE ", b"PRI "),
)
_REQUEST = re.compile(rb"[A-Z]+ .*HTTP/[0-9]")
_LONGEST = 16 * 1024
_PATIENCE_S = 1.0  # a browser sends its line at once; a person types

Verdict = Literal["program", "page", "more"]


class FirstLine:
    """Holds what a caller says until it is known not to be HTTP.

    ``held``: what was said so far. ``deadline``: when ``look`` is due; None: nothing is held.
    """

    def __init__(self) -> None:
        self.held = b""
        self.deadline: float | None = None

    def add(self, data: bytes, now: float) -> Verdict:
        """Take what was said; with ``program`` all that is ``held`` may go on."""
        self.held += data
        if self.deadline is None:
            self.deadline = now + _PATIENCE_S
        return self.look(now)

    def look(self, now: float) -> Verdict:
        """Return what is known now."""
        if self.deadline is None:
            return "more"
        if not any(self.held[: len(one)] == one[: len(self.held)] for one in _METHODS):
            return "program"
        line, end, _ = self.held.partition(b"\n")
        if end or len(line) > _LONGEST:
            return "page" if not end or _REQUEST.match(line) else "program"
        return "program" if now >= self.deadline else "more"
