"""What an accepted client's SENDs are for: what ``mailbox``, ``caller`` and ``tunnel`` are."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from host_broker.bus.commands import Command, Disconnect
from host_broker.bus.delivery import Delivery
from host_broker.protocol import NOTHING
from host_broker.protocols.lightmq.events import Send


class Role(ABC):
    """One accepted connection's traffic; states and silence are the session's.

    A ``Disconnect`` of its own is the last command of those it is among.

    ``deadline``: when ``tick`` is wanted, None = never. ``present``: the client is on the bus
    under its own name, so its presence is told; ``callable``: it takes requests.
    """

    present: bool = True
    callable: ClassVar[bool] = False
    deadline: float | None = None

    def begin(self) -> Sequence[Command]:
        """The client has been accepted, and told so."""
        return NOTHING

    @abstractmethod
    def sent(self, id: int, data: bytes, now: float) -> Sequence[Command]:
        """The client has sent SEND; sooner or later it gets SENDRESP."""

    def sent_many(self, sends: Sequence[Send], now: float) -> Sequence[Command]:
        """The client has sent these, one after the other, in one read."""
        commands: list[Command] = []
        for send in sends:
            commands += self.sent(send.id, send.data, now)
            if commands and type(commands[-1]) is Disconnect:
                break
        return commands

    @abstractmethod
    def responded(self, id: int, data: bytes) -> Sequence[Command]:
        """The client has sent SENDRESP."""

    @abstractmethod
    def deliver(self, delivery: Delivery, now: float) -> Sequence[Command]:
        """Say a run of stored publications to the client."""

    def refused(self, action: str, topic: bytes) -> Sequence[Command]:
        """The client may not do that: LightMQ has no error packet, and an answer would say that
        the bus has it."""
        return [Disconnect(f"it may not {action} {topic.decode(errors='replace')!r}")]

    def tick(self, now: float) -> Sequence[Command]:
        """Do what ``deadline`` was set for."""
        return NOTHING

    def ended(self, now: float) -> Sequence[Command]:
        """The connection is gone, whatever the reason."""
        return NOTHING
