"""The parts of the page that show what was measured; a part with nothing to show is None."""

from collections.abc import Callable, Iterator, Sequence

from boards.reports.axes import amount
from boards.reports.charts import COLORS, Bar, Curve, bars, cdf, over_time, stacked
from boards.reports.lanes import Will, wills
from boards.reports.markup import Html, tag
from boards.reports.percentiles import percentile
from boards.reports.record import BoardRecord, RunRecord, Series
from boards.reports.sections import names, part, scroll

_FEWEST_FOR_CURVE = 5
_TIMES = ("us", "ms", "s")
_WILLS_PER_LANE = 50
_PING, _BASELINE = ("ping", "rtt", "us"), ("baseline", "baseline_rtt", "us")
_Line = tuple[str, int, Sequence[float], float | None]


def _series(run: RunRecord) -> Iterator[tuple[int, BoardRecord, Series]]:
    for number, board in enumerate(run.boards.values()):
        for series in board.series.values():
            if series.values:
                yield number, board, series


def round_trips(run: RunRecord) -> Html | None:
    """A distribution per check that measured times often enough for one."""
    called = names(run)
    charts: dict[tuple[str, str, str], list[_Line]] = {}
    for number, board, series in _series(run):
        if len(series.values) < _FEWEST_FOR_CURVE or series.unit not in _TIMES:
            continue
        key = series.check, series.metric, series.unit
        line = (called[board.id], number, series.values, series.high)
        charts.setdefault(key, []).append(line)
    _lay_under(run, charts)
    drawn = [
        tag("article", tag("h3", f"{check}: {metric}"), cdf(lines, unit))
        for (check, metric, unit), lines in charts.items()
    ]
    if not drawn:
        return None
    note = (
        "How many percent took at most so long; an upright line is a declared limit, a dashed "
        "curve the same way without messaging (plain bytes there and back)."
    )
    return part("times", "Times", tag("p", note, class_="soft"), tag("div", *drawn, class_="many"))


def _lay_under(run: RunRecord, charts: dict[tuple[str, str, str], list[_Line]]) -> None:
    """Draw the baseline with what is to be compared with it, and no longer by itself."""
    if _PING not in charts or _BASELINE not in charts:
        return
    del charts[_BASELINE]
    called = names(run)
    for number, board in enumerate(run.boards.values()):
        series = board.series.get(_BASELINE[:2])
        if series is not None and len(series.values) >= _FEWEST_FOR_CURVE:
            name = f"{called[board.id]}, baseline"
            charts[_PING].append((name, number % COLORS + COLORS, series.values, None))


def throughput(run: RunRecord) -> Html | None:
    """Bars for everything that is measured per second."""
    called = names(run)
    groups: dict[tuple[str, str], list[Bar]] = {}
    for _, board, series in _series(run):
        if not series.unit.endswith("/s"):
            continue
        values = series.values
        bar = Bar(
            f"{called[board.id]}, {series.check}",
            percentile(values, 50),
            min(values),
            max(values),
            f"n {series.count}" if series.count > 1 else "",
        )
        groups.setdefault((series.metric, series.unit), []).append(bar)
    drawn = [
        tag("article", tag("h3", metric), bars(rows, unit))
        for (metric, unit), rows in groups.items()
    ]
    return part("throughput", "Throughput", stacked(*drawn)) if drawn else None


def last_wills(run: RunRecord) -> Html | None:
    """Each will's delay, against its window if it has one."""
    called, rows = names(run), []
    for _, board, series in _series(run):
        if series.metric == "will_delay" and series.unit == "ms":
            earliest = _edge(board, series.check, "will_earliest", min)
            latest = _edge(board, series.check, "will_latest", max)
            name = called[board.id]
            delays = series.values[:_WILLS_PER_LANE]
            latest = series.high if latest is None else latest
            rows.append(Will(name, series.check, delays, earliest, latest, series.outcome))
    if not rows:
        return None
    note = (
        "0 is the end of the connection: the last byte from the board where it died silently. "
        "The mark is the will's arrival; the shaded window is when it had to come."
    )
    return part("wills", "Last wills", tag("p", note, class_="soft"), wills(rows))


def _edge(
    board: BoardRecord, check: str, metric: str, of: Callable[[Sequence[float]], float]
) -> float | None:
    """Return the widest of the windows, if the check was repeated."""
    series = board.series.get((check, metric))
    return of(series.values) if series is not None and series.values else None


def heap(run: RunRecord) -> Html | None:
    """Free heap against the run's seconds."""
    called = names(run)
    points: dict[str, tuple[int, list[tuple[float, float]]]] = {}
    for number, board, series in _series(run):
        if not series.metric.startswith("heap_free") or series.unit not in ("B", "bytes"):
            continue
        drawn = points.setdefault(called[board.id], (number, []))[1]
        kib = [value / 1024 for value in series.values]
        drawn += zip(_seconds(run, board, series), kib, strict=True)
    if not points:
        return None
    curves = [Curve(name, number, sorted(drawn)) for name, (number, drawn) in points.items()]
    return part("heap", "Free heap over time", over_time(curves, "KiB"))


def _seconds(run: RunRecord, board: BoardRecord, series: Series) -> Sequence[float]:
    """Return when values were measured. Those reported at once are spread over their check."""
    times = [(at - run.start_ns) / 1e9 for at in series.at_ns]
    check = board.last().get(series.check)
    if len(times) < 2 or len(set(times)) > 1 or check is None:
        return times
    began = (check.start_ns - run.start_ns) / 1e9
    return [began + (index + 1) / len(times) * check.seconds for index in range(len(times))]


def measurements(run: RunRecord) -> Html | None:
    """All that was measured, in figures, with declared limits."""
    called = names(run)
    rows = []
    for _, board, series in _series(run):
        cells = [amount(percentile(series.values, at), series.unit) for at in (0, 50, 99, 100)]
        limits = [
            f"{sign} {amount(limit, series.unit)}"
            for sign, limit in (("≥", series.low), ("≤", series.high))
            if limit is not None
        ]
        words = called[board.id], series.check, series.metric, str(series.count), *cells
        rows.append(tag("tr", *(tag("td", word) for word in (*words, ", ".join(limits)))))
    if not rows:
        return None
    head = ("board", "check", "metric", "n", "least", "median", "p99", "most", "limit")
    table = tag(
        "table",
        tag("thead", tag("tr", *(tag("th", name) for name in head))),
        tag("tbody", *rows),
    )
    folded = tag("details", tag("summary", f"{len(rows)} rows"), scroll(table))
    return part("measurements", "Everything measured", folded)
