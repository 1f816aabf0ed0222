"""What the broker asks of a protocol."""

from abc import ABC, abstractmethod
from collections.abc import Container, Sequence
from typing import Protocol

from host_broker.bus.commands import Command
from host_broker.bus.subscriptions import Interest
from host_broker.outputs import ConnectionId

NOTHING: Sequence[Command] = ()


class Session(Protocol):
    """One connection's translation of its peer's words into the bus's commands.

    ``client``: the name for the journal, "" if the protocol has none. ``deadline``: when ``tick``
    wants to be called, on the clock of ``now``; None = never.
    """

    client: str
    deadline: float | None

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        """Take one read."""

    def tick(self, now: float) -> Sequence[Command]:
        """Do what ``deadline`` was set for."""

    def closed(self, now: float) -> Sequence[Command]:
        """The connection is gone, whatever the reason; called exactly once."""


class Translator(ABC):
    """A session that is this, too, says publications in words of its own.

    The others' peers take them in stored form, as they are; those sessions never see them.
    """

    @abstractmethod
    def deliver(self, run: bytes, now: float) -> Sequence[Command]:
        """Say a run of stored publications in this protocol's words; may change ``deadline``."""


class Verbatim(ABC):
    """A session that is this, too, hears publications in stored form.

    Then a read that is one plain publication, as ``PublishRun`` means it, can be passed on without
    the session, which is only told of it. ``plain_topics``: some of those that are plain for it; it
    may grow and shrink. ``max_body``: bytes, of a body that is plain.
    """

    plain_topics: Container[bytes]
    max_body: int

    @property
    @abstractmethod
    def between_packets(self) -> bool:
        """Whether the next byte begins a packet."""

    @abstractmethod
    def passed(self, count: int, size: int) -> None:
        """So many plain publications, of ``size`` bytes together, were passed on."""


class ProtocolServer(Protocol):
    """One protocol in one broker: makes its sessions and keeps what they share.

    ``journal_code`` is the protocol's number in docs/journal.md.
    """

    journal_code: int

    def session(self, connection: ConnectionId, now: float, loopback: bool) -> Session:
        """Begin a connection; ``loopback``: its peer is on this machine."""

    def latecomer(self, connection: ConnectionId, now: float) -> Session | None:
        """Begin a connection that came while the broker is ending, only to be told so.

        None: the protocol has no word for that. Such a session may send and disconnect.
        """

    def interest(self, interest: Interest) -> Sequence[Command]:
        """Somebody began or ended to want a path."""

    def population(self, count: int) -> Sequence[Command]:
        """The number of connected clients, of all protocols, has changed."""
