"""What the broker knows of one connection."""

from collections.abc import Sequence
from dataclasses import dataclass

from host_broker.bus.commands import Command
from host_broker.outputs import ConnectionId
from host_broker.protocols.session import Session, Translator, Verbatim


@dataclass(slots=True)
class Client:
    """A connection: its session, and whether the broker has asked to close it.

    ``translator``: the session, if it says publications in words of its own. ``verbatim``: the
    session, if it hears them in stored form and its peer's next byte begins a packet.
    """

    connection: ConnectionId
    session: Session
    journal_code: int
    translator: Translator | None = None
    verbatim: Verbatim | None = None
    closing: bool = False
    steps: int = 0  # through the index, made for it and not yet paid off
    paid: float = 0.0  # until when they were
    discards: float = 0.0  # packets, not yet paid off
    discards_paid: float = 0.0  # until when they were

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        """Have the session take one read."""
        session = self.session
        commands = session.received(data, now)
        if isinstance(session, Verbatim):
            self.verbatim = session if session.between_packets else None
        return commands
