"""Numbers for people: percentiles, units that fit, and ticks at round places."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the percentile of ``values``, interpolated between neighbours as Spark does.

    Raises ``ValueError`` for no values or a ``percent`` outside 0..100.
    """
    if not values or not 0 <= percent <= 100:
        raise ValueError(f"no {percent} % of {len(values)} values")
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


# From a unit to those above it, as (factor, unit).
_LADDERS = {
    "us": ((1.0, "µs"), (1e3, "ms"), (1e6, "s")),
    "ms": ((1e-3, "µs"), (1.0, "ms"), (1e3, "s")),
    "s": ((1e-3, "ms"), (1.0, "s")),
    "B": ((1.0, "B"), (1024.0, "KiB"), (1048576.0, "MiB")),
    "B/s": ((1.0, "B/s"), (1024.0, "KiB/s"), (1048576.0, "MiB/s")),
}
_SAME = {"bytes": "B", "byte": "B", "bytes/s": "B/s", "µs": "us"}
_SHORTER = {"bytes per 1000 messages": "B per 1k"}


def amount(value: float, unit: str) -> str:
    """Return ``value`` with a unit that makes it short, e.g. ``1500, "us"`` as ``1.5 ms``."""
    factor, name = _step(abs(value), unit)
    return f"{short(value / factor)} {name}".strip()


def _step(size: float, unit: str) -> tuple[float, str]:
    ladder = _LADDERS.get(_SAME.get(unit, unit))
    if ladder is None:
        return 1.0, _SHORTER.get(unit, unit)
    chosen = ladder[0] if size else next(step for step in ladder if step[0] == 1.0)
    for step in ladder[1:]:
        if size >= step[0]:
            chosen = step
    return chosen


def short(value: float) -> str:
    """Return a number with three digits that say something."""
    if value == 0:
        return "0"
    if abs(value) >= 1e6 or abs(value) < 1e-3:
        return f"{value:.3g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True, slots=True)
class Scale:
    """Where a value is on an axis: ``place`` in percent, 0 at ``low``."""

    low: float
    high: float
    is_log: bool = False

    def place(self, value: float) -> float:
        """Return the place of ``value`` in percent, at most the axis' ends."""
        low, high, at = self.low, self.high, value
        if self.is_log:
            low, high, at = math.log(low), math.log(high), math.log(max(value, self.low))
        return min(100.0, max(0.0, 100 * (at - low) / (high - low)))

    def ticks(self) -> list[float]:
        """Return two to seven round values within the axis."""
        return _log_ticks(self.low, self.high) if self.is_log else _ticks(self.low, self.high)


def linear(values: Sequence[float]) -> Scale:
    """Return an axis for ``values`` and 0."""
    low, high = min([0.0, *values]), max([0.0, *values])
    # Values that no float can divide make no axis of their own.
    return Scale(low, high if high - low > 1e-300 else 1.0)


def logarithmic(values: Sequence[float]) -> Scale:
    """Return an axis from below the least to above the greatest positive value, in 1, 2, 5, 10."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = _round_down(min(positive)), _round_up(max(positive))
    return Scale(low, high if high > low else low * 10, is_log=True)


def _round_down(value: float) -> float:
    decade = 10.0 ** math.floor(math.log10(value))
    return max(step * decade for step in (1, 2, 5) if step * decade <= value * 1.000001)


def _round_up(value: float) -> float:
    decade = 10.0 ** math.floor(math.log10(value))
    return min(step * decade for step in (1, 2, 5, 10) if step * decade >= value * 0.999999)


def _ticks(low: float, high: float) -> list[float]:
    step = _round_up((high - low) / 5)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    ticks = []
    for exponent in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        ticks += [step * 10.0**exponent for step in (1, 2, 5)]
    inside = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
    if len(inside) <= 6:
        return inside
    decades = [tick for tick in inside if _is_decade(tick)]
    every = 1 + len(decades) // 7
    return decades[::every]


def _is_decade(value: float) -> bool:
    exponent = math.log10(value)
    return abs(exponent - round(exponent)) < 1e-9
