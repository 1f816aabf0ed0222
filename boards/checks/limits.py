"""The limits that a board's file may set, and what of a measurement is held to one.

A check's own limit holds for every board; a board's file tightens or widens it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from boards.reports.axes import percentile


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit: ``percent`` of the values (0 is the least, 100 the most) is held to it."""

    key: str  # in [limits] of a board's file
    what: str  # for people, e.g. "RTT p99"
    unit: str  # of the limit
    per_unit: float  # values of the measurement in one unit of the limit
    percent: float
    bound: Literal["at_most", "at_least"]
    default: float | None = None  # of boards that say nothing; None: no limit

    def of(self, limits: Mapping[str, float]) -> float | None:
        """Return the board's limit in the limit's unit, None if it has none."""
        return limits.get(self.key, self.default)


RTT_P99 = Limit("rtt_p99_ms", "RTT p99", "ms", 1000.0, 99, "at_most")
HEAP_FREE = Limit("heap_free_min", "free heap", "bytes", 1.0, 0, "at_least")
# What a collection finds differs by a block or two of 16 or 32 bytes from one time to the next; one
# lost block per message would be 16,000.
HEAP_SLOPE = Limit(
    "heap_slope_max", "heap lost", "bytes per 1000 messages", 1.0, 100, "at_most", default=100.0
)

# By chip, in bytes: less would leave a program hardly any room beside the client and the node. The
# first heap of an ESP32 has 64 KB, and grows; an RP2040 has 264 KB of memory, an RP2350 520 KB.
_HEAP_FREE_MIN: Mapping[str, float] = {"rp2040": 80_000, "rp2350": 200_000}
_HEAP_FREE_MIN_ELSE = 30_000.0

LIMITS: Mapping[str, Limit] = {limit.key: limit for limit in (RTT_P99, HEAP_FREE, HEAP_SLOPE)}


def limits_of(kind: str, limits: Mapping[str, float]) -> Mapping[str, float]:
    """Return what a board with this chip is held to; ``limits`` are those of its file."""
    return {HEAP_FREE.key: _HEAP_FREE_MIN.get(kind, _HEAP_FREE_MIN_ELSE), **limits}


def beyond(limit: Limit | None, limits: Mapping[str, float], values: Sequence[float]) -> str:
    """Return how ``values`` are beyond the board's limit, "" if they are not."""
    bound = limit.of(limits) if limit is not None else None
    if limit is None or bound is None or not values:
        return ""
    value = percentile(values, limit.percent) / limit.per_unit
    if value <= bound if limit.bound == "at_most" else value >= bound:
        return ""
    word = "at most" if limit.bound == "at_most" else "at least"
    return f"{limit.what} is {value:.6g} {limit.unit}, {limit.key} says {word} {bound:g}"
