"""What a protocol may ask the edge, which alone knows sockets, the journal and the time of day.

A session says ``Ask`` with one of these; the answer comes later, or ``NoAnswer`` with the reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

ConnectionId = int  # as in outputs, which imports this


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """There is no answer; the text says why. ``later``: trying again may help."""

    reason: str
    later: bool = True


@dataclass(frozen=True, slots=True)
class AskTraffic:
    """What goes over these connections: a mapping to ``Traffic`` of those that are there."""

    connections: tuple[ConnectionId, ...]


@dataclass(frozen=True, slots=True)
class Traffic:
    """``waiting_bytes`` are yet to be sent. ``rtt_ms``: what the kernel measures of a TCP
    connection. ``received`` and ``sent``: bytes."""

    waiting_bytes: int
    rtt_ms: float | None
    received: int
    sent: int


@dataclass(frozen=True, slots=True)
class AskStatistics:
    """The counts of the broker since its start: a mapping as ``GET /stats`` has it."""


@dataclass(frozen=True, slots=True)
class AskJournal:
    """What the journal holds, and how far its consumer groups are: a mapping; None without one."""


@dataclass(frozen=True, slots=True)
class AskHistory:
    """Publications of the past, of topics equivalent to ``topic``: a ``History``.

    ``beneath``: or of those that begin with such levels, "" with any.

    ``last``: so many, the latest ones. 0: the first ``limit`` of the time from ``from_ms`` to
    ``to_ms``. ``each``: of each topic the latest one only. At most about ``max_bytes`` of bodies.
    """

    topic: str
    last: int = 0
    from_ms: int = 0
    to_ms: int = 0
    limit: int = 0
    each: bool = False
    max_bytes: int = 4 * 1024 * 1024
    beneath: bool = False


@dataclass(frozen=True, slots=True)
class PastPublication:
    """One publication as it was; ``at_ms``: when the broker read it, since 1970."""

    topic: bytes
    at_ms: int
    body: bytes
    retain: bool = False
    properties: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class History:
    """``publications``: the oldest first. ``source``: "journal" or "memory". ``more``: there may be
    more that were asked for: a limit ended the search."""

    publications: Sequence[PastPublication]
    source: str
    more: bool


Question = AskTraffic | AskStatistics | AskJournal | AskHistory
