"""Curves and bars as the page's templates draw them: axes, and points of an SVG."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from boards.reports.axes import Scale, amount, linear, logarithmic, percentile

COLORS = 8  # then they begin again, dashed


@dataclass(frozen=True, slots=True)
class Curve:
    """A named line; ``color`` counts from 0. ``limit`` is drawn upright on the x axis."""

    name: str
    color: int
    points: Sequence[tuple[float, float]]
    about: str = ""
    limit: float | None = None

    @property
    def style(self) -> str:
        """Its classes in the style sheet."""
        return f"c{self.color % COLORS}" + (" dashed" if self.color >= COLORS else "")


@dataclass(frozen=True, slots=True)
class Plot:
    """Curves with their axes. A page stretches the picture, so that its own size means nothing."""

    curves: Sequence[Curve]
    x_axis: Scale
    y_axis: Scale
    x_unit: str
    y_unit: str
    has_dots: bool = False

    WIDE: ClassVar[int] = 1000
    HIGH: ClassVar[int] = 400
    MOST_DOTS: ClassVar[int] = 300

    def line(self, points: Iterable[tuple[float, float]]) -> str:
        """Return points of a curve as SVG has them."""
        return self._svg((self.x_axis.place(x), self.y_axis.place(y)) for x, y in points)

    def upright(self, x: float) -> str:
        """Return a line from the bottom to the top, at ``x``."""
        return self._svg((self.x_axis.place(x), y) for y in (0.0, 100.0))

    def level(self, y: float) -> str:
        """Return a line from the left to the right, at ``y``."""
        return self._svg((x, self.y_axis.place(y)) for x in (0.0, 100.0))

    def _svg(self, places: Iterable[tuple[float, float]]) -> str:
        wide, high = self.WIDE / 100, self.HIGH / 100
        return " ".join(f"{x * wide:.1f},{self.HIGH - y * high:.1f}" for x, y in places)


def cdf(curves: Sequence[tuple[str, int, Sequence[float], float | None]], unit: str) -> Plot:
    """Chart how many percent of each ``(name, color, values, limit)`` are at most x.

    ``values`` must not be empty.
    """
    drawn = []
    for name, color, values, limit in curves:
        ordered = sorted(values)
        p50, p99 = (amount(percentile(ordered, at), unit) for at in (50, 99))
        about = f"n {len(ordered)}, p50 {p50}, p99 {p99}"
        drawn.append(Curve(name, color, _steps(ordered), about, limit))
    everything = [x for curve in drawn for x, _ in curve.points]
    everything += [curve.limit for curve in drawn if curve.limit is not None]
    # A round trip of 0 has no place on a logarithmic axis.
    x_axis = logarithmic(everything) if min(everything) > 0 else linear(everything)
    return Plot(drawn, x_axis, Scale(0, 100), unit, "%")


def _steps(ordered: Sequence[float]) -> list[tuple[float, float]]:
    count = len(ordered)
    every = max(1, count // Plot.MOST_DOTS)
    points = [(ordered[0], 0.0)]
    for index in sorted({*range(0, count, every), count - 1}):
        points += [(ordered[index], points[-1][1]), (ordered[index], 100 * (index + 1) / count)]
    return points


def over_time(curves: Sequence[Curve], unit: str) -> Plot:
    """Chart curves of seconds against ``unit``; the y axis begins at 0."""
    x_axis = linear([x for curve in curves for x, _ in curve.points])
    y_axis = linear([y for curve in curves for _, y in curve.points])
    return Plot(curves, x_axis, y_axis, "s", unit, has_dots=True)


@dataclass(frozen=True, slots=True)
class Bar:
    """A named amount, with the range that the whisker spans."""

    name: str
    value: float
    low: float
    high: float
    about: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """Amounts of one unit."""

    rows: Sequence[Bar]
    unit: str

    @property
    def axis(self) -> Scale:
        """From 0 to the greatest."""
        return linear([value for row in self.rows for value in (row.value, row.high)])


@dataclass(frozen=True, slots=True)
class Will:
    """Delays of one will in ms after the last sign of life, and the window it must be in."""

    board: str
    check: str
    delays_ms: Sequence[float]
    low_ms: float | None
    high_ms: float | None
    outcome: str


@dataclass(frozen=True, slots=True)
class Wills:
    """All wills of a run."""

    rows: Sequence[Will]

    @property
    def axis(self) -> Scale:
        """From 0 to a little behind the last arrival and the latest window."""
        ends = [delay for row in self.rows for delay in row.delays_ms]
        ends += [row.high_ms for row in self.rows if row.high_ms is not None]
        return linear([1.03 * end for end in ends])
