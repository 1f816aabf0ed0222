"""What connected clients cost that say nothing: memory each, and processor time for all."""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.broker.clients import subscriber
from benchmarks.broker.peers import Peer, Running

CLIENTS = 10_000
MUST_KIB = 25.0
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
    with contextlib.ExitStack() as stack:
        stack.enter_context(subscriber(peer, broker, ("bench/first",)))
        before = _resident_bytes(broker.pid)
        for number in range(count):
            stack.enter_context(subscriber(peer, broker, (f"idle/{number:05}",)))
        after = _resident_bytes(broker.pid)
        started = _cpu_s(broker.pid)
        time.sleep(_WATCH_S)  # the measurement itself: nothing is waited for
        used = _cpu_s(broker.pid) - started
    return Idle((after - before) / 1024 / count, used / _WATCH_S * 100)


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _cpu_s(pid: int) -> float:
    # After the name in brackets, which may contain anything: user and system time are 12 and 13.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
