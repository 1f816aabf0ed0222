"""What a session asks of the broker. Words without behaviour, which nobody changes.

They are executed in order, at once, on behalf of the session's connection. Those that are made for
every read or message are not frozen, because freezing triples the time it takes to make one.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from host_broker.access.principal import Principal
from host_broker.bus.delivery import Filter, SubscriptionId
from host_broker.bus.outcomes import Outcomes
from host_broker.bus.publication import NO_PROPERTIES, Properties, Run
from host_broker.bus.queue import QueuePolicy
from host_broker.outputs import Buffer, ConnectionId
from host_broker.pages import PageAnswer
from host_broker.questions import Question
from host_broker.tables import Statement

# Called once when its command is executed, with the limit that refused it ("bus.max_queues"), "" if
# it was accepted. What it returns is executed at once: before what the command makes the broker
# deliver. So a session says "accepted" or "refused" in its protocol's words.
Answer = Callable[[str], Sequence["Command"]]


@dataclass(slots=True)
class Publish:
    """Publish one message under a normal topic (``topic_fault``); any other is not published, and
    counted as "bus.topic".

    ``retain`` keeps it for later subscribers (an empty body clears instead). ``will`` marks a last
    will. ``own`` publishes in the broker's name: journalled as connection 0, and allowed under
    ``$``. ``again``: it was published under another topic before, and is neither counted nor
    journalled twice. Properties above the limits (``property_fault``) refuse this message only.
    ``answer`` is told what refused it, before anybody is sent it.
    """

    topic: bytes
    body: bytes
    retain: bool = False
    will: bool = False
    own: bool = False
    again: bool = False
    properties: Properties = NO_PROPERTIES
    answer: Answer | None = None


@dataclass(slots=True)
class PublishMany:
    """Publish messages, one after the other, as ``Publish`` does each.

    ``topics``, ``bodies`` and ``values`` are as long as each other. ``properties``: those of each
    message (the same object where they are the same), or one for all of them; ``named`` is one
    more, of which each has a value of its own, in ``values``. They are within the limits
    (``property_fault``). A message without a body is for queues only. ``told`` gets what became of
    those that the client may publish, apart by ``groups`` (``Outcomes``).
    """

    topics: Sequence[bytes]
    bodies: Sequence[bytes]
    properties: Sequence[Properties]
    named: str
    values: Sequence[bytes]
    groups: Sequence[Hashable] = (None,)
    told: Callable[[Outcomes], None] | None = None


@dataclass(frozen=True, slots=True)
class Announce:
    """Publish in the feedback system, retained, never journalled.

    ``idle``: nobody wants the topic; ``forget``: what was retained of it goes, instead.
    """

    topic: bytes
    body: bytes
    idle: bool
    forget: bool = False


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Subscribe to a normal topic; any other is refused as "bus.topic". The same topic and ``id``
    again replaces the filter.

    ``id`` is told with each delivery. ``filter`` is asked per publication. ``prefix``: all topics
    that begin with these bytes, instead of those that are equivalent. ``quiet`` subscriptions raise
    no interest. ``retained``: what is retained of the topic is delivered first. ``queue``: for this
    queue instead of the connection.
    """

    topic: bytes
    id: SubscriptionId = 0
    filter: Filter | None = None
    prefix: bool = False
    feedback: bool = False
    quiet: bool = False
    retained: bool = True
    queue: bytes | None = None
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Remove exactly this subscription."""

    topic: bytes
    id: SubscriptionId = 0
    prefix: bool = False
    feedback: bool = False
    queue: bytes | None = None


@dataclass(frozen=True, slots=True)
class OpenQueue:
    """Have a queue of this name; what is there already stays as it is.

    ``permanent``: it outlives its consumers; any other goes when the last one has left it.
    ``durable``: what waits in it outlives the broker, if it is permanent and the broker has a place
    for that (``--data``).
    ``max_messages`` and ``max_bytes`` are at most those of the settings; 0 means those, less than 0
    that it has room for none. ``own``: it was made for this client, which needs no right to it. A
    name is
    as that of a normal topic (``topic_fault``); any other is refused as "queue.name".
    """

    queue: bytes
    policy: QueuePolicy = "block"
    permanent: bool = True
    max_messages: int = 0
    max_bytes: int = 0
    durable: bool = True
    own: bool = False
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class DeleteQueue:
    """Forget a queue, its messages, its subscriptions and its consumers."""

    queue: bytes


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Set, forget or go back to a checkpoint of a durable queue (``Queue.checkpoints``).

    ``number`` is that of the message behind which it is set. Refused are "queue.name", what is no
    durable queue, "queue.checkpoint", a name that is none, and "queue.place", a number after which
    something is gone already, and "queue.taker", to go back in a queue that has a taker.
    """

    queue: bytes
    do: Literal["set", "forget", "go back"]
    name: bytes
    number: int = 0
    answer: Answer | None = None


