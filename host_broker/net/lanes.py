"""Waiting that passes on meanwhile what needs no thought: the compiled part of the poller.

``pip`` compiles it (``hatch_build.py``) if it finds a C compiler and Python's headers; without it
everything is the same, but slower.
"""

import os
from collections.abc import Callable, Mapping
from select import EPOLLIN
from time import monotonic
from typing import TYPE_CHECKING

try:
    from host_broker.net._lanes import SOURCE, Lanes
except ImportError:  # not compiled, or for another Python
    SOURCE = ""

if TYPE_CHECKING:
    from host_broker.net.poller import Turn, Watched

COMPILED = bool(SOURCE)
UNWANTED = "MOTEMQ_PURE_PYTHON"  # in the environment: any value but nothing


class Passage:
    """Lanes of one epoll: from senders, through topics, to receivers.

    Whoever has read from a sender by itself says ``stray``; whoever has made anything different for
    a receiver, or closes any of them, says ``forget``. ``changes`` gives a number that is another
    when somebody else may get a topic.
    """

    def __init__(
        self,
        epoll: int,
        streams: "Mapping[int, Watched]",
        max_body: int,
        changes: Callable[[], int],
    ) -> None:
        self._lanes = Lanes(epoll, max_body)
        self._streams = streams
        self._changes = changes
        self._seen = changes()
        self.learn = self._lanes.learn
        self.stray = self._lanes.stray
        self.forget = self._lanes.forget

    def found(self, timeout: float | None, turn: "Turn") -> list[tuple[int, int]]:
        """Wait for events that are not done with as soon as they are found; [] if none came."""
        lanes, streams = self._lanes, self._streams
        end = None if timeout is None else monotonic() + timeout
        while True:
            changes = self._changes()
            if changes != self._seen:
                self._seen = changes
                lanes.forget()
            found = lanes.wait(timeout)
            for fd, count, size in lanes.passed():
                streams[fd].passed(count, size)
            if len(found) != 1:
                return found
            fd, what = found[0]
            stream = streams.get(fd)
            data = lanes.data
            if stream is None or what != EPOLLIN:
                return found
            if data is not None and lanes.stuck:
                stream.finish(data, lanes.sent, [streams[each] for each in lanes.stuck])
                return []
            if not stream.read_alone(turn, data):
                return []
            if end is not None:
                timeout = end - monotonic()
                if timeout <= 0:
                    return []


def passage(
    epoll: int, streams: "Mapping[int, Watched]", max_body: int, changes: Callable[[], int]
) -> Passage | None:
    """Return a passage for the epoll of this file number; None if there is none to be had."""
    if not COMPILED or os.environ.get(UNWANTED):
        return None
    return Passage(epoll, streams, max_body, changes)
