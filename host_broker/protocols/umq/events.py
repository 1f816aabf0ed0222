"""What a UMQ peer says, once its attachments have come."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Missing:
    """What takes the place of an attachment that its sender does not have (R15)."""

    reason: str


Attachment = bytes | Missing


@dataclass(frozen=True, slots=True)
class Hello:
    """H: the client's first words, with the highest version it speaks."""

    version: int
    payload: str
    attachments: Sequence[Attachment] = ()


@dataclass(frozen=True, slots=True)
class Welcome:
    """W: the server's answer."""

    version: int
    payload: str
    attachments: Sequence[Attachment] = ()


@dataclass(frozen=True, slots=True)
class Fatal:
    """F: the last words of the peer."""

    code: int
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """C: to be answered once, under its id."""

    id: int
    payload: str
    attachments: Sequence[Attachment] = ()


@dataclass(frozen=True, slots=True)
class Callback:
    """B: the same, of a callback that was registered."""

    id: int
    callback: int
    argument: str
    attachments: Sequence[Attachment] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """R: the answer to a call of ours."""

    id: int
    payload: str
    attachments: Sequence[Attachment] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """E, or ``!``: a call of ours has failed; ``early``: it was refused before it was made."""

    id: int
    payload: str
    early: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """T: an update of a topic, by the id that its subscriber chose."""

    topic: int
    payload: str
    attachments: Sequence[Attachment] = ()


@dataclass(frozen=True, slots=True)
class TopicEnd:
    """D: the topic is no more."""

    topic: int


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """U: no more of this topic is wanted."""

    topic: int


@dataclass(frozen=True, slots=True)
class SetAttribute:
    """S: an attribute of the connection."""

    name: str
    value: str
    attachments: Sequence[Attachment] = ()


@dataclass(frozen=True, slots=True)
class ClearAttribute:
    """X: that attribute is no more."""

    name: str


Event = (
    Hello
    | Welcome
    | Fatal
    | Call
    | Callback
    | Result
    | Failed
    | Update
    | TopicEnd
    | Unsubscribe
    | SetAttribute
    | ClearAttribute
)
