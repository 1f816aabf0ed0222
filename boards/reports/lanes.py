"""What happened when: the states of all boards, and last wills against their windows."""

from collections.abc import Sequence
from dataclasses import dataclass

from boards.reports.axes import Scale, amount, linear
from boards.reports.markup import Html, tag
from boards.reports.record import BoardRecord, Interval, RunRecord

_NARROWEST = 0.3  # percent; less could not be seen
_STEPS = ("start", "flash", "install", "check", "telemetry", "stop")


def gantt(run: RunRecord, named: Sequence[tuple[str, BoardRecord]]) -> Html:
    """Chart the steps of all boards, and below them their checks, against the run's seconds."""
    axis = Scale(0.0, max(run.seconds, 0.001))
    rows = []
    for name, board in named:
        steps = [_span(run, axis, i) for i in board.intervals if not i.check]
        checks = [
            _span(run, axis, i) for i in board.intervals if i.check and i.outcome != "skipped"
        ]
        rows.append(
            _row(
                name,
                tag("div", *steps, class_="lane"),
                tag("div", *checks, class_="lane thin") if checks else None,
            )
        )
    kinds = [tag("li", tag("b", class_=f"swatch s-{step}"), step) for step in _STEPS]
    kinds += [
        tag("li", tag("b", class_=f"swatch o-{outcome}"), f"{outcome} (framed)")
        for outcome in ("failed", "error")
    ]
    legend = tag("ul", *kinds, class_="legend")
    return tag("div", *rows, _row("", _ticks(axis, "s")), legend, class_="lanes")


def _span(run: RunRecord, axis: Scale, interval: Interval) -> Html:
    left = axis.place((interval.start_ns - run.start_ns) / 1e9)
    right = axis.place((interval.end_ns - run.start_ns) / 1e9)
    width = max(_NARROWEST, right - left)
    kind = "c-check" if interval.check else f"s-{interval.step}"
    if interval.step not in _STEPS:
        kind = "s-other"
    outcome = interval.outcome if interval.outcome in ("failed", "error", "quarantined") else ""
    again = f", attempt {interval.attempt}" if interval.attempt > 1 else ""
    ended = interval.shown_outcome
    return tag(
        "b",
        class_=f"{kind} o-{outcome}" if outcome else kind,
        style=f"left:{min(left, 100 - width):.3f}%;width:{width:.3f}%",
        title=f"{interval.name}{again}: {ended}, {interval.seconds:.1f} s",
    )


@dataclass(frozen=True, slots=True)
class Will:
    """Delays of one will in ms after the last sign of life, and the window it must be in."""

    board: str
    check: str
    delays_ms: Sequence[float]
    low_ms: float | None
    high_ms: float | None
    outcome: str


def wills(rows: Sequence[Will]) -> Html:
    """Chart each will's arrivals, with the window that they had to be in."""
    ends = [delay for row in rows for delay in row.delays_ms]
    ends += [row.high_ms for row in rows if row.high_ms is not None]
    axis = linear([1.03 * end for end in ends])
    lines, board = [], ""
    for row in rows:
        if row.board != board:
            board = row.board
            lines.append(tag("h3", board))
        marks = [tag("i", style=f"left:{axis.place(delay):.2f}%") for delay in row.delays_ms]
        about = f"arrived after {amount(max(row.delays_ms), 'ms')}"
        window = None
        if row.high_ms is not None:
            left, right = axis.place(row.low_ms or 0.0), axis.place(row.high_ms)
            style = f"left:{left:.2f}%;width:{max(_NARROWEST, right - left):.2f}%"
            window = tag("b", class_="window", style=style)
            low, high = amount(row.low_ms or 0.0, "ms"), amount(row.high_ms, "ms")
            about += f", window {low} to {high}"
        lines.append(
            _row(
                row.check,
                tag("div", window, *marks, class_=f"lane will o-{row.outcome}"),
                tag("small", about),
            )
        )
    return tag("div", *lines, _row("", _ticks(axis, "ms")), class_="lanes")


def _row(name: str, *lanes: object) -> Html:
    return tag("div", tag("span", name, class_="who"), tag("div", *lanes), class_="row")


def _ticks(axis: Scale, unit: str) -> Html:
    marks = [
        tag("i", amount(at, unit), class_="x", style=f"left:{axis.place(at):.2f}%")
        for at in axis.ticks()
    ]
    return tag("div", *marks, class_="ticks")
