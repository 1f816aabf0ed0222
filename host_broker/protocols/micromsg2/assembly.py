"""Fragments to messages (R19, A17)."""

from host_broker.protocols.micromsg2.events import MessageFrame
from host_broker.protocols.micromsg2.refusal import Refusal
from host_broker.wire.budget import Budget


class Assembler:
    """Joins the message frames of one direction, those that were not sent again.

    ``max_message``: bytes of a whole payload; ``bus.max_body``. ``budget``: what fragments take
    their memory from. Call ``close`` at the end.
    """

    def __init__(self, max_message: int, budget: Budget | None = None) -> None:
        self._max_message = max_message
        self._budget = budget
        self._first: MessageFrame | None = None
        self._payload = bytearray()

    @property
    def is_idle(self) -> bool:
        """Whether no message is begun."""
        return self._first is None

    def add(self, frame: MessageFrame) -> MessageFrame | Refusal | None:
        """Take a frame; returns the message that it completes.

        Destination and properties are those of the first fragment, the number is that of the last.
        """
        first = self._first
        if first is None and not frame.continued:
            return frame
        if first is not None and frame.destination != first.destination:
            return self._refuse(
                "R19", "a message came between the fragments of another, of another destination"
            )
        length = len(self._payload) + len(frame.payload)
        if length > self._max_message:
            return self._refuse(
                "bus.max_body",
                f"fragments of {length} bytes are longer than bus.max_body, {self._max_message}",
            )
        if self._budget is not None and not self._budget.take(len(frame.payload)):
            return self._refuse(
                "bus.max_held_bytes",
                "all clients together hold as much as bus.max_held_bytes allows",
            )
        self._payload += frame.payload
        if first is None:
            self._first = first = MessageFrame(
                frame.sequence, frame.destination, frame.properties, b""
            )
        if frame.continued:
            return None
        whole = MessageFrame(
            frame.sequence, first.destination, first.properties, bytes(self._payload)
        )
        self.close()
        return whole

    def close(self) -> None:
        """Forget what is unfinished."""
        if self._budget is not None:
            self._budget.give(len(self._payload))
        self._first = None
        self._payload = bytearray()

    def _refuse(self, rule: str, reason: str) -> Refusal:
        self.close()
        return Refusal(rule, reason)
