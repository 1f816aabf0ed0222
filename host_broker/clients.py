"""What the broker knows of one connection."""

from dataclasses import dataclass

from host_broker.outputs import ConnectionId
from host_broker.protocols.session import Session, Translator


@dataclass(slots=True)
class Client:
    """A connection: its session, and whether the broker has asked to close it.

    ``translator``: the session, if it says publications in words of its own.
    """

    connection: ConnectionId
    session: Session
    journal_code: int
    translator: Translator | None = None
    closing: bool = False
    steps: int = 0  # through the index, made for it and not yet paid off
    paid: float = 0.0  # until when they were
    discards: float = 0.0  # packets, not yet paid off
    discards_paid: float = 0.0  # until when they were
