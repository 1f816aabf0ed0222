"""How long a publication takes to its subscriber at a steady rate, percentiles in microseconds.

One publisher, one subscriber, both in this process, hence one clock. A publication is sent when
its time has come, whether or not earlier ones were delivered, and is timed from then on: a broker
that stalls is charged for all who had to wait. The timer of this process is exact to what the
kernel can: its usual slack of 50 µs was most of what a fast broker was charged.
"""

import contextlib
import ctypes
import select
import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.broker.clients import STALL_S, clients
from benchmarks.broker.generator import Load
from benchmarks.broker.metering import Measured, Meter
from benchmarks.broker.mixture import Mixture
from benchmarks.broker.peers import Peer, PeerFailed, Running
from benchmarks.broker.workloads import Traffic

RATES = (1_000, 10_000, 100_000)  # messages per second
_TOPICS, _PUBLICATIONS, _MEDIAN_BYTES = 64, 4_096, 64
_LIBC = ctypes.CDLL(None)
_PR_SET_TIMERSLACK, _PR_GET_TIMERSLACK = 29, 30


def traffic(seed: int) -> Traffic:
    """Draw what is published: topics and payloads of many lengths, one to one."""
    mixture = Mixture(seed, "latency")
    topics = mixture.topics(_TOPICS)
    return Traffic((mixture.publications(topics, _PUBLICATIONS, _MEDIAN_BYTES),), (topics,))


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of one measurement, microseconds."""

    p50: float
    p99: float
    p999: float
    measured: Measured

    @property
    def disturbed(self) -> bool:
        """Tell whether the figures say more about others than about the broker."""
        return self.measured.disturbed


def measure(peer: Peer, broker: Running, load: Load, rate: int, duration_s: float) -> Latency:
    """Publish ``rate`` messages per second for ``duration_s``.

    Raises ``PeerFailed`` if the broker hangs up or a delivery is missing 10 s later.
    """
    count = int(rate * duration_s)
    block = load.blocks[0]
    data = memoryview(block.data)
    with clients(peer, broker, load.traffic) as (publishers, subscribers), exact_timer():
        publisher, subscriber = publishers[0], subscribers[0]
        publisher.setblocking(True)
        publisher.settimeout(STALL_S)
        deliveries = Deliveries(load, peer.hearing.aside, rate)
        sent = 0
        clock = time.perf_counter
        meter = Meter(broker.pid)
        started = meter.started
        heard = started
        while len(deliveries.taken_s) < count:
            due = min(count, int((clock() - started) * rate) + 1)
            while sent < due:
                first = sent % block.count
                last = min(block.count, first + due - sent)
                publisher.sendall(data[block.ends[first] : block.ends[last]])
                sent += last - first
            wait = max(0.0, started + sent / rate - clock()) if sent < count else STALL_S
            # select, not epoll: its timeout counts microseconds, theirs milliseconds.
            if select.select([subscriber], [], [], wait)[0]:
                data_read = subscriber.recv(256 * 1024)
                if not data_read:
                    raise PeerFailed(f"{peer.name} hung up on a subscriber")
                heard = clock()
                deliveries.add(heard - started, data_read)
            elif clock() - heard > STALL_S:
                missing = count - len(deliveries.taken_s)
                raise PeerFailed(f"{peer.name} lost {missing} of {count} deliveries")
        measured = meter.stop(count)
        if deliveries.got != load.bytes_due(0, [count]):
            raise PeerFailed(f"{peer.name} delivered more than was published")
    taken = sorted(deliveries.taken_s)
    p50, p99, p999 = (taken[int((count - 1) * share)] * 1e6 for share in (0.5, 0.99, 0.999))
    return Latency(p50, p99, p999, measured)


@contextlib.contextmanager
def exact_timer() -> Iterator[None]:
    """Let timers of this thread end when they are due; restored for children that come later."""
    usual_ns = _LIBC.prctl(_PR_GET_TIMERSLACK, 0, 0, 0, 0)
    _LIBC.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    try:
        yield
    finally:
        _LIBC.prctl(_PR_SET_TIMERSLACK, usual_ns, 0, 0, 0)


class Deliveries:
    """How long each delivery took, until its last byte had come.

    They come in the order of publishing, so the bytes heard tell how many have come.
    ``aside``: what the broker may say between two of them. ``rate``: publications per second.
    """

    def __init__(self, load: Load, aside: bytes, rate: int) -> None:
        self.taken_s: list[float] = []
        self.got = 0  # bytes of deliveries
        self._ends = load.due[0][0]  # within a block
        self._aside = aside
        self._rate = rate
        self._rest = b""  # the last bytes heard; an aside may begin there

    def add(self, heard: float, data: bytes) -> None:
        """Take what was read ``heard`` seconds after the first publication was due."""
        self.got += len(data)
        if self._aside:
            looked_at = self._rest + data
            self.got -= looked_at.count(self._aside) * len(self._aside)
            self._rest = looked_at[1 - len(self._aside) :]
        blocks, rest = divmod(self.got, self._ends[-1])
        whole = blocks * (len(self._ends) - 1) + bisect_right(self._ends, rest) - 1
        self.taken_s += [heard - n / self._rate for n in range(len(self.taken_s), whole)]
