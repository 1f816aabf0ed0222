"""What is counted at a bridge: bytes, sessions, losses, and how long bytes wait in it."""

from dataclasses import dataclass, field

_BUCKET_COUNT = 40  # of powers of two µs: the last holds all above six days


class Dwell:
    """How long bytes waited in a buffer: from the first one that enters until it is empty again.

    The histogram's buckets are powers of two, so percentiles are upper bounds within a factor of
    two, from a few hundred bytes of memory.
    """

    __slots__ = ("_buckets", "_since", "count", "max_us")

    def __init__(self) -> None:
        self._buckets = [0] * _BUCKET_COUNT
        self._since: float | None = None
        self.count = 0
        self.max_us = 0

    def look(self, waiting_bytes: int, now: float) -> None:
        """Take note of the buffer's fill at ``now``, in seconds."""
        if waiting_bytes:
            if self._since is None:
                self._since = now
            return
        if self._since is None:
            return
        us = int((now - self._since) * 1e6)
        self._since = None
        self.count += 1
        self.max_us = max(self.max_us, us)
        self._buckets[min(us.bit_length(), _BUCKET_COUNT - 1)] += 1

    def percentile_us(self, percent: float) -> int:
        """Return a time in µs that at least ``percent`` of all waits did not exceed."""
        left = self.count * percent / 100
        for index, count in enumerate(self._buckets):
            left -= count
            if count and left <= 0:
                return min((1 << index) - 1, self.max_us)
        return 0


@dataclass(slots=True)
class BridgeCounters:
    """What went through a bridge since it was started."""

    to_broker_bytes: int = 0
    to_board_bytes: int = 0
    dropped_bytes: int = 0  # sent by the board, but no broker got them
    dropped_to_board_bytes: int = 0  # sent by the broker, but the line did not take them
    sessions: int = 0
    silences: int = 0  # sessions that we closed because the board fell silent
    broker_closes: int = 0
    connect_failures: int = 0
    port_failures: int = 0
    to_broker_wait: Dwell = field(default_factory=Dwell)
    to_board_wait: Dwell = field(default_factory=Dwell)
