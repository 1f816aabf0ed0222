"""What LightMQ peers say: one event per frame."""

from dataclasses import dataclass

from host_broker.wire.violation import Violation


@dataclass(frozen=True, slots=True)
class Connect:
    """The client's first frame: its name."""

    client_id: str


@dataclass(frozen=True, slots=True)
class Connack:
    """The server's first frame; ``code`` as on the wire, ``accepted`` what it means."""

    code: int
    accepted: bool


@dataclass(frozen=True, slots=True)
class Ping:
    """Are you there?"""

    id: int


@dataclass(frozen=True, slots=True)
class Pong:
    """Yes. ``id`` None: the answer to the oldest PING (A5)."""

    id: int | None


@dataclass(frozen=True, slots=True)
class Send:
    """A message; ``flags`` are reserved and mean nothing (R15, A15)."""

    id: int
    flags: int
    data: bytes


@dataclass(frozen=True, slots=True)
class SendResp:
    """The response to the SEND of the same id."""

    id: int
    data: bytes


Event = Connect | Connack | Ping | Pong | Send | SendResp | Violation
