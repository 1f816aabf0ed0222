"""The selector of the event loop: streams are handled where they are found, all others by asyncio.

asyncio's selector makes a few objects and a callback for every socket that is ready; with five
hundred publishers of one frame each that costs as much as the broker, and with one of ten thousand
frames a second as much as sending them.
"""

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from select import EPOLLIN, EPOLLOUT, epoll
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector, SelectorKey
from time import monotonic
from typing import Any, Protocol, TypeVarTuple, Unpack, cast

from host_broker.net.connection.alarm import Alarm

_MOST_EVENTS = 256  # of one look; the others are in the next one, none is passed over
# A turn ends after so many bytes: what it sends waits for its end, and who is to be held up is only
# known then.
_TURN_BYTES = 256 * 1024


_Ts = TypeVarTuple("_Ts")


class _HasFileno(Protocol):
    def fileno(self) -> int: ...


class Watched(Protocol):
    """Whoever is told of its socket: a ``Stream``, a ``ProtocolDetector``.

    ``watched`` is the poller's.
    """

    fd: int
    watched: int

    def ready_to_read(self) -> int:
        """Read once; returns how many bytes it was."""

    def ready_to_write(self) -> None:
        """Write what waits."""


def _nothing(*_: object) -> None:
    """What a turn ends with before ``Poller.turns``."""


class Poller(BaseSelector):
    """A selector for asyncio that also tells streams when they can read or write.

    It does so inside of ``select``, hence between the callbacks of the loop, and waits again until
    asyncio has something to do. ``asyncio_is_needed``: it has, since the last ``select`` began.
    ``in_turn``: streams are being handled, since ``turn_began``, by the monotonic clock.
    ``backlog``: bytes that all streams together wait to send, which they count themselves.
    """

    def __init__(self) -> None:
        self.backlog = 0
        self.asyncio_is_needed = False
        self.in_turn = False
        self.turn_began = monotonic()
        self._epoll = epoll()
        self._alarm = Alarm()
        self._epoll.register(self._alarm.fd, EPOLLIN)
        self._keys: dict[int, SelectorKey] = {}
        self._streams: dict[int, Watched] = {}
        self._end: Callable[[], None] = _nothing
        self._failed: Callable[[dict[str, Any]], None] = _nothing

    def turns(self, end: Callable[[], None], failed: Callable[[dict[str, Any]], None]) -> None:
        """Reads of streams come in turns: call ``end`` after those of one.

        ``failed`` is told, as the loop's exception handler, of errors that are nobody's else.
        """
        self._end, self._failed = end, failed

    def watch(self, stream: Watched, events: int) -> None:
        """Look for ``events`` of a stream from now on: EPOLLIN, EPOLLOUT, both, or 0 for none."""
        fd, watched = stream.fd, stream.watched
        if events == watched:
            return
        stream.watched = events
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
        """Wait at most ``timeout`` seconds (None: for ever), handle streams, return the rest.

        It may wait less, if it was to wait less before.
        """
        rest: list[tuple[SelectorKey, int]] = []
        wait = None
        if timeout is not None:
            if timeout <= 0:
                wait = 0
            elif (end := monotonic() + timeout) < self._alarm.at:
                self._alarm.set(end)
        poll = self._epoll.poll
        self.asyncio_is_needed = False
        while True:
            found = poll(wait, _MOST_EVENTS)
            if found:
                self._handle(found, rest)
            if rest or self.asyncio_is_needed or wait == 0:
                return rest

    def close(self) -> None:
        """Look no more."""
        self._keys.clear()
        self._alarm.close()
        self._epoll.close()

    def get_map(self) -> Mapping[Any, SelectorKey]:
        """Return the keys by file number."""
        return self._keys

    def get_key(self, fileobj: "int | _HasFileno") -> SelectorKey:
        """Return the key of a file; KeyError if it is not registered."""
        return self._keys[_fd(fileobj)]

    # ---- streams ----

    def _handle(self, found: list[tuple[int, int]], rest: list[tuple[SelectorKey, int]]) -> None:
        """Have streams do what they can; what is asyncio's is added to ``rest``.

        Whatever fails, the turn ends, and the others of it are served: an exception out of
        ``select`` would end the loop, which survives a callback that fails.
        """
        streams = self._streams
        read = 0
        self.in_turn = True
        self.turn_began = monotonic()
        try:
            for fd, what in found:
                stream = streams.get(fd)
                if stream is None:
                    key = self._keys.get(fd)
                    if key is not None:
                        rest.append((key, _events(what) & key.events))
                    elif fd == self._alarm.fd and self._alarm.clear():
                        self.asyncio_is_needed = True
                    continue  # else it was a stream that ended in this turn
                try:
                    # Hang-ups and errors are found by whatever it wanted to do.
                    if what != EPOLLOUT:
                        read += stream.ready_to_read()
                    if what != EPOLLIN:
                        stream.ready_to_write()
                except Exception as error:
                    self._failed({"message": "a socket could not be served", "exception": error})
                if read > _TURN_BYTES:
                    read = 0
                    self._end_turn()
                    self.in_turn = True
                    self.turn_began = monotonic()
        finally:
            self._end_turn()

    def _end_turn(self) -> None:
        self.in_turn = False
        try:
            self._end()
        except Exception as error:
            self._failed({"message": "a turn could not be ended", "exception": error})


class EventLoop(asyncio.SelectorEventLoop):
    """An event loop that waits in a ``Poller``, and tells it when there is something to do."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        super().__init__(poller)

    def call_soon(
        self,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Call back when the poller has returned."""
        self._poller.asyncio_is_needed = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call back at a time; the poller waits no longer than that once it was told."""
        self._poller.asyncio_is_needed = True
        return super().call_at(when, callback, *args, context=context)


def event_loop(poller: Poller) -> asyncio.AbstractEventLoop:
    """Return an event loop that waits in ``poller``."""
    return cast(asyncio.AbstractEventLoop, EventLoop(poller))


def _fd(fileobj: "int | _HasFileno") -> int:
    return fileobj if isinstance(fileobj, int) else fileobj.fileno()


def _mask(events: int) -> int:
    return EPOLLIN * bool(events & EVENT_READ) | EPOLLOUT * bool(events & EVENT_WRITE)


def _events(what: int) -> int:
    """Hang-ups and errors are for whoever waits for anything."""
    return EVENT_READ * bool(what & ~EPOLLOUT) | EVENT_WRITE * bool(what & ~EPOLLIN)
