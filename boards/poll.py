"""``select.poll`` as every system has it: on Windows, which has none, ``select()`` does its part.

There only sockets can be waited for, up to 512; ``threaded_line`` makes one of a serial port.
"""

import select
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

__all__ = [
    "POLLERR",
    "POLLHUP",
    "POLLIN",
    "POLLNVAL",
    "POLLOUT",
    "Poll",
    "wait_readable",
    "wait_writable",
]

if sys.platform != "win32":
    from select import POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT
    from select import poll as Poll
else:
    POLLIN, POLLOUT, POLLERR, POLLHUP, POLLNVAL = 1, 4, 8, 16, 32

    class Poll:
        """What we use of ``select.poll``. Who hung up is seen only where reading is asked for."""

        def __init__(self) -> None:
            self._wanted: dict[int, int] = {}

        def register(self, file: "FileDescriptorLike", events: int = POLLIN | POLLOUT) -> None:
            """Wait for ``events`` of ``file``, too."""
            self._wanted[file if isinstance(file, int) else file.fileno()] = events

        def poll(self, timeout_ms: float) -> list[tuple[int, int]]:
            """Return descriptors and their events, after at most ``timeout_ms``."""
            readers = [file for file, events in self._wanted.items() if events & POLLIN]
            writers = [file for file, events in self._wanted.items() if events & POLLOUT]
            readable, writable, _ = select.select(readers, writers, [], timeout_ms / 1000)
            ready = dict.fromkeys(readable, POLLIN)
            for file in writable:
                ready[file] = ready.get(file, 0) | POLLOUT
            return list(ready.items())


def wait_readable(file: "FileDescriptorLike", limit_s: float) -> bool:
    """Wait until a read would not block (also: it would fail); False if not within ``limit_s``."""
    return _wait(file, POLLIN, limit_s)


def wait_writable(file: "FileDescriptorLike", limit_s: float) -> bool:
    """Wait until a write would not block (also: it would fail); False if not within ``limit_s``."""
    return _wait(file, POLLOUT, limit_s)


def _wait(file: "FileDescriptorLike", event: int, limit_s: float) -> bool:
    # poll(), as select() cannot wait for a descriptor above 1023.
    poll = Poll()
    poll.register(file, event)
    return bool(poll.poll(max(limit_s, 0.0) * 1000))
