"""How long a publication takes to its subscriber at a steady rate, percentiles in microseconds.

One publisher, one subscriber, both in this process, hence one clock. A publication is sent when
its time has come, whether or not earlier ones were delivered, and is timed from then on: a broker
that stalls is charged for all who had to wait.
"""

import select
import struct
import time
from dataclasses import dataclass

from benchmarks.broker.clients import STALL_S, clients
from benchmarks.broker.peers import Peer, PeerFailed, Running
from benchmarks.broker.workloads import Traffic

RATES = (1_000, 10_000, 100_000)  # messages per second
_TRAFFIC = Traffic((("bench/one",),), (("bench/one",),))
_DUE = struct.Struct("<d")
_TAIL = b"x" * (_TRAFFIC.payload_bytes - _DUE.size)


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of one measurement, microseconds."""

    p50: float
    p99: float
    p999: float


def measure(peer: Peer, broker: Running, rate: int, duration_s: float) -> Latency:
    """Publish ``rate`` messages per second for ``duration_s``.

    Raises ``PeerFailed`` if the broker hangs up or a delivery is missing 10 s later.
    """
    topic = _TRAFFIC.publishers[0][0]
    empty = peer.wire.publication(topic, b"\0" * _TRAFFIC.payload_bytes)
    at = empty.index(b"\0" * _TRAFFIC.payload_bytes)
    head, foot = empty[:at], _TAIL + empty[at + _TRAFFIC.payload_bytes :]
    count = int(rate * duration_s)
    with clients(peer, broker, _TRAFFIC) as (publishers, subscribers):
        publisher, subscriber = publishers[0], subscribers[0]
        publisher.setblocking(True)
        publisher.settimeout(STALL_S)
        size = len(peer.wire.delivery(topic, b"\0" * _TRAFFIC.payload_bytes, 0))
        reads: list[tuple[float, bytes]] = []
        missing = count * size
        sent = 0
        clock = time.perf_counter
        started = clock()
        heard = started
        while missing > 0:
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
                reads.append((heard, data))
                missing -= len(data)
            elif clock() - heard > STALL_S:
                raise PeerFailed(f"{peer.name} lost {missing / size:.1f} of {count} deliveries")
        if missing < 0:
            raise PeerFailed(f"{peer.name} delivered {-missing} bytes too many")
    return _percentiles(reads, peer.wire.delivery(topic, b"\0" * 64, 0).index(b"\0" * 64), size)


def _percentiles(reads: list[tuple[float, bytes]], at: int, size: int) -> Latency:
    """Percentiles over all deliveries, each at the time when its last byte had come."""
    form = struct.Struct(f"<{at}xd{size - at - _DUE.size}x")
    taken: list[float] = []
    rest = b""
    for heard, data in reads:
        rest += data
        whole = len(rest) // size * size
        taken += [heard - due for (due,) in form.iter_unpack(memoryview(rest)[:whole])]
        rest = rest[whole:]
    taken.sort()
    last = len(taken) - 1
    return Latency(*(taken[int(last * share)] * 1e6 for share in (0.5, 0.99, 0.999)))
