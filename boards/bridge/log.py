"""Lines for people, written by a thread of their own: a stopped terminal must not stop a bridge."""

import queue
import threading
from collections.abc import Callable

_LINES_LIMIT = 1000
_END_S = 2.0


class Log:
    """``say`` never waits and never fails. ``write`` gets the lines; what it raises is forgotten.

    When a thousand lines wait, further ones are dropped, and counted in a line. Leaving the
    ``with`` block waits two seconds at most for what is unwritten.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._lines: queue.Queue[str | None] = queue.Queue(_LINES_LIMIT)
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="bridge-log", daemon=True)

    def say(self, line: str) -> None:
        """Have ``line`` written; from any thread."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._dropped += 1

    def __enter__(self) -> "Log":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            self._lines.put(None, timeout=_END_S)
        except queue.Full:
            return
        self._thread.join(_END_S)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            self._out(line)
            dropped, self._dropped = self._dropped, 0
            if dropped:
                self._out(f"{dropped} lines were dropped: nobody read them")

    def _out(self, line: str) -> None:
        try:
            self._write(line)
        except (OSError, ValueError):
            return  # its reader went away; the bytes go on
