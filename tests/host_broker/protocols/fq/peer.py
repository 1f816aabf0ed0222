"""An fq client of a desk: two connections, one key."""

from dataclasses import dataclass
from typing import Any

from host_broker.access import access
from host_broker.protocols.fq.codec import (
    TRANSIENT,
    Codec,
    read_head,
    read_origin,
    spell_bind,
    spell_bind_answer,
    spell_error,
    spell_greeting,
    spell_heartbeat,
    spell_heartbeat_request,
    spell_login,
    spell_login_accepted,
    spell_message,
    spell_status,
    spell_status_request,
    spell_unbind,
    spell_unbind_answer,
)
from host_broker.protocols.fq.events import (
    Bind,
    BindAnswer,
    CommandGreeting,
    DataGreeting,
    ErrorText,
    Event,
    Heartbeat,
    HeartbeatRequest,
    Login,
    LoginAccepted,
    MessageRun,
    Status,
    StatusRequest,
    Unbind,
    UnbindAnswer,
)
from host_broker.protocols.fq.settings import FqSettings
from tests.host_broker.desk import Desk, Done

MAX = 1 << 24
ID = b"0123456789abcdef"
NODE = bytes([127, 0, 0, 1])


def fq_desk(fq: dict[str, Any] | None = None, **more: Any) -> Desk:
    """A desk without a data folder, unless it says ``journalled=True``."""
    return Desk(sections={"fq": FqSettings(**(fq or {}))}, **({"journalled": False} | more))


@dataclass(frozen=True)
class Heard:
    """One message as a client hears it."""

    exchange: bytes
    route: bytes
    payload: bytes
    id: bytes
    sender: bytes
    hops: bytes


def taken_apart(run: MessageRun) -> list[Heard]:
    """The messages of a run."""
    origins = run.origins or [b"\0\0"] * len(run.ids)
    return [
        Heard(*read_head(head), payload, id, *read_origin(origin))
        for head, origin, id, payload in zip(run.heads, origins, run.ids, run.payloads, strict=True)
    ]


def spell_event(event: Event) -> bytes:
    """Spell what is said by one event; not messages, whose format is another in each direction."""
    match event:
        case CommandGreeting() | DataGreeting():
            return spell_greeting(event)
        case Login(user, queue, password):
            return spell_login(user, queue, password)
        case LoginAccepted(key):
            return spell_login_accepted(key)
        case Heartbeat():
            return spell_heartbeat()
        case HeartbeatRequest(milliseconds):
            return spell_heartbeat_request(milliseconds)
        case Bind(flags, exchange, program):
            return spell_bind(flags, exchange, program)
        case BindAnswer(route):
            return spell_bind_answer(route)
        case Unbind(route, exchange):
            return spell_unbind(route, exchange)
        case UnbindAnswer(route):
            return spell_unbind_answer(route)
        case StatusRequest():
            return spell_status_request()
        case Status(counters):
            return spell_status(counters)
        case ErrorText(text):
            return spell_error(text.decode("latin-1"))
    raise AssertionError(event)


AWAITED = b"?"  # a welcome that is yet to come


class Peer:
    """One client. ``queue``: as it is said at the login. ``data``: opened at once."""

    def __init__(
        self,
        desk: Desk,
        queue: bytes = b"q1\0mem",
        user: bytes = b"u",
        password: bytes = b"p",
        peer: access.Peer | None = None,
        data: bool = True,
    ) -> None:
        self.desk = desk
        self.codec = Codec("command", MAX)
        self.messages = Codec("data", MAX)
        self.key = b""
        self.data = 0
        self.welcome = b""  # a peer that acknowledges: what came before messages
        self.peer = peer
        self.command = desk.open("fq", peer=peer)
        self.answers = self.say(
            spell_greeting(CommandGreeting()) + spell_login(user, queue, password)
        )
        if data and self.answers and type(self.answers[0]) is LoginAccepted:
            self.open_data()

    def open_data(self, node: bytes = b"", is_peer: bool = False) -> Done:
        """Begin the data connection."""
        accepted = self.answers[0]
        assert isinstance(accepted, LoginAccepted)
        self.key = accepted.key
        self.data = self.desk.open("fq", peer=self.peer)
        return self.desk.send(self.data, spell_greeting(DataGreeting(self.key, node, is_peer)))

    def say(self, data: bytes) -> list[Any]:
        """Send bytes by the command connection; the events that came."""
        self.desk.send(self.command, data)
        return self.told()

    def told(self) -> list[Any]:
        """The events that came by the command connection since the last time."""
        return list(self.codec.receive_data(self.desk.got(self.command)))

    def bind(self, exchange: bytes, program: bytes, flags: int = TRANSIENT) -> int:
        """Bind; the route id."""
        (answer,) = self.say(spell_bind(flags, exchange, program))
        assert isinstance(answer, BindAnswer), answer
        return answer.route

    def unbind(self, route: int, exchange: bytes) -> int:
        """Unbind; the route id that is answered."""
        (answer,) = self.say(spell_unbind(route, exchange))
        assert isinstance(answer, UnbindAnswer), answer
        return answer.route

    def publish(self, exchange: bytes, route: bytes, *payloads: bytes) -> Done:
        """Publish in one read."""
        data = b"".join(spell_message(exchange, route, ID, each) for each in payloads)
        return self.desk.send(self.data, data)

    def heard(self) -> list[Heard]:
        """The messages that came since the last time."""
        found: list[Heard] = []
        for event in self.messages.receive_data(self._behind_welcome()):
            assert isinstance(event, MessageRun), event
            found += taken_apart(event)
        return found

    def _behind_welcome(self) -> bytes:
        said = self.desk.got(self.data)
        if self.welcome != AWAITED:
            return said
        self.welcome = said[:16]
        return said[16:]

    def payloads(self) -> list[bytes]:
        """What the messages carry that came since the last time."""
        return [each.payload for each in self.heard()]

    def status(self) -> dict[str, int]:
        """The counters."""
        (answer,) = self.say(spell_status_request())
        assert isinstance(answer, Status), answer
        return {name.decode(): value for name, value in answer.counters}

    @property
    def error(self) -> bytes:
        """The error that answered the login, after which the connection ended."""
        (error,) = self.answers
        assert isinstance(error, ErrorText), error
        assert self.is_closed
        return error.text

    @property
    def is_closed(self) -> bool:
        """Whether the broker has closed the command connection."""
        return any(close.connection == self.command for close in self.desk.closes)

    @property
    def data_is_closed(self) -> bool:
        """Whether the broker has closed the data connection."""
        return any(close.connection == self.data for close in self.desk.closes)

    def close(self) -> None:
        """End both connections, as far as the broker has not ended them."""
        for connection in (self.data, self.command):
            if connection:
                self.desk.close(connection)
