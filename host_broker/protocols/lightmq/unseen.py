"""A connection that nobody is told of: ``NAME>``, a caller who calls no one.

It is there to SEND, or to ask whether the broker is there (PING). Nothing can be sent to it, so it
leaves no presence behind: a program that runs every minute is not a client more each time.
"""

from collections.abc import Sequence

from host_broker.bus.commands import Command
from host_broker.protocol import NOTHING
from host_broker.protocols.lightmq.mailbox import Mailbox


class Unseen(Mailbox):
    """Of one connection; what it SENDs is its name's ``up``."""

    present = False
    callable = False

    def begin(self) -> Sequence[Command]:
        """Hear nothing."""
        return NOTHING
