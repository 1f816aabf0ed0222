"""Where a client lives on the bus: ``lightmq/ID/…``; what is there, ``mailbox`` says."""

from host_broker.access.principal import own_level as level
from host_broker.access.rights import ClientPaths

__all__ = ["PATHS", "level", "path"]

PATHS = ClientPaths(
    speaks=tuple(
        f"lightmq/%c/{end}" for end in ("up", "up/*", "status", "reply", "reply/*", "done/*")
    ),
    hears=("lightmq/%c/down", "lightmq/%c/request/*", "lightmq/%c/answer/*"),
    calls=("lightmq/%c/request/*",),
    answers=("lightmq/%c/reply/*", "lightmq/%c/done/*"),
)


def path(level: bytes, end: str) -> bytes:
    """Return the topic of the client of this level that ends in ``end``."""
    return b"lightmq/" + level + b"/" + end.encode()
