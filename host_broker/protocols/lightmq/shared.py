"""What the LightMQ sessions of one broker have in common: settings, names, and who answers whom."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from host_broker.bus.subscriptions import Interest
from host_broker.outputs import ConnectionId
from host_broker.protocols.lightmq.admission import Admission
from host_broker.protocols.lightmq.settings import LightmqSettings
from host_broker.wire.budget import Budget


class NamedConnection(Protocol):
    """Who is connected under a ClientID; ``callable``: it takes requests."""

    connection: ConnectionId
    callable: bool

    def give_way(self) -> str:
        """End for a newer connection with the same ClientID; returns why."""

    def probe(self, now: float) -> bool:
        """Somebody else claims the name: have it PINGed; False if nothing is to be done."""


class Responders:
    """Who answers clients: those who subscribe to ``lightmq/ID/up/*``, or to that of every client.

    It knows from interests, which the bus tells anyway.
    """

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}  # by the level of the client, or "*"

    def changed(self, interest: Interest) -> None:
        """Take note of an interest in any topic."""
        topic = interest.topic
        if not (topic.startswith(b"lightmq/") and topic.endswith(b"/up/*")):
            return
        levels = topic.split(b"/")
        if len(levels) != 4:
            return
        if interest.count:
            self._counts[levels[1]] = interest.count
        else:
            self._counts.pop(levels[1], None)

    def wanted(self, level: bytes) -> bool:
        """Whether somebody says to answer the client of this level."""
        return level in self._counts or b"*" in self._counts


@dataclass(frozen=True, slots=True)
class Shared:
    """``named``: who is connected under which ClientID (R8). ``random_u16``: the source of ids.
    ``held``: the memory of unfinished frames of all connections."""

    settings: LightmqSettings
    random_u16: Callable[[], int]
    held: Budget
    admission: Admission
    responders: Responders = field(default_factory=Responders)
    named: dict[str, NamedConnection] = field(default_factory=dict)
