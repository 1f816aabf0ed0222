"""The document and its author's program disagree about numbers (A1, A2). Both, as tables."""

from dataclasses import dataclass
from enum import Enum
from typing import Literal


class Refusal(Enum):
    """Why a client is not accepted, as an index from the code for "accepted" (R11)."""

    VERSION = 1
    UNAVAILABLE = 2
    MALFORMED = 3
    UNAUTHORIZED = 4


@dataclass(frozen=True, slots=True)
class Dialect:
    """Opcodes, and the CONNACK code that means "accepted"; refusals count up from it."""

    ping: int
    pong: int
    send: int
    sendresp: int
    accepted: int
    connect: int = 1
    connack: int = 2

    def refused(self, refusal: Refusal) -> int:
        """Return the CONNACK code of a refusal."""
        return self.accepted + refusal.value


DialectName = Literal["spec", "gbaranski"]

DIALECTS: dict[DialectName, Dialect] = {
    "spec": Dialect(ping=3, pong=4, send=5, sendresp=6, accepted=0),
    "gbaranski": Dialect(send=3, sendresp=4, ping=5, pong=6, accepted=1),
}
