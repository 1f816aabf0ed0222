"""What the broker asks of a protocol."""

from collections.abc import Sequence
from typing import Protocol

from host_broker.bus.commands import Command
from host_broker.bus.subscriptions import Interest
from host_broker.outputs import ConnectionId

NOTHING: Sequence[Command] = ()


class Session(Protocol):
    """One connection's translation between its protocol's words and the bus's commands.

    ``verbatim``: it takes stored publications as they are, so ``deliver`` is never called.
    ``client``: the name for the journal, "" if the protocol has none. ``deadline``: when ``tick``
    wants to be called, on the clock of ``now``; None = never.
    """

    verbatim: bool
    client: str
    deadline: float | None

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        """Take one read."""

    def deliver(self, run: bytes, now: float) -> Sequence[Command]:
        """Say a run of stored publications in this protocol's words."""

    def tick(self, now: float) -> Sequence[Command]:
        """Do what ``deadline`` was set for."""

    def closed(self, now: float) -> Sequence[Command]:
        """The connection is gone, whatever the reason; called exactly once."""


class ProtocolServer(Protocol):
    """One protocol in one broker: makes its sessions and keeps what they share.

    ``journal_code`` is the protocol's number in docs/journal.md.
    """

    journal_code: int

    def session(self, connection: ConnectionId, now: float, loopback: bool) -> Session:
        """Begin a connection; ``loopback``: its peer is on this machine."""

    def interest(self, interest: Interest) -> Sequence[Command]:
        """Somebody began or ended to want a path."""

    def population(self, count: int) -> Sequence[Command]:
        """The number of connected clients, of all protocols, has changed."""
