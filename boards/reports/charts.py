"""Curves and bars. The shapes are SVG that stretches; every word is text beside it.

So a chart is as wide as its place, and its letters are as large on a phone as on a desk.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from boards.reports.axes import Scale, amount, linear, logarithmic
from boards.reports.markup import Html, joined, tag
from boards.reports.percentiles import percentile

COLORS = 8  # then they begin again, dashed
_CURVE_POINTS = 300
_WIDE, _HIGH = 1000.0, 400.0


@dataclass(frozen=True, slots=True)
class Curve:
    """A named line; ``color`` counts from 0. ``limit`` is drawn upright on the x axis."""

    name: str
    color: int
    points: Sequence[tuple[float, float]]
    about: str = ""
    limit: float | None = None


def cdf(curves: Sequence[tuple[str, int, Sequence[float], float | None]], unit: str) -> Html:
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
    return plot(drawn, x_axis, Scale(0, 100), x_unit=unit, y_unit="%")


def _steps(ordered: Sequence[float]) -> list[tuple[float, float]]:
    count = len(ordered)
    every = max(1, count // _CURVE_POINTS)
    picked = sorted({*range(0, count, every), count - 1})
    points = [(ordered[0], 0.0)]
    for index in picked:
        points += [(ordered[index], points[-1][1]), (ordered[index], 100 * (index + 1) / count)]
    return points


def over_time(curves: Sequence[Curve], unit: str) -> Html:
    """Chart curves of seconds against ``unit``; the y axis begins at 0."""
    x_axis = linear([x for curve in curves for x, _ in curve.points])
    y_axis = linear([y for curve in curves for _, y in curve.points])
    return plot(curves, x_axis, y_axis, x_unit="s", y_unit=unit, has_dots=True)


def plot(
    curves: Sequence[Curve],
    x_axis: Scale,
    y_axis: Scale,
    *,
    x_unit: str,
    y_unit: str,
    has_dots: bool = False,
) -> Html:
    """Draw ``curves`` with their axes and a legend."""
    x_ticks, y_ticks = x_axis.ticks(), y_axis.ticks()
    grid = [_line(x_axis.place(x), 0, x_axis.place(x), 100, "grid") for x in x_ticks]
    grid += [_line(0, y_axis.place(y), 100, y_axis.place(y), "grid") for y in y_ticks]
    shapes = []
    for curve in curves:
        places = [(x_axis.place(x), y_axis.place(y)) for x, y in curve.points]
        shapes.append(_polyline(places, _color_class(curve.color)))
        if has_dots and len(places) <= _CURVE_POINTS:
            shapes += [_dot(x, y, curve.color) for x, y in places]
        if curve.limit is not None:
            at = x_axis.place(curve.limit)
            shapes.append(_line(at, 0, at, 100, f"limit {_color_class(curve.color)}"))
    svg = tag(
        "svg",
        *(*grid, *shapes),
        viewBox=f"0 0 {_WIDE:g} {_HIGH:g}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    labels = [
        *(tag("i", amount(x, x_unit), class_="x", style=_left(x_axis.place(x))) for x in x_ticks),
        *(
            tag("i", amount(y, y_unit), class_="y", style=f"bottom:{y_axis.place(y):.2f}%")
            for y in y_ticks
        ),
    ]
    return tag("figure", tag("div", svg, *labels, class_="plot"), legend(curves), class_="chart")


def legend(curves: Sequence[Curve]) -> Html:
    """Say which colour is whose."""
    rows = [
        tag(
            "li",
            tag("b", class_=f"swatch {_color_class(curve.color)}"),
            tag("span", curve.name),
            tag("small", curve.about) if curve.about else None,
        )
        for curve in curves
    ]
    return tag("ul", *rows, class_="legend")


@dataclass(frozen=True, slots=True)
class Bar:
    """A named amount, with the range that the whisker spans."""

    name: str
    value: float
    low: float
    high: float
    about: str = ""


def bars(rows: Sequence[Bar], unit: str) -> Html:
    """Chart amounts of one unit as bars with whiskers."""
    axis = linear([value for row in rows for value in (row.value, row.high)])
    lines = []
    for row in rows:
        low, high = axis.place(row.low), axis.place(row.high)
        whisker = tag("s", style=f"left:{low:.2f}%;width:{high - low:.2f}%")
        bar = tag("b", style=f"width:{axis.place(row.value):.2f}%")
        lines.append(
            tag(
                "div",
                tag("span", row.name, class_="who"),
                tag("div", bar, whisker if row.high > row.low else None, class_="bar"),
                tag("span", amount(row.value, unit), tag("small", row.about), class_="much"),
                class_="row",
            )
        )
    return tag("div", *lines, class_="bars")


def _color_class(color: int) -> str:
    return f"c{color % COLORS}" + (" dashed" if color >= COLORS else "")


def _left(place: float) -> str:
    return f"left:{place:.2f}%"


def _xy(x: float, y: float) -> str:
    return f"{x / 100 * _WIDE:.1f},{_HIGH - y / 100 * _HIGH:.1f}"


def _polyline(places: Sequence[tuple[float, float]], color: str) -> Html:
    points = " ".join(_xy(x, y) for x, y in places)
    return tag("polyline", points=points, class_=color, vector_effect="non-scaling-stroke")


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Html:
    points = f"{_xy(x1, y1)} {_xy(x2, y2)}"
    return tag("polyline", points=points, class_=kind, vector_effect="non-scaling-stroke")


def _dot(x: float, y: float, color: int) -> Html:
    # A line of no length with round ends is a dot that does not stretch with its picture.
    d = f"M{_xy(x, y)}h0.01"
    return tag("path", d=d, class_=f"dot {_color_class(color)}", vector_effect="non-scaling-stroke")


def stacked(*parts: object) -> Html:
    """Return charts one below the other."""
    return tag("div", joined(*parts), class_="stack")
