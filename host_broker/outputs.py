"""What the pure broker asks its edge to do.

The edge executes an ``Outputs`` in this order: records, retained, sends, closes, signal. It is an
accumulator, not a list of command objects, because one read may touch fifty receivers and nobody
needs fifty objects to say so.
"""

from dataclasses import dataclass, field
from typing import Literal

Buffer = bytes | bytearray | memoryview
ConnectionId = int  # from 1, never reused; 0 is the broker itself


@dataclass(frozen=True, slots=True)
class Close:
    """Close a connection: after its pending writes (``abort=False``) or at once."""

    connection: ConnectionId
    reason: str
    abort: bool = False


@dataclass(slots=True)  # not frozen: one is made for every read
class Record:
    """One run of publications for the journal (docs/journal.md); nobody changes it."""

    connection: ConnectionId
    protocol: int
    client: str
    count: int
    body: Buffer  # FMQP publication packets back to back, count >= 1 of them


@dataclass(slots=True)
class Outputs:
    """Everything one call of the broker wants done.

    ``retained``: entries that changed, topic to stored form or None (forgotten), for an edge that
    keeps them across restarts; what the broker itself says is not among them.
    ``signal``: a client has asked for the end (FMQP R31, R32). From then on the broker takes no
    connection and reads nothing. ``"terminate"``: exit at once. ``"stop"``: close the listeners,
    stop reading, drain, ``Broker.stop``, drain, close, exit.
    ``rest_s``: how long the connection whose read this was is to be read no further, because it
    sent too much that had to be discarded.
    """

    records: list[Record] = field(default_factory=list)
    sends: dict[ConnectionId, list[Buffer]] = field(default_factory=dict)
    closes: list[Close] = field(default_factory=list)
    retained: dict[bytes, bytes | None] = field(default_factory=dict)
    signal: Literal["", "stop", "terminate"] = ""
    rest_s: float = 0.0


@dataclass(slots=True)
class Forward:
    """Send these buffers to each of these receivers; ``senders`` are those whose reads had them."""

    receivers: tuple[ConnectionId, ...]
    buffers: list[Buffer]
    senders: list[ConnectionId]


@dataclass(slots=True)
class Gathered:
    """What gathered reads want done: records, then forwards, each in order."""

    records: list[Record]
    forwards: list[Forward]
