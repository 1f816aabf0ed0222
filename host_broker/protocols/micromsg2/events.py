"""What MicroMsg2 peers say: one event per handshake message or frame.

Nobody changes an event; those made for every message are not frozen, because freezing triples the
time it takes to make one.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from host_broker.wire.violation import Violation


@dataclass(frozen=True, slots=True)
class Extension:
    """One extension of a list: its name, and its properties in the order in which they were said.

    Values are decoded.
    """

    name: str
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Handshake:
    """A request, a reply, or the final message: all three have one layout (R2).

    ``flags`` are reserved and mean nothing.
    """

    major: int
    minor: int
    identity: str
    required: tuple[Extension, ...] = ()
    optional: tuple[Extension, ...] = ()
    flags: int = 0


@dataclass(slots=True)
class MessageFrame:
    """A MESSAGE from the server, or a SEND from the client (A11).

    ``properties`` as on the wire. ``continued``: the payload goes on in the next message frame.
    """

    sequence: int
    destination: bytes
    properties: bytes
    payload: bytes
    continued: bool = False


@dataclass(slots=True)
class MessageRun:
    """Message frames that follow each other, in one read, to one destination: with payloads of 1 to
    255 bytes, without properties, not continued, and numbered one by one from ``sequence``."""

    sequence: int
    destination: bytes
    payloads: list[bytes]

    def each(self) -> Iterator[MessageFrame]:
        """Take it apart."""
        for position, payload in enumerate(self.payloads):
            # After 65535 comes 1 (R22).
            number = (self.sequence + position - 1) % 65535 + 1
            yield MessageFrame(number, self.destination, b"", payload)


@dataclass(frozen=True, slots=True)
class CommandFrame:
    """A command. A key may be said several times; values are decoded."""

    name: str
    arguments: tuple[tuple[str, bytes], ...] = ()


@dataclass(slots=True)
class ExtensionFrame:
    """A frame for the extension of this index (R10)."""

    index: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class ErrorFrame:
    """Why the peer gives up: its last word (A25)."""

    reason: str


Event = (
    Handshake | MessageFrame | MessageRun | CommandFrame | ExtensionFrame | ErrorFrame | Violation
)
