"""Where a client lives on the bus: ``lightmq/ID/…``; what is there, ``mailbox`` says."""

from host_broker.access.principal import own_level as level
from host_broker.access.rights import ClientPaths
from host_broker.broker_view import CallTopics

__all__ = ["CALLS", "PATHS", "level", "path"]

PATHS = ClientPaths(
    speaks=tuple(
        f"lightmq/%c/{end}" for end in ("up", "up/*", "status", "reply", "reply/*", "done/*")
    ),
    hears=("lightmq/%c/down", "lightmq/%c/request/*", "lightmq/%c/answer/*"),
    calls=("lightmq/%c/request/*",),
    answers=("lightmq/%c/reply/*", "lightmq/%c/done/*"),
)


CALLS = CallTopics(
    interest="lightmq/%c/request/*",
    request="lightmq/%c/request/%t",
    reply="lightmq/%c/reply/%t",
    done="lightmq/%c/done/%t",
    answered=b"answered",
)


def path(level: bytes, end: str) -> bytes:
    """Return the topic of the client of this level that ends in ``end``."""
    return b"lightmq/" + level + b"/" + end.encode()