@dataclass(slots=True)
class Enqueue:
    """Put one message into a queue, which exists or is opened as ``OpenQueue`` says by default.

    It is counted and journalled as a publication under the queue's name, unless it is dropped.
    """

    queue: bytes
    body: bytes
    properties: Properties = NO_PROPERTIES
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class Taker:
    """Who takes what a queue has to keep it, and up to which of its numbers that is kept there.

    ``name`` is that of the numbers, which count only as long as the queue is the one that it was.
    """

    name: bytes
    number: int


@dataclass(frozen=True, slots=True)
class Consume:
    """Take messages of a queue, at most ``credit`` that are not acknowledged at any time.

    ``acknowledged=False``: what was delivered is done with, and credit is not counted. ``filter``:
    only what it wants; the rest waits for other consumers. ``own`` as in ``OpenQueue``. Again for
    the same queue: as this says.

    ``taker``, of a durable queue: what it has kept is done with. It is refused if the queue was
    last taken under another name: with number 0 a new name can be given. It is sent only what is
    kept here, under a number that no other message will have. Others that acknowledge are refused
    then, all as "queue.taker".
    """

    queue: bytes
    credit: int
    acknowledged: bool = True
    filter: Filter | None = None
    own: bool = False
    taker: Taker | None = None
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class StopConsuming:
    """Take no more; what was not acknowledged goes back, in order."""

    queue: bytes


@dataclass(slots=True)
class Acknowledge:
    """Say that messages of a queue, by number, are done with: each makes room for another.

    A session that has stopped consuming, and consumes again, is given what it had once more, under
    the same numbers: it must not say those of the first time any more.
    """

    queue: bytes
    numbers: Sequence[int]


@dataclass(frozen=True, slots=True)
class Remember:
    """Keep a few bytes across restarts (``BrokerContext.remembered``); None: forget them.

    A broker that is killed has either both, this and what the next command puts into durable
    queues, or neither. What the session's own peer is sent in this turn waits until it is kept as
    ``journal.ack`` says. ``name`` begins with that of the protocol.
    """

    name: bytes
    value: bytes | None


@dataclass(slots=True)
class Send:
    """Send bytes to the session's own peer.

    ``acknowledges``: they say that something the peer has published is accepted, also if somebody
    else's words made the session say so. What a peer's own read makes it say always waits until
    what the peer has published is kept as ``journal.ack`` says.
    """

    data: Buffer
    acknowledges: bool = False


