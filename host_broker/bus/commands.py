"""What a session asks of the broker. Words without behaviour, which nobody changes.

They are executed in order, at once, on behalf of the session's connection. The three that are made
for every read or message are not frozen, because freezing triples the time it takes to make one.
"""

from dataclasses import dataclass
from typing import Literal

from host_broker.outputs import Buffer, ConnectionId


@dataclass(slots=True)
class PublishRun:
    """Publish ``data[start:end]``: ``count`` plain publications in stored form.

    Plain: flags 0, a normal topic outside ``$``, a body. ``topics`` are all of theirs. It is
    journalled verbatim, and forwarded so when all topics have the same receivers.
    """

    data: bytes
    start: int
    end: int
    count: int
    topics: set[bytes]


@dataclass(slots=True)
class Publish:
    """Publish one message under a normal topic.

    ``retain`` keeps it for later subscribers (an empty body clears instead). ``will`` marks a last
    will. ``own`` publishes in the broker's name: journalled as connection 0, and allowed under
    ``$``. ``again``: it was published under another topic before, and is neither counted nor
    journalled twice.
    """

    topic: bytes
    body: bytes
    retain: bool = False
    will: bool = False
    own: bool = False
    again: bool = False


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
    """Subscribe to a normal topic; ``quiet`` subscriptions raise no interest."""

    topic: bytes
    feedback: bool = False
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Remove exactly this subscription."""

    topic: bytes
    feedback: bool = False


@dataclass(slots=True)
class Send:
    """Send bytes to the session's own peer."""

    data: Buffer


@dataclass(frozen=True, slots=True)
class Disconnect:
    """End a connection (None: the session's own); nothing more is read from or sent to it."""

    reason: str
    abort: bool = False
    connection: ConnectionId | None = None


@dataclass(frozen=True, slots=True)
class Wake:
    """Have another connection's session look at the time now: its ``tick`` is called."""

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
    """End the whole broker; nothing that comes after it is executed."""

    kind: Literal["stop", "terminate"]


Command = (
    PublishRun
    | Publish
    | Announce
    | Subscribe
    | Unsubscribe
    | Send
    | Disconnect
    | Wake
    | Discard
    | Signal
)
