"""What happens to messages for a receiver that is too slow, if its publishers do not wait."""

from collections import deque
from collections.abc import Iterator
from typing import cast, get_args

from host_broker.bus.publication import HEADER
from host_broker.outputs import Buffer
from host_broker.settings import SlowPolicy
from host_broker.stats import Dropped

Policy = SlowPolicy
POLICIES: tuple[Policy, ...] = get_args(Policy)


class Overflow:
    """Messages that wait behind a congested socket, at most ``limit`` bytes of them.

    What is too much is dropped message by message, wherever reads were cut: with ``oldest`` what
    has waited longest, otherwise the end of what comes.
    """

    def __init__(self, limit: int, total: Dropped, *, verbatim: bool, oldest: bool) -> None:
        """``verbatim``: its buffers are runs in stored form; else each of them is one message."""
        self.dropped = Dropped()  # of this receiver; ``total`` is that of all
        self._many = verbatim
        self._limit = limit
        self._total = total
        self._oldest = oldest
        self._waiting: deque[Buffer] = deque()
        self._bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait."""
        return self._bytes

    def put(self, buffers: list[Buffer], *, short: bool = False) -> None:
        """Take buffers of whole messages, dropping what is too much; ``short``: none may wait that
        did not before."""
        if short:
            for buffer in buffers:
                self._append_beginning(buffer, 0)
            return
        for buffer in buffers:
            room = self._limit - self._bytes
            if self._oldest or len(buffer) <= room:
                self._append(buffer)
                while self._bytes > self._limit:
                    self._shorten_oldest()
            else:
                self._append_beginning(buffer, room)

    def get(self) -> Buffer | None:
        """Return the oldest buffer that waits."""
        if not self._waiting:
            return None
        buffer = self._waiting.popleft()
        self._bytes -= len(buffer)
        return buffer

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def _append(self, buffer: Buffer) -> None:
        self._waiting.append(buffer)
        self._bytes += len(buffer)

    def _append_beginning(self, buffer: Buffer, room: int) -> None:
        """Keep the messages that there is room for, drop the rest."""
        kept = dropped = 0
        for end in self._ends(buffer):
            if end <= room:
                kept = end
            else:
                dropped += 1
        if kept:
            self._append(_part(buffer, 0, kept))
        self._drop(dropped, len(buffer) - kept)

    def _shorten_oldest(self) -> None:
        """Drop as many messages of the oldest buffer as are too much, or all of it."""
        buffer = self._waiting.popleft()
        excess = self._bytes - self._limit
        self._bytes -= len(buffer)
        count = end = 0
        for count, end in enumerate(self._ends(buffer), 1):  # noqa: B007 - used after the loop
            if end >= excess:
                break
        self._drop(count, end)
        if end < len(buffer):
            rest = _part(buffer, end, len(buffer))
            self._waiting.appendleft(rest)
            self._bytes += len(rest)

    def _ends(self, buffer: Buffer) -> Iterator[int]:
        """Give where each message of a buffer ends."""
        position = 0
        while self._many and position < len(buffer):
            _, topic_length, body_length = HEADER.unpack_from(buffer, position)
            position += HEADER.size + topic_length + body_length
            yield position
        if not self._many:
            yield len(buffer)

    def _drop(self, count: int, length: int) -> None:
        self.dropped.add(count, length)
        self._total.add(count, length)


def _part(buffer: Buffer, start: int, end: int) -> Buffer:
    """Return a slice that keeps no more than twice its length in memory."""
    view = memoryview(buffer)[start:end]
    return view if 2 * len(view) >= len(cast(bytes, view.obj)) else bytes(view)
