"""Figures as inline SVG. Text and axes take the page's text colour, so dark and light both read."""

import io
import math
import re
import warnings
from collections import defaultdict
from typing import Any, Final

import matplotlib as mpl
from cycler import cycler
from markupsafe import Markup
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from host_broker.printable import printable
from motemq_pipeline.report.facts import Row

SHOWN_BOARDS = 8  # lines in one figure; more could not be told apart
_MOST_LETTERS: Final = 40  # of a name in a figure; what is longer lacks its middle
_LEGEND_LETTERS: Final = 48  # of a line below a small figure, boards' names and lines together
_LINE_LETTERS: Final = 6  # what the line before a name takes, and the space behind it
_MOST_COLUMNS: Final = 3
_LEGEND_LINE: Final = 0.18  # inches
_MOST_DRAWN: Final = 1e150  # beyond that the arithmetic of Matplotlib's axes overflows
_INK = "#010203"  # stands for the page's text colour until the SVG is written
# Okabe and Ito's colours, without those that vanish on white or black.
_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5cc0", "#8a6d3b"]
# Any: matplotlib types each of its 300 keys.
_STYLE: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": _INK,
    "grid.alpha": 0.15,
    "legend.frameon": False,
    "axes.prop_cycle": cycler(color=_COLOURS),
}


def round_trips(by_board: dict[str, list[float]]) -> Markup | None:
    """Return the cumulative distribution of round trips (us), a line a board; None without any."""
    shown = dict(list(by_board.items())[:SHOWN_BOARDS])
    if not shown:
        return None
    with mpl.rc_context({**_STYLE, "svg.hashsalt": "round trips"}):
        figure, axes = _figure(5.4, 3.2)
        for board, values in shown.items():
            milliseconds = [value / 1000 for value in values]
            shares = [100 * (index + 1) / len(values) for index in range(len(values))]
            axes.step(milliseconds, shares, where="post", label=_words(board), linewidth=1.8)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(ticker.NullFormatter())
        axes.set_xlabel("round trip, ms")
        axes.set_ylabel("% of round trips at or below")
        axes.set_ylim(0, 102)
        axes.legend(loc="lower right")
        return _svg(figure, "Round trips per board")


def telemetry(rollup: list[Row]) -> list[Markup]:
    """Return one figure per sensor: means over simulated time, a line a board."""
    sensors: dict[tuple[str, str], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rollup:
        sensors[row["sensor"], row["unit"]][row["board"]].append(row)
    return [_sensor(sensor, unit, boards) for (sensor, unit), boards in sorted(sensors.items())]


def latest(readings: list[Row]) -> list[Markup]:
    """Return one figure per sensor: readings by the time they were taken, a line a board."""
    sensors: dict[tuple[str, str], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in readings:
        sensors[row["sensor"], row["unit"] or ""][row["board"]].append(row)
    newest = max((row["event_time"] for row in readings), default=None)
    figures = []
    for (sensor, unit), boards in sorted(sensors.items()):
        with mpl.rc_context({**_STYLE, "svg.hashsalt": f"latest {sensor} {unit}"}):
            figure, axes = _figure(4.3, 2.7)
            for board in sorted(boards)[:SHOWN_BOARDS]:
                rows = sorted(boards[board], key=lambda row: row["event_time"])
                seconds = [(row["event_time"] - newest).total_seconds() for row in rows]
                values = [_drawn(row["value"]) for row in rows]
                axes.plot(seconds, values, ".-", label=_words(board), linewidth=1.2, markersize=3)
            axes.set_title(_words(f"{sensor}, {unit}" if unit else sensor), fontsize=11, loc="left")
            axes.set_xlabel(f"seconds before {newest:%Y-%m-%d %H:%M:%S} UTC")
            _legend_below(figure, axes)
            figures.append(_svg(figure, f"Latest {sensor} per board"))
    return figures


def _sensor(sensor: str, unit: str, boards: dict[str, list[Row]]) -> Markup:
    with mpl.rc_context({**_STYLE, "svg.hashsalt": f"{sensor} {unit}"}):
        figure, axes = _figure(4.3, 2.7)
        shown = sorted(boards)[:SHOWN_BOARDS]
        for index, board in enumerate(shown):
            rows = sorted(boards[board], key=lambda row: row["window_start_ms"])
            seconds = [row["window_start_ms"] / 1000 for row in rows]
            (line,) = axes.plot(
                seconds,
                [_drawn(row["mean"]) for row in rows],
                label=_words(board),
                # Boards that measure the same lie on each other: the lower ones are wider.
                linewidth=1.6 + min(2.0, 8 / len(shown)) * (len(shown) - 1 - index),
            )
            axes.fill_between(
                seconds,
                [_drawn(row["min"]) for row in rows],
                [_drawn(row["max"]) for row in rows],
                color=line.get_color(),
                alpha=0.2 / len(shown),
                linewidth=0,
            )
        axes.set_title(_words(f"{sensor}, {unit}"), fontsize=11, loc="left")
        axes.set_xlabel("simulated time, s")
        _legend_below(figure, axes)
        return _svg(figure, f"{sensor} per board")


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0)
    return figure, axes


def _legend_below(figure: Figure, axes: Axes) -> None:
    """Name the boards below a small figure, which grows with the lines of names that it has."""
    names = axes.get_legend_handles_labels()[1]
    of_a_name = _LINE_LETTERS + max(map(len, names), default=0)
    columns = max(1, min(_MOST_COLUMNS, _LEGEND_LETTERS // of_a_name))
    lines_more = -(-len(names) // columns) - 1
    figure.set_figheight(figure.get_figheight() + lines_more * _LEGEND_LINE)
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.22),
        ncols=columns,
        columnspacing=1.2,
        fontsize=9,
    )


def _drawn(value: float) -> float:
    """Return a value as it is drawn: NaN, which is a gap in a line, if it is too large."""
    return value if abs(value) <= _MOST_DRAWN else math.nan


def _words(text: str) -> str:
    """Return a text as Matplotlib shows it: what a board says is printable, and not too long."""
    shown = printable(text).replace("\t", " ")
    if len(shown) <= _MOST_LETTERS:
        return shown
    # Names often differ in their last letters only.
    half = _MOST_LETTERS // 2
    return f"{shown[:half]}…{shown[1 - half :]}"


def _svg(figure: Figure, label: str) -> Markup:
    """Return the figure as an ``<svg>`` element that refers to nothing outside itself."""
    output = io.StringIO()
    with warnings.catch_warnings():
        # Texts stay texts: the browser has the letters that Matplotlib's font has not.
        warnings.filterwarnings("ignore", r"Glyph .* missing from font")
        figure.savefig(
            output,
            format="svg",
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    svg = output.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Scaled by the page, not by its own size in points.
    svg = re.sub(r'^<svg([^>]*?) width="[^"]*"', r"<svg\1", svg)
    svg = re.sub(r'^<svg([^>]*?) height="[^"]*"', r"<svg\1", svg)
    svg = svg.replace("<svg", Markup('<svg role="img" aria-label="{}"').format(printable(label)), 1)
    # Matplotlib escaped the texts it was given.
    return Markup(svg.replace(_INK, "currentColor"))
