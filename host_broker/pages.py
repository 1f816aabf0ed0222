"""Pages that a protocol answers by HTTP, beside its own connections: what is asked, what is said.

The edge serves them wherever it speaks HTTP; the protocol's session decides, and never sees a
socket.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a protocol: its path, and the methods with which it may be asked.

    ``subscribe``: the path on the bus to which somebody must be allowed to subscribe who asks; "":
    whoever may use HTTP may ask, and the session's commands are judged as those of any client.
    ``publishes``: what it says acknowledges publications, so that it is not asked while the journal
    is full, and waits until what it has published is kept.
    """

    path: str
    methods: tuple[str, ...] = ("GET",)
    subscribe: str = ""
    publishes: bool = False


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What somebody asks. Names of ``headers`` are lower-case; of several, the last one counts.

    ``body`` None: the request does not say how long its body is (``Content-Length``), so that it
    was not read. ``user``: the name that somebody has proved to have, "" if nobody needs to or has.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, bytes] = field(default_factory=dict)
    body: bytes | None = None
    user: str = ""


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """What is answered; ``close``: and nothing more on this connection."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    close: bool = False
