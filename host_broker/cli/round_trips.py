"""Round trip times summed up: four figures and a picture of one line."""

import math
from collections.abc import Sequence

_FIGURES = (("min", 0.0), ("median", 0.5), ("p99", 0.99), ("max", 1.0))
_BARS = " ▁▂▃▄▅▆▇█"
_CELLS = 32


def figures_us(times_s: Sequence[float]) -> dict[str, float]:
    """Return min, median, p99 and max in microseconds; ``times_s`` must not be empty.

    Nearest rank: each is a time that was measured, not one between two.
    """
    ordered = sorted(times_s)
    last = len(ordered) - 1
    ranks = {name: max(0, math.ceil(share * len(ordered)) - 1) for name, share in _FIGURES}
    return {name: ordered[min(last, rank)] * 1e6 for name, rank in ranks.items()}


def summary(times_s: Sequence[float], lost: int) -> str:
    """Return one line of text."""
    parts = [f"{len(times_s)} round trips, {lost} lost"]
    parts += [f"{name} {microseconds:.0f} us" for name, microseconds in figures_us(times_s).items()]
    return ", ".join(parts)


def histogram(times_s: Sequence[float]) -> str:
    """Return how the times are spread, from the shortest to the longest, on a logarithmic scale.

    A cell with anything in it is never blank, so that one outlier among thousands is seen.
    """
    shortest, longest = min(times_s), max(times_s)
    # Not wider than the times differ: equal times are one full cell.
    scale = math.log(longest / shortest) / _CELLS if longest > shortest else math.inf
    cells = [0] * (_CELLS if longest > shortest else 1)
    for time_s in times_s:
        cells[min(len(cells) - 1, int(math.log(time_s / shortest) / scale))] += 1
    most = max(cells)
    bars = "".join(_BARS[math.ceil(cell * (len(_BARS) - 1) / most)] for cell in cells)
    return f"{shortest * 1e6:.0f} us |{bars}| {longest * 1e6:.0f} us (logarithmic)"
