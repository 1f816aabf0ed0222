"""The selector of the event loop: streams are handled where they are found, all others by asyncio.

asyncio's selector makes a few objects and a callback for every socket that is ready; with five
hundred publishers of one frame each that costs as much as the broker, and with one of ten thousand
frames a second as much as sending them.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from select import EPOLLIN, EPOLLOUT, epoll
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector, SelectorKey
from time import monotonic
from typing import Any, Protocol, TypeVar

from host_broker.net.busy_poll import BusyPoll
from host_broker.net.lanes import Passage, passage

_MOST_EVENTS = 256  # of one look; the others are in the next one, none is passed over
# A turn ends after so many bytes: what it sends waits for its end, and who is to be held up is only
# known then.
_TURN_BYTES = 256 * 1024


_T = TypeVar("_T")
Turn = Callable[[Callable[[Any], object], Any], None]


class _HasFileno(Protocol):
    def fileno(self) -> int: ...


class Watched(Protocol):
    """Whoever is told of its socket: a ``Stream``, a ``Newcomer``.

    ``watched`` is the poller's.
    """

    fd: int
    watched: int

    def ready_to_read(self) -> int:
        """Read once; returns how many bytes it was."""

    def read_alone(self, turn: Turn, data: bytes | None) -> bool:
        """Read once, when nobody else has anything to read: outside of a turn, but what needs one
        is handed to ``turn``. Returns whether all is done: asyncio's loop has nothing new to do.

        ``data``: what was read already, if it was.
        """

    def passed(self, count: int, size: int) -> None:
        """So many of its publications, of ``size`` bytes together, were passed on (``Passage``)."""

    def finish(self, data: bytes, sent: int, receivers: "Sequence[Watched]") -> None:
        """Send one of them to these receivers, too, the first of which has ``sent`` bytes of it."""

    def ready_to_write(self) -> None:
        """Write what waits."""


def _nothing() -> None:
    """What a turn begins and ends with before ``Poller.turns``."""


class Poller(BaseSelector):
    """A selector for asyncio that also tells streams when they can read or write.

    It does so inside of ``select``, hence between the callbacks of the loop. ``busy_poll_s``: how
    many seconds it may look again and again before it sleeps; it does while that pays off.
    """

    def __init__(self, busy_poll_s: float = 0.0) -> None:
        self._epoll = epoll()
        self._busy = BusyPoll(busy_poll_s)
        self._keys: dict[int, SelectorKey] = {}
        self._streams: dict[int, Watched] = {}
        self._begin: Callable[[], None] = _nothing
        self._end: Callable[[], None] = _nothing
        self._failed: Callable[[dict[str, Any]], None] | None = None
        self.passage: Passage | None = None  # which needs to be told what is done to streams

    def turns(
        self,
        begin: Callable[[], None],
        end: Callable[[], None],
        failed: Callable[[dict[str, Any]], None],
    ) -> None:
        """Reads of streams come in turns: call ``begin`` before those of one, ``end`` after them.

        ``failed`` is told, as the loop's exception handler, of errors that are nobody's else.
        """
        self._begin, self._end, self._failed = begin, end, failed

    def pass_on(self, max_body: int, changes: Callable[[], int]) -> None:
        """Have reads passed on without asking, if that is compiled, as ``Passage`` says.

        Not together with looking before sleeping: what waits is either the one or the other.
        """
        if not self._busy.most_s:
            self.passage = passage(self._epoll.fileno(), self._streams, max_body, changes)

    def watch(self, stream: Watched, events: int) -> None:
        """Look for ``events`` of a stream from now on: EPOLLIN, EPOLLOUT, both, or 0 for none."""
        fd, watched = stream.fd, stream.watched
        if events == watched:
            return
        stream.watched = events
        if self.passage is not None:
            self.passage.stray(fd)
            if not events:
                self.passage.forget()  # the file number will be somebody else's
        if not events:
            # Otherwise it would still be told of hang-ups, again and again.
            self._epoll.unregister(fd)
            del self._streams[fd]
        elif watched:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
            self._streams[fd] = stream

    # ---- selectors.BaseSelector ----

    def register(self, fileobj: "int | _HasFileno", events: int, data: Any = None) -> SelectorKey:
        """Look for the events of a file of asyncio."""
        fd = _fd(fileobj)
        self._epoll.register(fd, _mask(events))
        key = self._keys[fd] = SelectorKey(fileobj, fd, events, data)
        return key

    def modify(self, fileobj: "int | _HasFileno", events: int, data: Any = None) -> SelectorKey:
        """Look for other events of it."""
        fd = _fd(fileobj)
        self._epoll.modify(fd, _mask(events))
        key = self._keys[fd] = SelectorKey(fileobj, fd, events, data)
        return key

    def unregister(self, fileobj: "int | _HasFileno") -> SelectorKey:
        """Look for it no more."""
        fd = _fd(fileobj)
        key = self._keys.pop(fd)
        self._epoll.unregister(fd)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """Wait at most ``timeout`` seconds (None: for ever), handle streams, return the rest."""
        rest: list[tuple[SelectorKey, int]] = []
        try:
            found = self._found(timeout)
            if found:
                self._handle(found, rest)
        except Exception as error:
            # Out of select it would end the loop, which survives a callback that fails.
            if self._failed is None:
                raise
            self._failed({"message": "a turn failed", "exception": error})
        return rest

    def close(self) -> None:
        """Look no more."""
        self._keys.clear()
        self._epoll.close()

    def get_map(self) -> Mapping[Any, SelectorKey]:
        """Return the keys by file number."""
        return self._keys

    def get_key(self, fileobj: "int | _HasFileno") -> SelectorKey:
        """Return the key of a file; KeyError if it is not registered."""
        return self._keys[_fd(fileobj)]

    # ---- waiting ----

    def _found(self, timeout: float | None) -> list[tuple[int, int]]:
        """Wait for events that are not done with as soon as they are found; [] if none came.

        A stream that alone has something to read may pass it on at once. Then there is nothing to
        do for asyncio, which would only call us again, for as much time as the message took.
        """
        if timeout is not None and timeout <= 0:
            return self._epoll.poll(0, _MOST_EVENTS)
        if self.passage is not None:
            return self.passage.found(timeout, self.turn)
        wait = self._wait if self._busy.most_s else self._epoll.poll
        end = None if timeout is None else monotonic() + timeout
        streams = self._streams
        found = wait(timeout, _MOST_EVENTS)
        while len(found) == 1:
            fd, what = found[0]
            stream = streams.get(fd)
            if stream is None or what != EPOLLIN:
                break
            if not stream.read_alone(self.turn, None):
                return []
            if end is not None:
                timeout = end - monotonic()
                if timeout <= 0:
                    return []
            found = wait(timeout, _MOST_EVENTS)
        return found

    def _wait(self, timeout: float | None, most: int) -> list[tuple[int, int]]:
        """Wait as ``epoll`` does, but look for a while before sleeping, if that pays off."""
        busy, poll = self._busy, self._epoll.poll
        began = monotonic()
        found: list[tuple[int, int]] = []
        if busy.worth:
            end = began + (busy.most_s if timeout is None else min(busy.most_s, timeout))
            while not (found := poll(0, most)) and monotonic() < end:
                os.sched_yield()  # whoever else wants this core has it
            if not found and timeout is not None:
                timeout = max(0.0, began + timeout - monotonic())
        if not found:
            found = poll(timeout, most)
        busy.waited(monotonic() - began)
        return found

    # ---- streams ----

    def turn(self, take: Callable[[_T], object], what: _T) -> None:
        """Have ``take`` take ``what`` in a turn of its own."""
        self._begin()
        try:
            take(what)
        finally:
            self._end()

    def _handle(self, found: list[tuple[int, int]], rest: list[tuple[SelectorKey, int]]) -> None:
        """Have streams do what they can; what is asyncio's is added to ``rest``."""
        streams = self._streams
        read = 0
        self._begin()
        try:
            for fd, what in found:
                stream = streams.get(fd)
                if stream is None:
                    key = self._keys.get(fd)  # None: a stream that ended in this turn
                    if key is not None:
                        rest.append((key, _events(what) & key.events))
                    continue
                # Hang-ups and errors are found by whatever it wanted to do.
                if what != EPOLLOUT:
                    read += stream.ready_to_read()
                    if read > _TURN_BYTES:
                        self._end()
                        read = 0
                        self._begin()
                if what != EPOLLIN:
                    stream.ready_to_write()
        finally:
            self._end()


def event_loop(poller: Poller) -> asyncio.AbstractEventLoop:
    """Return an event loop that waits in ``poller``."""
    return asyncio.SelectorEventLoop(poller)


def _fd(fileobj: "int | _HasFileno") -> int:
    return fileobj if isinstance(fileobj, int) else fileobj.fileno()


def _mask(events: int) -> int:
    return EPOLLIN * bool(events & EVENT_READ) | EPOLLOUT * bool(events & EVENT_WRITE)


def _events(what: int) -> int:
    """Hang-ups and errors are for whoever waits for anything."""
    return EVENT_READ * bool(what & ~EPOLLOUT) | EVENT_WRITE * bool(what & ~EPOLLIN)