@dataclass(frozen=True, slots=True)
class Pace:
    """Have ``Session.drained`` called as soon as nearly all is taken that the peer was sent.

    A session that waits for that with what others publish never makes them wait, however slow its
    peer is: what is too much is then its own to leave out, and to count.
    """


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the edge something. ``answer`` is called once, later, with what the question says that
    its answer is, or ``NoAnswer``; not if the connection has ended."""

    question: Question
    answer: Callable[[Any], Sequence["Command"]]


@dataclass(frozen=True, slots=True)
class Ping:
    """Measure how long a client takes to say that it is there.

    ``client``: its name, or the number of its connection. ``answer`` is called once, with the
    seconds, or None and why there are none; not if the own connection has ended.
    """

    client: str | ConnectionId
    answer: Callable[[float | None, str], Sequence["Command"]]


@dataclass(frozen=True, slots=True)
class Ponged:
    """Say that the peer has answered ``Session.ping``."""

    tag: int


@dataclass(frozen=True, slots=True)
class HoldPublishers:
    """Say that the peer is behind with topics: what waits for it is enough, until ``held`` ends.

    What happens to what others publish to its subscriptions from now on is the listener's policy
    for slow receivers: they are read no further (for as long as one whose socket takes nothing
    could have them wait; then ``Session.stalled``), it is dropped, what has waited longest is
    (``Session.shed``), or the peer is disconnected. What the peer itself publishes is delivered.
    """

    held: bool


@dataclass(frozen=True, slots=True)
class Disconnect:
    """End a connection (None: the session's own); nothing more is read from or sent to it.

    ``failure``: somebody else's code that the session has called raised this; for the log.
    """

    reason: str
    abort: bool = False
    connection: ConnectionId | None = None
    failure: Exception | None = None


@dataclass(frozen=True, slots=True)
class Wake:
    """Have another connection's session look at the time now: its ``tick`` is called."""

    connection: ConnectionId


@dataclass(frozen=True, slots=True)
class Suspect:
    """Somebody else wants what another connection has, its name: end that one if its peer has hung
    up, which is not read because it has to wait."""

    connection: ConnectionId


@dataclass(frozen=True, slots=True)
class Discard:
    """Say that packets were dropped: by which rule or limit, how many in a row, and how many of
    them were not the one before said again (those cost work)."""

    rule: str
    count: int = 1
    distinct: int = 1


@dataclass(frozen=True, slots=True)
class Signal:
    """End the whole broker, if the client may; then nothing that comes after it is executed.

    ``granted``: the protocol's own settings let it do so where there is no ACL.
    """

    kind: Literal["stop", "terminate"]
    granted: bool = False


@dataclass(frozen=True, slots=True)
class Authenticate:
    """Say who the client is: the name that it is to have, with its secret behind a colon if it has
    one and ``secret`` is None; "": it has none, and is who the edge knows it to be. Until
    ``answer`` is called, perhaps later, nothing is read from the client.

    ``answer`` is told the name (without the secret), why it is refused ("": it is not), and when.
    ``token``: a secret that says whose it is. ``known``: whom the session has found it to be by
    what the broker itself has given out.
    """

    claim: str = field(repr=False)
    answer: Callable[[str, str, float], Iterable["Command"]]
    secret: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    known: Principal | None = None


@dataclass(frozen=True, slots=True)
class ActAs:
    """Be who another connection of this protocol is: both are one client's."""

    connection: ConnectionId


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer what the session was asked (``Session.asked``). ``answer`` is called when all commands
    before this one are executed, so that it can say what came of them."""

    answer: Callable[[], PageAnswer]


@dataclass(frozen=True, slots=True)
class ChangeTables:
    """Change the tables that the protocol keeps in the data folder (``ProtocolSpec.tables``): on
    file before what comes after this is sent. Without a data folder nothing is done."""

    statements: Sequence[Statement]


@dataclass(frozen=True, slots=True)
class Complain:
    """Have it logged, once, that something in the protocol's tables cannot be used, and why."""

    text: str


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to another broker by TCP, within ``timeout_s``.

    ``tls``: None is without TLS; else who must have signed the other one's certificate: a file of
    authorities, "" for those of the system.

    A connection that is there is begun by ``ProtocolServer.dialed`` with ``tag``. If there will be
    none, ``Session.not_reached`` of the session that says this is told, if it lives.
    """

    host: str
    port: int
    tag: object
    timeout_s: float = 10.0
    tls: str | None = None


Command = (
    Run
    | Publish
    | PublishMany
    | Announce
    | Subscribe
    | Unsubscribe
    | OpenQueue
    | DeleteQueue
    | Checkpoint
    | Enqueue
    | Consume
    | StopConsuming
    | Acknowledge
    | Remember
    | Send
    | Pace
    | Ask
    | Ping
    | Ponged
    | HoldPublishers
    | Disconnect
    | Wake
    | Suspect
    | Discard
    | Signal
    | Authenticate
    | ActAs
    | Reply
    | ChangeTables
    | Complain
    | Dial
)
