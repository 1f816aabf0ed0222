"""What a client of any protocol is: a pure session between a program's words and a broker's bytes.

A session knows no socket, clock or thread. Its user hands it commands (``publish``, ``subscribe``,
``ping`` …) and the bytes that came, with the time; takes the bytes to send from ``data_to_send``
after each, and the events that the bytes meant. The time is in seconds on any clock that only goes
forward.

A command that awaits an answer gets an ``operation``, a number that its user never uses twice. The
session answers it by exactly one ``Done`` or ``Failed``, unless the connection ends before.

Why so long: an interface is read as one page.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, Protocol

from host_broker.client_errors import ClientError, ConnectionLost, NotSupported

ECHO_TOPICS = "motemq/echo/"  # what clients tell themselves, to see that the broker is there
PropertyValue = str | bytes | int | float | datetime  # of messages; datetime with its timezone

# For errors of a peer that may be no broker at all, or, by TLS, one that lets in only who shows a
# certificate: by TLS 1.3 it refuses others when our handshake is over.
DOUBT = "; is it the right port and protocol?"
_DOUBT_BY_TLS = DOUBT + " If it wants clients to show a certificate: ?cert=FILE&key=FILE"


class Ability(Enum):
    """What not every protocol can do; the value ends the sentence "PROTOCOL has no …"."""

    RETAIN = "retained messages"
    WILL = "last wills"
    PROPERTIES = "properties of messages"
    WILDCARD = "wildcards"
    FEEDBACK = "feedback about subscribers"
    UNCOUNTED = "subscriptions that others' feedback leaves out"
    FILTER = "filters"
    REQUEST = "answers to publications"
    RESPOND = "answers to messages"
    CALL = "calls"
    NAME = "names of clients"
    NO_WAIT = "publications that are never answered"


# Messages and publications are not frozen, because freezing triples the time it takes to make one.
# Nobody changes them.
@dataclass(slots=True)
class Message:
    """A publication as it arrived.

    ``received_ns``: when its bytes were read, on the clock of ``time.monotonic_ns()``.
    ``retain``, ``will``: the flags as published, where the protocol passes them on. ``kept``: the
    broker kept it when the subscription began. ``feedback``: it tells who subscribes, not what was
    published. ``answer``: what the session needs for ``respond``; None: nobody awaits an answer.
    ``receipt``: what it needs for ``acknowledge``; None: nobody awaits that.
    """

    topic: str
    payload: bytes
    received_ns: int = 0
    retain: bool = False
    will: bool = False
    kept: bool = False
    feedback: bool = False
    answer: object = None
    properties: Mapping[str, PropertyValue] | None = None
    receipt: object = None

    def json(self) -> Any:
        """Return what the payload says as JSON. Raises ``ValueError`` if it is none."""
        try:
            return json.loads(self.payload.decode(), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the payload of {self.topic} is not JSON: {error}") from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


@dataclass(slots=True)
class Messages:
    """Messages of one read, in order. ``subscription``: the number of the subscription they
    are for, if the protocol says that; None: whichever pattern matches."""

    messages: list[Message]
    subscription: int | None = None


@dataclass(frozen=True, slots=True)
class Active:
    """A subscription is active, and what the broker kept for it has come before this."""

    subscription: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """The broker has dropped so many messages of a subscription: they were not taken in time."""

    subscription: int
    count: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The handshake is over: the broker takes commands."""


@dataclass(frozen=True, slots=True)
class Done:
    """An operation has been answered; ``result`` is what the command promises."""

    operation: int
    result: object = None


