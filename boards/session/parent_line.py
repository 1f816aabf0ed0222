"""What a worker hears of its parent: one line of JSON each on stdin, whose end is its own end."""

import json
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

_LINE_LIMIT = 1024 * 1024


class ParentLine:
    """Reads stdin. Not ``sys.stdin``: a thread blocked in its lock breaks the interpreter's end."""

    def __init__(self, fd: int = 0) -> None:
        self._fd = fd
        self._pending = b""
        self._heard: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def first(self) -> str:
        """Return the first line, waiting for it. Raises ``EOFError`` if there is none."""
        while (line := self._line()) is None:
            if not self._read():
                raise EOFError("the parent said nothing")
        return line

    def follow(self, at_end: Callable[[], None]) -> None:
        """From now on read in a thread, which calls ``at_end`` when the parent is gone."""
        threading.Thread(target=self._follow, args=(at_end,), daemon=True).start()

    def wait(self, timeout_s: float) -> dict[str, Any] | None:
        """Return the next thing the parent said, None if nothing comes in time."""
        try:
            return self._heard.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            return None

    def _follow(self, at_end: Callable[[], None]) -> None:
        while True:
            while (line := self._line()) is not None:
                self._heard.put(json.loads(line))
            if not self._read():
                break
        at_end()

    def _read(self) -> bool:
        data = os.read(self._fd, 65536)
        self._pending += data
        if len(self._pending) > _LINE_LIMIT:
            raise ValueError("a line of the parent without end")
        return bool(data)

    def _line(self) -> str | None:
        line, newline, rest = self._pending.partition(b"\n")
        if not newline:
            return None
        self._pending = rest
        return line.decode()
