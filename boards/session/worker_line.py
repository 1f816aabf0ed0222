"""What a worker and its parent say to each other: one line of JSON each, on stdout and stdin."""

import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

from boards.session.event_writer import stamp

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


class Channel:
    """The line to the parent. Nothing else may write to it, so stdout is given away."""

    def __init__(self) -> None:
        self._fd = os.dup(1)
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def send(self, kind: str, **fields: Any) -> None:
        """Send one line; from any thread."""
        line = json.dumps({"kind": kind, **stamp(), **fields}).encode() + b"\n"
        with self._lock:
            while line:
                line = line[os.write(self._fd, line) :]


class Reporter:
    """What the steps of a board tell while they run."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def progress(self, text: str) -> None:
        """Say what is going on within a step."""
        self._channel.send("progress", text=text)

    def about(self, **facts: str) -> None:
        """Say on which ``port`` the board is, and what ``firmware`` it says that it runs."""
        self._channel.send("about", **facts)

    def bridge_line(self, text: str) -> None:
        """Log a line of the bridge: on stderr, which is the worker's log."""
        sys.stderr.write(f"{stamp()['ts']} bridge: {text}\n")
        sys.stderr.flush()