@dataclass(frozen=True, slots=True)
class Failed:
    """An operation has been refused."""

    operation: int
    error: ClientError


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection cannot go on; the session is over. Nothing is to be sent any more."""

    error: ClientError


@dataclass(frozen=True, slots=True)
class Opens:
    """The session wants a second connection to the same address, on which ``channel`` speaks; once.

    Both end together. While the program does not read, only the second one is read no further.
    """

    channel: "Channel"


Event = Messages | Active | Dropped | Ready | Done | Failed | Closed | Opens


@dataclass(slots=True)
class Publication:
    """What is to be published. ``will``: when this connection has ended, however, and not now."""

    topic: str
    payload: bytes
    retain: bool = False
    will: bool = False
    properties: Mapping[str, PropertyValue] | None = None


@dataclass(frozen=True, slots=True)
class Subscription:
    """What is subscribed to. ``number`` is its user's name for it.

    ``confirm``: ``Active`` shall tell when it is active; only then messages are known to be
    ``kept``. ``feedback``: be told who listens to the patterns instead of what is said.
    ``uncounted``: without being counted in the feedback of others. ``filter``: only messages for
    which this expression of the protocol's own is true.
    """

    number: int
    patterns: tuple[str, ...]
    confirm: bool = False
    feedback: bool = False
    uncounted: bool = False
    filter: str = ""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a session is made of.

    ``where`` names the broker in error texts. ``user``, ``name`` (of the client) and ``words`` are
    from the address, ``options`` what followed its ``?``, with the content of files (``_file``) in
    place of their names. ``calls``: the connection is only for calls of that client. ``unseen``:
    others on the bus need not know of this connection. ``proves``: a certificate, or the account at
    a unix socket, says who this is. ``random_bytes`` is the source of identifiers. ``protocol`` is
    the name in the registry; one that is called ``A+B`` is B tunnelled in A, and ``inner`` is what
    speaks B.
    """

    where: str
    protocol: str
    random_bytes: Callable[[int], bytes]
    user: str = ""
    name: str = ""
    words: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    calls: str | None = None
    unseen: bool = False
    proves: bool = False
    inner: "type[ClientSession] | None" = None


class CallByTopics(Protocol):
    """How whoever publishes and subscribes asks a client of another protocol, once.

    Publish the question under ``request``, subscribed to ``reply`` (the answer, unless it is empty)
    and ``done`` (how it ended). Who takes calls is interest in ``interest``, which feedback tells.
    ``presence`` is the pattern under which the broker keeps who is there.
    """

    presence: ClassVar[str]

    def __init__(self, target: str, tag: str) -> None:
        """Ask ``target``; ``tag`` tells this call from every other. Raises ``BadArgument``."""

    @property
    def interest(self) -> str: ...
    @property
    def request(self) -> str: ...
    @property
    def reply(self) -> str: ...
    @property
    def done(self) -> str: ...

    @staticmethod
    def present(topic: str, payload: bytes) -> str:
        """Return the name of a client that is there, as a message of ``presence`` says; else ""."""

    def check(self, payload: bytes) -> None:
        """Raise ``BadArgument`` for a question that cannot be asked."""

    def error(self, how: bytes) -> ClientError | None:
        """Return what ``done`` says went wrong."""


class Channel(ABC):
    """One connection's pure half: the bytes that came go in, events and bytes to send come out.

    Every method that may make bytes is followed by ``data_to_send``.
    """

    next_deadline: float | None = None  # when ``tick`` wants to be called, None = never
    heard: bool = False  # the broker has said anything yet
    shows_no_certificate: bool = False  # there is TLS, and the broker knows nobody's certificate
    # What its first words look like to those who tell strangers apart, "" if like nobody's.
    begins_as: ClassVar[str] = ""

    def __init__(self, where: str) -> None:
        """``where`` names the broker in error texts."""
        self._where = where
        self._out: list[bytes] = []

    @property
    def doubt(self) -> str:
        """A question to end an error text with, if the peer may be no broker; else ""."""
        if self.heard:
            return ""
        return _DOUBT_BY_TLS if self.shows_no_certificate else DOUBT

    @abstractmethod
    def begin(self, now: float) -> Sequence[Event]:
        """The connection is open: say the first words."""

    @abstractmethod
    def receive_data(self, data: bytes, now: float) -> list[Event]:
        """Take one read. A ``Closed`` is the last event ever."""

    def receive_end(self, error: ConnectionLost) -> ClientError:
        """The connection has ended, as ``error`` says; return the error for the program."""
        return error

    def tick(self, now: float) -> Sequence[Event]:
        """Do what ``next_deadline`` was set for."""
        return ()

    def data_to_send(self) -> list[bytes]:
        """Return what is to be sent, and forget it."""
        out, self._out = self._out, []
        return out

    @property
    def credit(self) -> bool:
        """Whether the broker will take another publication now; if not, an event comes first."""
        return True

    def broken(self, reason: str) -> Closed:
        """Return the end of a connection whose broker broke the protocol."""
        return Closed(ConnectionLost(f"{self._where}: {reason}{DOUBT}"))


