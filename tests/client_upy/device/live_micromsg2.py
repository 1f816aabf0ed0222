"""MicroMsg2 clients of a running broker, as those of live_clients."""

from live_clients import SOON_MS, way

from umotemq.micromsg2 import MicroMsg2Client


def micromsg2(name, port="micromsg2", kind=MicroMsg2Client, **options):
    """Return a client that is not connected yet."""
    options.setdefault("timeout_ms", SOON_MS)
    return kind(way(port), name=name, **options)
