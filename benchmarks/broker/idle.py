"""What connected clients cost that say nothing: memory each, and processor time for all."""

import contextlib
import time
from dataclasses import dataclass

from benchmarks.broker.clients import subscriber
from benchmarks.broker.metering import cpu_s, resident_bytes
from benchmarks.broker.peers import Peer, Running

CLIENTS = 10_000
MUST_KIB = 5.0
_WATCH_S = 5.0


@dataclass(frozen=True, slots=True)
class Idle:
    """The cost of one broker's idle clients."""

    kib_per_client: float
    cpu_percent: float  # of one core, over 5 s


def measure(peer: Peer, broker: Running, count: int = CLIENTS) -> Idle:
    """Connect ``count`` clients, each subscribed to a topic of its own, and watch the broker.

    Needs ``ulimit -n`` above ``count`` for this process and for the broker.
    """
    # Whatever the first client of all costs is the broker's, not a client's.
    subscriber(peer, broker, ("bench/first",)).close()
    with contextlib.ExitStack() as stack:
        before = resident_bytes(broker.pid)
        for number in range(count):
            stack.enter_context(subscriber(peer, broker, (f"idle/{number:05}",)))
        after = resident_bytes(broker.pid)
        started = cpu_s(broker.pid)
        time.sleep(_WATCH_S)  # the measurement itself: nothing is waited for
        used = cpu_s(broker.pid) - started
    return Idle((after - before) / 1024 / count, used / _WATCH_S * 100)
