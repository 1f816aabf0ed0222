"""What the LightMQ sessions of one broker have in common."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from host_broker.outputs import ConnectionId
from host_broker.protocols.lightmq.admission import Admission
from host_broker.protocols.lightmq.responders import Responders
from host_broker.settings import LightmqSettings


class Named(Protocol):
    """Who is connected under a ClientID; ``callable``: it takes requests."""

    connection: ConnectionId
    callable: bool

    def taken_over(self) -> str:
        """Give way to a newer connection with the same ClientID; returns why."""

    def doubted(self, now: float) -> bool:
        """Somebody else claims the name: have it PINGed; False if nothing is to be done."""


@dataclass(frozen=True, slots=True)
class Shared:
    """``named``: who is connected under which ClientID (R8). ``random_u16``: the source of ids."""

    settings: LightmqSettings
    random_u16: Callable[[], int]
    admission: Admission
    responders: Responders = field(default_factory=Responders)
    named: dict[str, Named] = field(default_factory=dict)
