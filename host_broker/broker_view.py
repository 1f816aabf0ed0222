"""What a protocol may look at, of the broker that it is part of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from host_broker.access.access import Peer
from host_broker.access.principal import Principal
from host_broker.access.rules import Action
from host_broker.access.sessions import LoginSessions
from host_broker.bus.queue import Queue
from host_broker.bus.retained import RetainedMessage
from host_broker.outputs import ConnectionId
from host_broker.settings import HttpSettings


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """One connected client. ``client``: its name, or what it calls itself; ``patterns``: of its
    first subscriptions; ``published``: how many publications were accepted from it; ``since_ms``:
    when it came, since 1970."""

    connection: ConnectionId
    protocol: str
    client: str
    principal: Principal
    subscriptions: int
    patterns: Sequence[str]
    published: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class WillFacts:
    """What is published when a client leaves."""

    connection: ConnectionId
    protocol: str
    client: str
    topic: bytes
    body: bytes
    retain: bool


@dataclass(frozen=True, slots=True)
class CallTopics:
    """How whoever publishes asks a client of a protocol: ``%c`` is its name as a level, ``%t`` a
    tag that tells calls apart.

    ``request`` is published, ``reply`` has the answer, and then ``done`` says how it ended:
    ``answered``, or why there is none. Whoever takes calls is subscribed to ``interest``.
    """

    interest: str
    request: str
    reply: str
    done: str
    answered: bytes


class BrokerView(Protocol):
    """The broker, to be looked at. Pages: at most ``most`` of those that come behind ``after``."""

    @property
    def http(self) -> HttpSettings:
        """The settings of HTTP as they are now."""

    @property
    def call_topics(self) -> Sequence[CallTopics]:
        """How clients are called, of each protocol that has that."""

    @property
    def is_open(self) -> bool:
        """Whether nobody needs to say who it is."""

    def peer_of(self, connection: ConnectionId) -> Peer:
        """Return what the edge knows of a connection's other end."""

    def principal_of(self, connection: ConnectionId) -> Principal:
        """Return who a connection is."""

    @property
    def web_sessions(self) -> LoginSessions:
        """Those who have logged in at our pages. A connection that is who it is by such a session
        is among its ``connections``, and ``tick`` is called for it when the session has ended."""

    @property
    def is_ending(self) -> bool:
        """Whether the broker is stopping: nothing more is read."""

    def may(
        self, connection: ConnectionId, action: Action, path: bytes, *, prefix: bool = False
    ) -> str:
        """Return why a connection may not do that, "" if it may. Nothing is counted or logged."""

    def deny(self, connection: ConnectionId, action: Action, path: bytes) -> None:
        """Count and log that a connection may not do that."""

    def clients(self, after: ConnectionId, most: int) -> list[ClientFacts]:
        """Return clients in the order in which they came."""

    def wills(self, after: ConnectionId, most: int) -> tuple[list[WillFacts], ConnectionId | None]:
        """Return last wills of clients, all of a client together, and the client behind which there
        may be more, None if there is nobody. They may be fewer than ``most``, even none: where most
        clients have none, only so many are looked at in one call."""

    def retained(self, prefix: bytes, after: bytes, most: int) -> list[RetainedMessage]:
        """Return retained messages in the order of their topics, which begin with ``prefix``."""

    def topics(self, prefix: bytes, after: bytes, most: int) -> list[bytes]:
        """Return topics that are retained or were published lately, in order."""

    def queues_behind(self, prefix: bytes, after: bytes, most: int) -> list[Queue]:
        """Return queues in the order of their names, which begin with ``prefix``."""

    def is_retained(self, topic: bytes) -> bool:
        """Whether a message of a topic is retained."""
