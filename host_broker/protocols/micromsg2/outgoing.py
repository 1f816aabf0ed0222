"""What a client is yet to be sent: frames as its window has room for them."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from host_broker.protocols.micromsg2.codec import (
    MAX_FRAGMENT,
    spell_extension,
    spell_message,
    spell_messages,
)
from host_broker.protocols.micromsg2.negotiation import Acks
from host_broker.protocols.micromsg2.windows import SendWindow
from host_broker.wire.budget import Budget


@dataclass(slots=True, eq=False)
class OutgoingMessage:
    """One message. ``number``: its place in the queue ``queue``; 0: it is of a topic. Without
    ``queue``, its queue has it back.

    ``before``: frames of extensions that go just before it. ``type``: of .NET, said before it.
    ``position``: so much of the payload is sent.
    """

    destination: bytes
    properties: bytes
    payload: bytes
    type: bytes = b""
    queue: bytes = b""
    number: int = 0
    position: int = 0
    before: bytes = b""


class Outgoing:
    """Messages in order: those that wait for room, and those that wait for their ack.

    What waits of topics is at most ``max_backlog`` bytes, of ``budget``; what waits of queues is in
    their memory.
    """

    def __init__(
        self, acks: Acks | None, dotnet: int | None, max_backlog: int, budget: Budget
    ) -> None:
        self.window: SendWindow[OutgoingMessage | None] = SendWindow(acks)
        self._dotnet = dotnet
        self._max_backlog = max_backlog
        self._budget = budget
        self._waiting: deque[OutgoingMessage] = deque()
        self._backlog = 0  # bytes of topics that wait
        self._taken = 0  # bytes of the budget

    @property
    def has_room(self) -> bool:
        """Whether a message that came now would be sent at once."""
        return not self._waiting and self.window.room > 0

    @property
    def is_unacknowledged(self) -> bool:
        """Whether anything waits to be sent, or for its ack."""
        return bool(self._waiting) or len(self.window) > 0

    def agree(self, acks: Acks | None) -> None:
        """Take what was agreed about acks, before anything is sent."""
        self.window = SendWindow(acks)

    @property
    def backlog(self) -> int:
        """Bytes of topics that wait."""
        return self._backlog

    def add(self, message: OutgoingMessage) -> None:
        """Put a message at the end."""
        self._waiting.append(message)
        if not message.number:
            self._backlog += _size(message)

    def at_once(self, destination: bytes, payloads: Sequence[bytes]) -> bytes | None:
        """Return the frames of messages without properties and types; None, if they have to wait
        or be cut: then ``add`` them."""
        if self._waiting or self.window.room < len(payloads) or len(destination) > 255:
            return None
        if any(len(payload) > MAX_FRAGMENT for payload in payloads):
            return None
        first = self.window.send_many([None] * len(payloads))
        return spell_messages(first, destination, payloads)

    def frames(self) -> bytes:
        """Return the frames for which there is room now."""
        frames: list[bytes] = []
        waiting, window = self._waiting, self.window
        while waiting and window.room > 0:
            message = waiting[0]
            start = message.position
            end = start + MAX_FRAGMENT
            continued = end < len(message.payload)
            if start == 0 and message.before:
                frames.append(message.before)
            if start == 0 and message.type and self._dotnet is not None:
                frames.append(spell_extension(self._dotnet, message.type))
            sequence = window.send(None if continued else message)
            properties = b"" if start else message.properties
            part = message.payload[start:end]
            frames.append(spell_message(sequence, message.destination, properties, part, continued))
            if continued:
                message.position = end
                continue
            waiting.popleft()
            if not message.number:
                self._backlog -= _size(message)
        return b"".join(frames)

    def fault(self) -> str:
        """Return the limit that what waits is above, "" if there is none."""
        if self._backlog > self._max_backlog:
            return "micromsg2.max_backlog_bytes"
        if self._backlog > self._taken:
            if not self._budget.take(self._backlog - self._taken):
                return "bus.max_held_bytes"
        else:
            self._budget.give(self._taken - self._backlog)
        self._taken = self._backlog
        return ""

    def shed(self, most: int) -> tuple[int, int]:
        """Drop messages of topics that wait, the oldest first, until they are no more than ``most``
        bytes; what is begun is sent to its end. Returns how many messages and bytes it dropped."""
        waiting, before = self._waiting, self._backlog
        count = 0
        kept: list[OutgoingMessage] = []  # of queues: no more than their window
        while waiting and self._backlog > most:
            message = waiting.popleft()
            if message.number or message.position:
                kept.append(message)
            else:
                self._backlog -= _size(message)
                count += 1
        waiting.extendleft(reversed(kept))
        return count, before - self._backlog

    def give_back(self, queue: bytes) -> None:
        """Forget what waits of a queue that has it back; what is begun is sent to its end.

        Acks of what was sent are no acks for the queue from now on: should the client consume it
        again, it is sent these messages again, and only acks of that count.
        """
        for message in (*self.window.outstanding, *self._waiting):
            if message is not None and message.queue == queue:
                message.queue = b""
        self._waiting = deque(
            each for each in self._waiting if each.queue or not each.number or each.position
        )

    def close(self) -> None:
        """Forget everything."""
        self._waiting.clear()
        self._backlog = 0
        self._budget.give(self._taken)
        self._taken = 0


def _size(message: OutgoingMessage) -> int:
    before = len(message.before) + len(message.destination)
    return len(message.payload) + len(message.properties) + before
