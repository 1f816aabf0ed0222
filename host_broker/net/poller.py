"""All plain sockets in one epoll: what one look returns is handled in one callback of the loop.

asyncio's selector makes a few objects and a callback for every socket that is ready; with five
hundred publishers of one frame each that costs as much as the broker.
"""

import asyncio
from collections.abc import Callable
from select import EPOLLIN, EPOLLOUT, epoll
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from host_broker.net.stream import Stream

_MOST_EVENTS = 256  # of one look; the others are in the next one, none is passed over
# A turn ends after so many bytes: what it sends waits for its end, and who is to be held up is only
# known then.
_TURN_BYTES = 256 * 1024
# Looks in one callback, while they find more than a few: going through asyncio's loop costs as
# much as three frames. Then timers and TLS have their turn.
_LOOKS = 8
_FEW_EVENTS = 4
_LOOKS_BYTES = 1024 * 1024


class Poller:
    """Tells streams when they can read or write.

    Reads come in turns: ``begin`` is called before those of a turn, ``end`` after them.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        begin: Callable[[], None],
        end: Callable[[], None],
    ) -> None:
        self._begin = begin
        self._end = end
        self._epoll = epoll()
        self._streams: dict[int, Stream] = {}
        self._loop = loop
        loop.add_reader(self._epoll.fileno(), self._look)

    def watch(self, stream: "Stream", events: int) -> None:
        """Look for ``events`` of a stream from now on: EPOLLIN, EPOLLOUT, both, or 0 for none."""
        fd, watched = stream.fd, stream.watched
        if events == watched:
            return
        stream.watched = events
        if not events:
            # Otherwise it would still be told of hang-ups, again and again.
            self._epoll.unregister(fd)
            del self._streams[fd]
            return
        if watched:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
            self._streams[fd] = stream

    def close(self) -> None:
        """Look no more."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _look(self) -> None:
        read = 0
        for _ in range(_LOOKS):
            events = self._epoll.poll(0, _MOST_EVENTS)
            read += self._handle(events)
            if len(events) < _FEW_EVENTS or read > _LOOKS_BYTES:
                return

    def _handle(self, events: list[tuple[int, int]]) -> int:
        """Have streams do what they can; returns how many bytes they read."""
        streams = self._streams
        total = read = 0
        self._begin()
        try:
            for fd, what in events:
                stream = streams.get(fd)
                if stream is None:
                    continue  # it ended in this turn; its number is not used again before the next
                # Hang-ups and errors are found by whatever it wanted to do.
                if what != EPOLLOUT:
                    read += stream.ready_to_read()
                    if read > _TURN_BYTES:
                        self._end()
                        total += read
                        read = 0
                        self._begin()
                if what != EPOLLIN:
                    stream.ready_to_write()
        finally:
            self._end()
        return total + read
