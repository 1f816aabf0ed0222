"""Percentiles of what was measured."""

from collections.abc import Sequence


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
