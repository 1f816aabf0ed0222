"""What the pure broker asks its edge to do.

The edge executes an ``Outputs`` in this order: changes, records, retained and queued together,
forwards, closes, rests, holds, releases, answers, behind, suspects, signal; then it calls
``Broker.proceed`` for those in ``paced``. It is an accumulator, not a list of command objects,
because one read may touch fifty receivers and nobody needs fifty objects to say so.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from host_broker.pages import PageAnswer
from host_broker.questions import Question
from host_broker.tables import Statement

Buffer = bytes | bytearray | memoryview
ConnectionId = int  # from 1, never reused; 0 is the broker itself
LONGEST_CLIENT = 65_535  # bytes of the name of a client in a record


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
    body: Buffer  # count >= 1 publications in this encoding, back to back
    encoding: int = 1


@dataclass(slots=True)
class Forward:
    """Send these buffers to each of these receivers; ``senders`` are those whose reads had them.

    To a receiver that is among the senders they are an answer. It waits until what that connection
    has published is kept as ``journal.ack`` says, and what is sent to it later waits behind it.
    """

    receivers: Sequence[ConnectionId]
    buffers: list[Buffer]
    senders: list[ConnectionId]


@dataclass(frozen=True, slots=True)
class Login:
    """Say whether ``secret`` has the hash ``encoded``, by ``Broker.logged_in``."""

    connection: ConnectionId
    encoded: str = field(repr=False)
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Connect to another broker, by TLS unless ``tls`` is None (``Dial``).

    Then ``Broker.opened`` for ``protocol`` with ``tag``, else ``Broker.not_reached`` for the
    connection that asked.
    """

    connection: ConnectionId
    protocol: str
    host: str
    port: int
    tag: object
    timeout_s: float
    tls: str | None = None


@dataclass(frozen=True, slots=True)
class Denial:
    """Somebody tried what the ACL does not allow; for the log."""

    who: str
    action: str
    where: str  # and why not


@dataclass(frozen=True, slots=True)
class Failure:
    """Something of a protocol raised an exception, or returned what is no command.

    ``part`` is what failed: the session of a connection, which is closed; a filter of it, which
    wanted nothing then (``connection`` 0: of a queue); a protocol's server, that was told
    something (``connection`` 0); or an extension of a protocol, whose session has ended the
    connection for it.
    """

    part: Literal["session", "filter", "server", "extension"]
    connection: ConnectionId
    error: Exception


@dataclass(slots=True, init=False)
class ExtraOutputs:
    """What few turns want done, beside records and forwards.

    ``retained``: entries that changed, topic to packet (encoding 1) and properties (as spelled), or
    None (forgotten), for an edge that keeps them across restarts; what the broker itself says is
    not among them. ``retained_by``: the connections that changed them.
    ``queued``: the same for durable queues, by ``bus.queue.spell_place``: messages as packet and
    properties, None for those that are done with; of a queue itself (number 0) its policy and
    limits, and up to which number consumers may have been given messages. ``queued_first``: that
    has changed, and is to be kept before anything is sent. What protocols remember is there, too.
    ``kept_first``: connections that are to be sent nothing of this turn before all of it is kept as
    ``journal.ack`` says.
    ``rests``: connections that are to be read no further for so many seconds.
    ``holds`` are to be read no further until they are among ``releases`` for the same reason.
    ``behind``: connections that have publishers wait since now (True), or do so no more (None: as
    they have left).
    ``suspects``: connections that are to end if their peers have hung up. Of those on hold nobody
    else finds out.
    ``paced``: connections for which more is ready; call ``Broker.proceed`` when what they were sent
    has drained; True: all of it, to the last byte.
    ``failures`` are to be logged; a session's connection is among ``closes``.
    ``answers``: what is said to ``Broker.asked``, by the connection that was asked. ``changes`` of
    the tables of a protocol, by its name, in order: on file before anything is sent.
    ``complaints`` about what is in those tables, for the log. ``outgoing``: other brokers to
    connect to.
    ``questions`` are to be answered by ``Broker.answered``, under their numbers.
    ``logins`` are to be decided elsewhere, since it takes long; ``denials`` are to be logged.
    ``signal``: a client has asked for the end (FMQP R31, R32), ``signalled_by``. From then on the
    broker takes no connection and reads nothing. ``"terminate"``: exit at once. ``"stop"``: close
    the listeners, stop reading, drain, ``Broker.stop``, drain, close, exit.
    """

    retained: dict[bytes, tuple[bytes, bytes] | None]
    retained_by: dict[bytes, ConnectionId]
    queued: dict[bytes, tuple[bytes, bytes] | None]
    queued_first: bool
    kept_first: set[ConnectionId]
    closes: list[Close]
    rests: dict[ConnectionId, float]
    holds: list[tuple[ConnectionId, str]]
    releases: dict[tuple[ConnectionId, str], None]
    behind: dict[ConnectionId, bool | None]
    suspects: list[ConnectionId]
    paced: dict[ConnectionId, bool]
    failures: list[Failure]
    logins: list[Login]
    denials: list[Denial]
    answers: list[tuple[ConnectionId, PageAnswer]]
    changes: list[tuple[str, Statement]]
    complaints: list[str]
    outgoing: list[Outgoing]
    questions: list[tuple[int, Question]]
    signal: Literal["", "stop", "terminate"]
    signalled_by: str

    def __init__(self) -> None:
        """Nothing yet. Written out, it takes half as long: a turn of a queue makes one."""
        self.retained = {}
        self.retained_by = {}
        self.queued = {}
        self.queued_first = False
        self.kept_first = set()
        self.closes = []
        self.rests = {}
        self.holds = []
        self.releases = {}
        self.behind = {}
        self.suspects = []
        self.paced = {}
        self.failures = []
        self.logins = []
        self.denials = []
        self.answers = []
        self.changes = []
        self.complaints = []
        self.outgoing = []
        self.questions = []
        self.signal = ""
        self.signalled_by = ""


class Outputs:
    """Everything that the calls of the broker since the last ``Broker.take`` want done.

    One is made for every turn, and most have nothing but publications: ``extra`` is None for them.
    """

    __slots__ = ("extra", "forwards", "records")

    def __init__(self) -> None:
        """Nothing yet."""
        self.records: list[Record] = []
        self.forwards: list[Forward] = []
        self.extra: ExtraOutputs | None = None
