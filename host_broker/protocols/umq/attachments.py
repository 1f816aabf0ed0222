"""Which binary message belongs to which text message: in order, first announced first (R5, A8)."""

from collections import deque
from dataclasses import dataclass, field

from host_broker.protocols.umq.codec import Message
from host_broker.protocols.umq.events import Attachment
from host_broker.wire.budget import Budget


@dataclass(slots=True)
class _Awaited:
    message: Message
    attachments: list[Attachment] = field(default_factory=list)


class AttachmentQueue:
    """Messages whose attachments have not all come, at most ``most`` attachments of them.

    What has come, texts too, is in memory until the last one is there, and is taken from ``held``.
    """

    def __init__(self, most: int, held: Budget) -> None:
        self._most = most
        self._held = held
        self._queue: deque[_Awaited] = deque()
        self._taken = 0
        self.missing = 0  # how many are yet to come

    def announce(self, message: Message) -> bool:
        """Await a message's attachments, at least one; False if these are too many (``has_room``
        tells), or there is no memory for the message."""
        size = _size(message)
        if not (self.has_room(message) and self._held.take(size)):
            return False
        self._taken += size
        self.missing += message.attachments
        self._queue.append(_Awaited(message))
        return True

    def has_room(self, message: Message) -> bool:
        """Whether so many attachments more may be awaited."""
        return self.missing + message.attachments <= self._most

    def settle(self, attachment: Attachment) -> tuple[Message, list[Attachment]] | str | None:
        """Take the next attachment, or why there is none.

        Returns the message of which it was the last one, None while others are awaited; or what is
        wrong: "unannounced", or "held" if there is no memory for it.
        """
        if not self._queue:
            return "unannounced"
        if isinstance(attachment, bytes):
            if not self._held.take(len(attachment)):
                return "held"
            self._taken += len(attachment)
        self.missing -= 1
        first = self._queue[0]
        first.attachments.append(attachment)
        if len(first.attachments) < first.message.attachments:
            return None
        self._queue.popleft()
        size = _size(first.message)
        size += sum(len(each) for each in first.attachments if isinstance(each, bytes))
        self._held.give(size)
        self._taken -= size
        return first.message, first.attachments

    def close(self) -> None:
        """Forget all."""
        self._queue.clear()
        self._held.give(self._taken)
        self._taken = self.missing = 0


def _size(message: Message) -> int:
    """Return about how many bytes a message takes until then."""
    payload = message.payload
    return len(payload) if payload.isascii() else 4 * len(payload)
