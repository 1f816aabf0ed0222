"""What a protocol brings, and what the broker asks of its sessions.

A protocol is one folder with a ``ProtocolSpec``: a line in ``registry``, or an entry point of an
installed package. Nothing outside the folder names the protocol.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from host_broker.access.rights import ClientPaths
from host_broker.broker_view import BrokerView, CallTopics
from host_broker.bus.commands import Command, Publish
from host_broker.bus.delivery import Delivery, QueueDelivery, SubscriptionId
from host_broker.bus.queue import Queue
from host_broker.bus.subscriptions import Interest
from host_broker.bus.topic_table import TopicTable
from host_broker.outputs import ConnectionId
from host_broker.pages import Page, PageRequest
from host_broker.settings import BusSettings
from host_broker.stats import Stats
from host_broker.tables import Rows, TableFile
from host_broker.wire.budget import Budget

NOTHING: Sequence[Command] = ()
# Whom settings let in: everybody, those who are named, those who are named and prove it.
Admits = Literal["everybody", "named", "proved"]
DEFAULT_PORT = 8765  # one port can serve every protocol

# What one byte of a pattern may be.
ByteSet = frozenset[int]
EveryByte: ByteSet = frozenset(range(256))


def byte_range(first: int, last: int) -> ByteSet:
    """Return the bytes from ``first`` to ``last``, both included, for a ``FirstBytes`` pattern."""
    return frozenset(range(first, last + 1))


@dataclass(frozen=True, slots=True)
class FirstBytes:
    """One way in which a connection of a protocol begins, for listeners that tell them apart.

    ``parts`` follow each other: literal bytes, or a set that one byte is out of. Where the patterns
    of two protocols overlap, the one of lower ``rank`` wins; a protocol that takes nearly anything
    has a high one.
    """

    parts: tuple[bytes | ByteSet, ...]
    rank: int = 25

    @property
    def pattern(self) -> tuple[ByteSet, ...]:
        """For each byte, what it may be."""
        fits: list[ByteSet] = []
        for part in self.parts:
            if isinstance(part, frozenset):
                fits.append(part)
            else:
                fits += [frozenset([byte]) for byte in part]
        return tuple(fits)


@dataclass(frozen=True, slots=True)
class BrokerContext:
    """What the protocols of one broker share.

    ``random_u16`` returns 0 to 65535. ``held`` is the memory of unfinished frames and last wills of
    all connections (``bus.max_held_bytes``). ``stats`` are the broker's counts.
    ``topics``: what the bus knows of topics; its marks are for topics that are plain (``Run``).
    ``servers`` are those made before, by name: a protocol that carries another one finds it there.
    ``queues`` are those of the bus, to look at. ``stores``: what waits in durable ones outlives the
    broker. ``address_of``: where a connection comes from, as the edge says it. ``node``: 4 bytes
    that tell this broker from others. ``clock_ns``: to measure how long something takes.
    ``wall_ns``: the time of day, since 1970. ``view``: the broker itself, to look at.
    ``topics_of`` is ``topics`` as the hot path of one connection uses it: whoever reads with it and
    makes runs of what is marked there has the fastest way; None: everybody has the same.
    ``remembered``: what ``Remember`` has kept, by name.
    """

    bus: BusSettings
    random_u16: Callable[[], int]
    held: Budget
    stats: Stats
    topics: TopicTable[Any] = field(default_factory=TopicTable)
    servers: Mapping[str, "ProtocolServer"] = field(default_factory=dict)
    topics_of: Callable[[ConnectionId], TopicTable[Any]] | None = None
    queues: Mapping[bytes, Queue] = field(default_factory=dict)
    stores: bool = False
    address_of: Callable[[ConnectionId], str] = lambda connection: ""
    node: bytes = b"\x7f\0\0\1"
    clock_ns: Callable[[], int] = lambda: 0
    wall_ns: Callable[[], int] = lambda: 0
    view: BrokerView | None = None
    remembered: Mapping[bytes, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressForm:
    """What addresses of one kind have: URL schemes, for listening and for connecting.

    ``name`` is the scheme; ``title`` is what people call it. ``port`` is used by addresses without
    one. ``path``: what may follow host and port: nothing, the client's name, or words of the
    protocol's own; with a unix socket, whose path is a file, these are the options ``client_id=``
    and ``path=``. ``user``: whether an address may name a user (unix socket: ``user=``).
    ``connect_options`` are what a client's address may have after ``?`` beside those of the
    transport; the session is given the content of an option whose name ends in ``_file``, not the
    file's name.
    """

    name: str
    title: str
    port: int = DEFAULT_PORT
    path: Literal["none", "client", "free"] = "none"
    user: bool = False
    connect_options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolSpec(AddressForm):
    """Everything the broker, its settings, its addresses and its clients know of one protocol.

    ``name`` is also that of its listeners. ``journal_code`` is its number in docs/journal.md (1 to
    255; 128 and above are for protocols that are not part of MoteMQ). ``server(settings, context)``
    makes the protocol of one broker; ``settings`` is the frozen dataclass of the section
    ``section`` (by default its name; None = it has no settings). ``first_bytes``: how its
    connections begin, for ``auto`` listeners. ``client`` is ``"module:name"`` of the client's
    session, imported when it is used; "" means that no client speaks it.
    ``answers_until_stopped``: a connection that comes while the broker stops is told so in the
    protocol's own words. ``authenticates``: its sessions say ``Authenticate`` before anything else;
    clients of any other protocol are who the edge says. ``client_paths``: where its clients are on
    the bus, and ``call_topics`` how others call them there. ``admits``: whom its settings alone let
    in. ``pages``: what it answers by HTTP, which its listeners then speak, too. ``tables``: the
    file that it keeps in the data folder. ``looks_back``: its clients may ask for what was
    published before they came (``AskHistory``).
    """

    journal_code: int
    server: Callable[[Any, BrokerContext], "ProtocolServer"]
    settings: type[Any] | None = None
    section: str = ""
    first_bytes: tuple[FirstBytes, ...] = ()
    client: str = ""
    answers_until_stopped: bool = False
    authenticates: bool = False
    client_paths: ClientPaths | None = None
    call_topics: CallTopics | None = None
    admits: Callable[[Any], Admits] | None = None
    pages: tuple[Page, ...] = ()
    tables: TableFile | None = None
    looks_back: bool = False


class Session(Protocol):
    """One connection's translation of its peer's words into the bus's commands.

    ``client``: the name for the journal, at most 65,535 bytes of UTF-8, "" if the protocol has
    none. ``label``: what the client
    calls itself, for people who look; it proves nothing. ``deadline``: when ``tick``
    wants to be called, on the clock of ``now``; None = never. While something that its peer has
    said may be unread ``tick`` waits, but no longer than until ``latest``. ``verbatim``: the peer
    takes publications in stored form as they are, so ``deliver`` is never called for them.

    A class that names this one as its base needs to define no more than it has something to do for.
    """

    client: str = ""
    label: str = ""
    deadline: float | None = None
    latest: float | None = None
    verbatim: bool = False

    def opened(self, now: float) -> Sequence[Command]:
        """Speak first, in a protocol in which the server does; called exactly once."""
        return NOTHING

    def received(self, data: bytes, now: float) -> Iterable[Command]:
        """Take one read. Each command is executed before the next one is asked for."""

    def deliver(self, delivery: Delivery | QueueDelivery, now: float) -> Sequence[Command]:
        """Say publications, or messages of a queue that it consumes, in this protocol's words.

        May change ``deadline``.
        """
        return NOTHING

    def refused(self, action: str, topic: bytes) -> Sequence[Command]:
        """The client may not ``publish`` to a topic, or ``subscribe`` to it, and nothing was done:
        say so in the protocol's words, if it has any."""
        return NOTHING

    def drained(self, now: float) -> Sequence[Command]:
        """What ``Pace`` waited for: nearly all that was sent to the peer has been taken.

        May change ``deadline``.
        """
        return NOTHING

    def ping(self, tag: int, now: float) -> Sequence[Command] | None:
        """Ask the peer for a sign of life: ``Ponged(tag)`` says that it came. None: this cannot be
        asked, by this protocol or just now. May change ``deadline``."""
        return None

    def wills(self) -> Sequence[Publish]:
        """Return what ``closed`` will publish, to be looked at."""
        return ()

    def asked(self, request: PageRequest, now: float) -> Sequence[Command]:
        """Answer one of the protocol's ``pages``; the commands end with ``Reply``.

        Called for a session of ``ProtocolServer.internal``, which was made for this one request.
        """
        return NOTHING

    def rows(self, found: Mapping[str, Rows], now: float) -> Sequence[Command]:
        """Somebody else has changed the protocol's ``tables``: these are the rows of its queries.

        Called for a session of ``ProtocolServer.internal`` that lasts as long as the broker; first
        before any client comes. All that ``ChangeTables`` has asked for is among the rows.
        """
        return NOTHING

    def not_reached(self, tag: object, reason: str, now: float) -> Sequence[Command]:
        """What ``Dial`` asked for with this tag will not be there: the other broker is not."""
        return NOTHING

    def shed(self) -> tuple[int, int]:
        """Drop what of topics has waited longest, so that no more than enough waits: this session
        has said ``HoldPublishers``. Returns how many messages and bytes were dropped."""
        return 0, 0

    def stalled(self, reason: str) -> Sequence[Command]:
        """The client is disconnected, because others had to wait for it for too long: say so in the
        protocol's words, if it has any."""
        return NOTHING

    def tick(self, now: float) -> Sequence[Command]:
        """Do what ``deadline`` was set for."""
        return NOTHING

    def closed(self, now: float) -> Sequence[Command]:
        """The connection is gone, whatever the reason; called exactly once."""
        return NOTHING


