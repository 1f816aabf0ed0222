"""What happens to messages for a receiver that is too slow, if its publishers do not wait."""

from collections import deque
from dataclasses import dataclass
from typing import Literal, get_args

from host_broker.bus.publication import HEADER
from host_broker.outputs import Buffer

Policy = Literal["pause", "drop-oldest", "drop-newest", "disconnect"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

# Whose buffers are runs of publications in stored form; a buffer of any other is one message.
_STORED_FORM = "fmqp"


@dataclass(slots=True)
class Dropped:
    """What slow receivers were not sent."""

    messages: int = 0
    bytes: int = 0

    def count(self, protocol: str, buffer: Buffer) -> None:
        """Add a buffer of whole messages."""
        self.messages += _publications(buffer) if protocol == _STORED_FORM else 1
        self.bytes += len(buffer)


class Overflow:
    """Whole buffers that wait behind a congested socket, at most ``limit`` bytes.

    A buffer is what one read of a publisher held for this receiver, hence whole messages. With
    ``limit`` 0 nothing waits and what comes is what is dropped (``drop-newest``); otherwise the
    oldest give way (``drop-oldest``).
    """

    def __init__(self, protocol: str, limit: int, total: Dropped) -> None:
        self.dropped = Dropped()  # of this receiver; ``total`` is that of all
        self._protocol = protocol
        self._limit = limit
        self._total = total
        self._waiting: deque[Buffer] = deque()
        self._bytes = 0

    def put(self, buffers: list[Buffer]) -> None:
        """Take buffers, dropping what is too much."""
        for buffer in buffers:
            self._waiting.append(buffer)
            self._bytes += len(buffer)
            while self._bytes > self._limit:
                oldest = self._waiting.popleft()
                self._bytes -= len(oldest)
                self.dropped.count(self._protocol, oldest)
                self._total.count(self._protocol, oldest)

    def get(self) -> Buffer | None:
        """Return the oldest buffer that waits."""
        if not self._waiting:
            return None
        buffer = self._waiting.popleft()
        self._bytes -= len(buffer)
        return buffer

    def __bool__(self) -> bool:
        return bool(self._waiting)


def _publications(run: Buffer) -> int:
    count = position = 0
    while position < len(run):
        _, topic_length, body_length = HEADER.unpack_from(run, position)
        position += HEADER.size + topic_length + body_length
        count += 1
    return count
