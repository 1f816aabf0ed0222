"""What fq peers say: one event per greeting, command, or run of messages.

Nobody changes an event; those made for every read are not frozen, because freezing triples the time
it takes to make one. Texts are bytes, as fq knows no encoding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from host_broker.wire.violation import Violation


@dataclass(frozen=True, slots=True)
class CommandGreeting:
    """A command connection begins."""


@dataclass(frozen=True, slots=True)
class DataGreeting:
    """A data connection begins, for the client that was given this key.

    ``node``: the 4 bytes that name the peer broker; b"" from a client, and from an old peer (A2).
    ``peer``: its messages are in the peers' format. ``taker``, 8 bytes: a peer that acknowledges
    (``NOTES.md``), which says no messages; it has kept all up to the number ``taken``.
    """

    key: bytes
    node: bytes = b""
    peer: bool = False
    taker: bytes = b""
    taken: int = 0


@dataclass(frozen=True, slots=True)
class Taken:
    """A peer that acknowledges has kept all up to the message of this number."""

    number: int


@dataclass(frozen=True, slots=True)
class Login:
    """Who a client is, and the queue that it wants: ``name``, or ``name NUL type:params`` (R7)."""

    user: bytes
    queue: bytes
    password: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class LoginAccepted:
    """The key with which the data connection begins (R4)."""

    key: bytes


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Whoever says it is there."""


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """The broker shall beat every ``milliseconds``; 0: not at all (R15)."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class Bind:
    """Have messages of an exchange for which a program holds. ``flags``: A6."""

    flags: int
    exchange: bytes
    program: bytes


@dataclass(frozen=True, slots=True)
class BindAnswer:
    """The route id of a binding; ``REFUSED`` if it was refused (R16, R17)."""

    route: int


@dataclass(frozen=True, slots=True)
class Unbind:
    """End a binding."""

    route: int
    exchange: bytes


@dataclass(frozen=True, slots=True)
class UnbindAnswer:
    """The route id that was said; ``REFUSED`` if it was refused (R18)."""

    route: int


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """Have the counters of this client."""


@dataclass(frozen=True, slots=True)
class Status:
    """Counters, in the order in which they were said (R19)."""

    counters: tuple[tuple[bytes, int], ...]


@dataclass(frozen=True, slots=True)
class ErrorText:
    """Why the broker gives up: its last word (R8)."""

    text: bytes


@dataclass(slots=True)
class MessageRun:
    """Messages that follow each other in one read, whatever their routes.

    All lists are as long as each other. ``heads`` are exchanges and routes as they are spelled
    (``codec.read_head``); of equal ones in a row there is one object. In the peers' format
    ``origins`` are senders and hops in the same way (``codec.read_origin``); else it is empty.
    """

    heads: list[bytes]
    origins: list[bytes]
    ids: list[bytes]
    payloads: list[bytes]

    def only(self, places: Sequence[int]) -> "MessageRun":
        """Return those at these places."""
        return MessageRun(
            [self.heads[place] for place in places],
            [self.origins[place] for place in places] if self.origins else [],
            [self.ids[place] for place in places],
            [self.payloads[place] for place in places],
        )


@dataclass(frozen=True, slots=True)
class TooLong:
    """A message with a payload of more bytes than are taken; it is read, and forgotten (A7)."""

    exchange: bytes
    route: bytes
    id: bytes
    length: int


CommandEvent = (
    CommandGreeting
    | Login
    | LoginAccepted
    | Heartbeat
    | HeartbeatRequest
    | Bind
    | BindAnswer
    | Unbind
    | UnbindAnswer
    | StatusRequest
    | Status
    | ErrorText
    | Violation
)
DataEvent = DataGreeting | Taken | MessageRun | TooLong | Violation
Event = CommandEvent | DataEvent