class ProtocolServer(Protocol):
    """One protocol in one broker: makes its sessions and keeps what they share.

    ``idle_timeout_s``: seconds without a byte after which the edge closes one of its connections;
    0 = never. ``stored_form``: its connections are sent nothing but publications in encoding 1, so
    that an edge that must drop can drop message by message; else a buffer is one message.

    A class that names this one as its base needs to define no more than it has something to do for.
    """

    idle_timeout_s: float = 0.0
    stored_form: bool = False

    def session(self, connection: ConnectionId, now: float, loopback: bool) -> Session:
        """Begin a connection; ``loopback``: its peer is on this machine."""

    def internal(self, connection: ConnectionId, now: float) -> Session:
        """Begin a connection of a part of this process."""
        return self.session(connection, now, loopback=False)

    def dialed(self, connection: ConnectionId, tag: object, now: float) -> Session:
        """Begin a connection that ``Dial`` asked for with this tag; its session speaks first."""
        return self.session(connection, now, loopback=False)

    def refusing(self, connection: ConnectionId, now: float) -> Session | None:
        """Begin a connection that came while the broker is ending, only to be told so.

        None: the protocol has no word for that. Such a session may send and disconnect.
        """
        return None

    def settings_changed(self, settings: Any) -> None:
        """Some of its settings have changed, of those in their ``LIVE``; never without that."""
        return  # a body: without one type checkers take it for abstract

    def interest(self, interest: Interest) -> Sequence[Command]:
        """Somebody began or ended to want a path."""
        return NOTHING

    def subscription_lost(
        self, queue: bytes, topic: bytes, id: SubscriptionId
    ) -> Sequence[Command]:
        """A subscription of a queue has ended: of those for whom it was made nobody may subscribe
        to the topic any more."""
        return NOTHING

    def client_count(self, count: int) -> Sequence[Command]:
        """The number of connected clients, of all protocols, has changed."""
        return NOTHING
