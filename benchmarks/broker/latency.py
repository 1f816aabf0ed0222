"""How long a publication takes to its subscriber at a steady rate, percentiles in microseconds.

One publisher, one subscriber, both in this process, hence one clock. A publication is sent when
its time has come, whether or not earlier ones were delivered, and is timed from then on: a broker
that stalls is charged for all who had to wait. The timer of this process is exact to what the
kernel can: its usual slack of 50 µs was most of what a fast broker was charged.
"""

import contextlib
import ctypes
import select
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.broker.clients import STALL_S, clients
from benchmarks.broker.metering import Measured, Meter
from benchmarks.broker.peers import Peer, PeerFailed, Running
from benchmarks.broker.workloads import Traffic

RATES = (1_000, 10_000, 100_000)  # messages per second
_TRAFFIC = Traffic((("bench/one",),), (("bench/one",),))
_DUE = struct.Struct("<d")
_LIBC = ctypes.CDLL(None)
_PR_SET_TIMERSLACK, _PR_GET_TIMERSLACK = 29, 30
_TAIL = b"x" * (_TRAFFIC.payload_bytes - _DUE.size)


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


def measure(peer: Peer, broker: Running, rate: int, duration_s: float) -> Latency:
    """Publish ``rate`` messages per second for ``duration_s``.

    Raises ``PeerFailed`` if the broker hangs up or a delivery is missing 10 s later.
    """
    topic = _TRAFFIC.publishers[0][0]
    empty = peer.wire.publication(topic, b"\0" * _TRAFFIC.payload_bytes)
    at = empty.index(b"\0" * _TRAFFIC.payload_bytes)
    head, foot = empty[:at], _TAIL + empty[at + _TRAFFIC.payload_bytes :]
    count = int(rate * duration_s)
    with clients(peer, broker, _TRAFFIC) as (publishers, subscribers), _exact_timer():
        publisher, subscriber = publishers[0], subscribers[0]
        publisher.setblocking(True)
        publisher.settimeout(STALL_S)
        deliveries = Deliveries(peer, topic)
        sent = 0
        clock = time.perf_counter
        meter = Meter(broker.pid)
        started = meter.started
        heard = started
        while len(deliveries.taken_s) < count:
            now = clock()
            due = min(count, int((now - started) * rate) + 1)
            if due > sent:
                times = [started + number / rate for number in range(sent, due)]
                publisher.sendall(b"".join([head + _DUE.pack(t) + foot for t in times]))
                sent = due
            wait = max(0.0, started + sent / rate - clock()) if sent < count else STALL_S
            # select, not epoll: its timeout counts microseconds, theirs milliseconds.
            if select.select([subscriber], [], [], wait)[0]:
                data = subscriber.recv(256 * 1024)
                if not data:
                    raise PeerFailed(f"{peer.name} hung up on a subscriber")
                heard = clock()
                deliveries.add(heard, data)
            elif clock() - heard > STALL_S:
                missing = count - len(deliveries.taken_s)
                raise PeerFailed(f"{peer.name} lost {missing} of {count} deliveries")
        measured = meter.stop(count)
        if len(deliveries.taken_s) > count:
            raise PeerFailed(f"{peer.name} delivered more than was published")
    taken = sorted(deliveries.taken_s)
    p50, p99, p999 = (taken[int((count - 1) * share)] * 1e6 for share in (0.5, 0.99, 0.999))
    return Latency(p50, p99, p999, measured)


@contextlib.contextmanager
def _exact_timer() -> Iterator[None]:
    """Let timers of this thread end when they are due; restored for children that come later."""
    usual_ns = _LIBC.prctl(_PR_GET_TIMERSLACK, 0, 0, 0, 0)
    _LIBC.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    try:
        yield
    finally:
        _LIBC.prctl(_PR_SET_TIMERSLACK, usual_ns, 0, 0, 0)


class Deliveries:
    """How long each delivery took, until its last byte had come. All of them are as long."""

    def __init__(self, peer: Peer, topic: str) -> None:
        example = peer.wire.delivery(topic, b"\0" * _TRAFFIC.payload_bytes, 0)
        at = example.index(b"\0" * _TRAFFIC.payload_bytes)
        self.taken_s: list[float] = []
        self._form = struct.Struct(f"<{at}xd{len(example) - at - _DUE.size}x")
        self._aside = peer.wire.aside
        self._rest = b""  # begins with the first byte of a delivery or of an aside

    def add(self, heard: float, data: bytes) -> None:
        """Take what was read at ``heard``, seconds on the clock of ``time.perf_counter``."""
        data = self._rest + data
        if self._aside:
            data = data.replace(self._aside, b"")
        whole = len(data) // self._form.size * self._form.size
        self.taken_s += [heard - due for (due,) in self._form.iter_unpack(data[:whole])]
        self._rest = data[whole:]
