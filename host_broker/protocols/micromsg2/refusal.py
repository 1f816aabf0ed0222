"""Why this side gives up."""

from dataclasses import dataclass

STOPPING = "the broker is stopping"  # said to a client that comes while it does


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rule that the peer broke, or asked for what there is not; ``reason`` is told to it.

    It is sent as an ERROR frame, and the connection is closed (A25).
    """

    rule: str
    reason: str