class ClientSession(Channel):
    """A client's side of a connection; commands are legal from ``Ready`` on.

    Commands raise ``BadArgument`` for what the protocol cannot carry and ``NotSupported`` for what
    it cannot do; then nothing happened. Those that await an answer return what is missing without
    it, e.g. "did not answer a PING".
    """

    can: frozenset[Ability] = frozenset()
    # How clients of this protocol are called by those who publish and subscribe.
    call_by_topics: "ClassVar[type[CallByTopics] | None]" = None
    handshake: ClassVar[str] = "did not greet"  # what is missing before ``Ready``
    topic_prefix: ClassVar[str] = ""  # what this protocol says before every topic of the bus
    calls_anyone: ClassVar[bool] = False  # ``call`` is not only for the client of ``Setup.calls``

    name: str = ""  # of this client, "" if the protocol has none

    def __init__(self, setup: Setup) -> None:
        """Raises ``BadArgument`` for what an address says and the protocol cannot carry."""
        super().__init__(setup.where)
        self.setup = setup

    @classmethod
    def abilities(cls, inner: "type[ClientSession] | None") -> frozenset[Ability]:
        """Return what ``can`` will be; ``inner`` as in ``Setup``."""
        return cls.can

    @abstractmethod
    def publish(self, publication: Publication, now: float) -> None:
        """Publish; that the broker has it, ``sync`` tells."""

    @abstractmethod
    def sync(self, operation: int, now: float) -> str:
        """``Done`` when the broker has processed everything sent before."""

    @abstractmethod
    def subscribe(self, subscription: Subscription, now: float) -> Sequence[Event]:
        """Subscribe; returns what is known at once."""

    @abstractmethod
    def unsubscribe(self, subscription: Subscription, now: float) -> None:
        """End a subscription, exactly as it was made."""

    @abstractmethod
    def matches(self, pattern: str, topic: str) -> bool:
        """Whether a message of ``topic`` is for a subscription to ``pattern``."""

    @abstractmethod
    def ping(self, operation: int, now: float) -> str:
        """``Done`` when the broker has answered; the result is the round trip in seconds."""

    def misread(self, pattern: str) -> str:
        """Return what to tell a person whose pattern is legal but surely means something else."""
        return ""

    def everything(self, levels: int | None = None) -> tuple[str, ...]:
        """Return patterns for every topic: all that patterns can name, or those of so many
        levels at most."""
        raise self.not_supported(Ability.WILDCARD)

    def request(self, operation: int, topic: str, payload: bytes, now: float) -> str:
        """Publish; ``Done`` with the payload (bytes) of the answer to this very message."""
        raise self.not_supported(Ability.REQUEST)

    def call(self, operation: int, target: str, payload: bytes, now: float) -> str:
        """Ask a client of the broker, that of ``Setup.calls`` unless the session ``calls_anyone``;
        ``Done`` with the payload of its answer."""
        raise self.not_supported(Ability.CALL)

    def respond(self, message: Message, payload: bytes, now: float) -> None:
        """Answer a message."""
        raise self.not_supported(Ability.RESPOND)

    def acknowledge(self, message: Message) -> None:
        """The program has finished with a message: it need not come again. A message of another
        connection is none of ours."""
        return None

    def forget(self, operation: int) -> None:
        """Nobody awaits the answer to an operation any more."""
        return None

    def require(self, wanted: Mapping[Ability, object]) -> None:
        """Raise ``NotSupported`` for the first ability that is wanted and missing."""
        for ability, want in wanted.items():
            if want and ability not in self.can:
                raise self.not_supported(ability)

    def not_supported(self, ability: Ability) -> NotSupported:
        """Return the error to raise; who shows it to people adds which protocols can."""
        return NotSupported(f"{self.setup.where} has no {ability.value}")
