"""A connection that is nobody on the bus: ``NAME>``, a caller who calls no one.

It can ask whether the broker is there (PING), and leaves no presence behind.
"""

from collections.abc import Sequence

from host_broker.bus.commands import Command, Discard, Disconnect
from host_broker.bus.delivery import Delivery
from host_broker.protocols.lightmq.role import Role


class Guest(Role):
    """Of one connection."""

    present = False

    def sent(self, id: int, data: bytes, now: float) -> Sequence[Command]:
        """There is nobody it could be for, and LightMQ has no error packet."""
        return [Disconnect("a guest (NAME>) has nobody to SEND to")]

    def responded(self, id: int, data: bytes) -> Sequence[Command]:
        """It was never asked."""
        return [Discard("R17")]

    def deliver(self, delivery: Delivery, now: float) -> Sequence[Command]:
        """It has subscribed to nothing."""
        return ()
