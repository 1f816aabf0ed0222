"""One publisher, and subscribers of all that it publishes: how much, and how long it takes.

Sockets and frames are ours and made before the clock starts. So many publications may be under way
that no subscriber has heard; each must come to each, as often as it was published.
"""

import contextlib
import select
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.broker.latency import exact_timer
from benchmarks.broker.metering import Measured, Meter
from benchmarks.broker.peers import PeerFailed, Running
from benchmarks.umq.wires import Wire, publications

UNDER_WAY = 128  # publications; UMQ's clients have at most umq.max_calls (256) without an answer
_AT_ONCE = 32  # in one write
_STALL_S = 20.0
_WARM_UP_S = 0.3
_READ_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles from the moment when a publication was due to its delivery, microseconds."""

    p50_us: float
    p99_us: float
    measured: Measured

    @property
    def disturbed(self) -> bool:
        """Whether the figures say more about others."""
        return self.measured.disturbed


class _Subscriber:
    """Counts what it is told."""

    def __init__(self, raw: socket.socket, mark: bytes) -> None:
        self.raw = raw
        self.heard = 0
        self._mark = mark
        self._tail = b""  # of the last read, where a mark may begin

    def read(self) -> bytes:
        """Take what has come. Raises ``PeerFailed``."""
        data = self.raw.recv(_READ_BYTES)
        if not data:
            raise PeerFailed("the broker hung up on a subscriber")
        looked_at = self._tail + data
        self.heard += looked_at.count(self._mark)
        self._tail = looked_at[1 - len(self._mark) :]
        return data


class Scene:
    """A broker's clients, as long as they are connected."""

    def __init__(self, wire: Wire, broker: Running, subscribers: int) -> None:
        """Connect, and see that each is told what is published. Raises ``PeerFailed``."""
        self._broker = broker
        self._stack = contextlib.ExitStack()
        self._told = publications()
        self._frames = wire.block(self._told)
        self._sent = 0
        try:
            self._hears = [
                _Subscriber(self._client(wire, hears=True), wire.mark) for _ in range(subscribers)
            ]
            self._says = self._client(wire, hears=False)
            self._check()
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        """Disconnect all."""
        self._stack.close()

    def _client(self, wire: Wire, *, hears: bool) -> socket.socket:
        raw = wire.client(self._broker.port, hears=hears)
        return self._stack.enter_context(contextlib.closing(raw))

    def _check(self) -> None:
        """Compare the first deliveries with what was published."""
        count = 2 * _AT_ONCE
        self._publish(count)
        for each in self._hears:
            data = b""
            while each.heard < count or self._told[count - 1].text.encode() not in data:
                data += each.read()
            at = [data.find(publication.text.encode()) for publication in self._told[:count]]
            if -1 in at or at != sorted(at):
                raise PeerFailed("a subscriber was told something else than was published")

    def _publish(self, count: int) -> None:
        """Send the next ``count``, in one write."""
        first = self._sent % len(self._frames)
        some = self._frames[first : first + count]
        self._says.sendall(b"".join(some))
        self._sent += len(some)

    def _listen(self, timeout_s: float) -> bool:
        """Read what comes within that time; whether a subscriber was told something."""
        # select, not epoll: its timeout counts microseconds, theirs milliseconds.
        by_socket = {each.raw: each for each in self._hears}
        ready = select.select([*by_socket, self._says], [], [], timeout_s)[0]
        for raw in ready:
            if raw in by_socket:
                by_socket[raw].read()
            elif not raw.recv(_READ_BYTES):  # answers
                raise PeerFailed("the broker hung up on the publisher")
        return bool(ready)

    def rate(self, duration_s: float) -> Measured:
        """Publish as fast as it is told. Deliveries are those of all subscribers."""
        meter, began = Meter(self._broker.pid), 0
        warm = time.perf_counter() + min(_WARM_UP_S, duration_s)
        end = warm + duration_s
        is_warm = False
        while True:
            now = time.perf_counter()
            slowest = min(each.heard for each in self._hears)
            if not is_warm and now >= warm:
                is_warm, meter = True, Meter(self._broker.pid)
                began = sum(each.heard for each in self._hears)
            if now >= end:
                if slowest == self._sent:
                    break
            elif self._sent - slowest <= UNDER_WAY - _AT_ONCE:
                self._publish(_AT_ONCE)
                continue
            if not self._listen(_STALL_S):
                raise PeerFailed(f"{self._sent - slowest} publications did not come")
        heard = [each.heard for each in self._hears]
        if heard != [self._sent] * len(heard):
            raise PeerFailed(f"{self._sent} were published, and subscribers were told {heard}")
        return meter.stop(sum(heard) - began)

    def latency(self, rate: int, duration_s: float) -> Latency:
        """Publish so many a second, each when its time has come, whatever became of others."""
        (hears,) = self._hears
        count = max(100, int(rate * duration_s))
        before, clock = self._sent, time.perf_counter
        taken: list[float] = []
        with exact_timer():
            meter = Meter(self._broker.pid)
            started = heard_at = meter.started
            while len(taken) < count:
                sent = self._sent - before
                due = min(count, int((clock() - started) * rate) + 1)
                if sent < due:
                    self._publish(due - sent)
                    continue
                wait_s = started + sent / rate - clock() if sent < count else _STALL_S
                if self._listen(max(0.0, wait_s)):
                    heard_at = clock()
                    came = range(len(taken), hears.heard - before)
                    taken += [heard_at - started - number / rate for number in came]
                elif clock() - heard_at > _STALL_S:
                    raise PeerFailed(f"{count - len(taken)} publications did not come")
            measured = meter.stop(count)
        taken.sort()
        p50, p99 = (taken[int((count - 1) * share)] * 1e6 for share in (0.5, 0.99))
        return Latency(p50, p99, measured)


@contextlib.contextmanager
def scene(wire: Wire, broker: Running, subscribers: int) -> Iterator[Scene]:
    """Give a broker with its clients."""
    with contextlib.closing(Scene(wire, broker, subscribers)) as made:
        yield made
