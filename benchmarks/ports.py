"""Ports that are chosen before anybody listens there, or that are listened to again."""

import random
import socket
from pathlib import Path

_GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 20_000
_chance = random.SystemRandom()


def port_for_later(above: int = 0) -> int:
    """Return a port of 127.0.0.1 where nobody listens, and which nobody is given by chance.

    Whoever asks for port 0, or connects, is given one of ``ip_local_port_range``. One of those that
    was free a moment ago may be somebody else's by now, as others run beside this one; and who
    tries again and again to reach it may be connected with itself. So it is none of those. The port
    so much ``above`` it is such a one, too.
    """
    first, last = map(int, _GIVEN.read_text().split())
    outside = [port for port in range(_LOWEST, 65_536) if not first <= port <= last]
    known = set(outside)
    for port in _chance.sample(outside, len(outside)):
        if port + above not in known:
            continue
        try:
            for each in {port, port + above}:
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", each))
        except OSError:
            continue
        return port
    raise RuntimeError(f"no port from {_LOWEST} on is free, but for those of {_GIVEN}")
