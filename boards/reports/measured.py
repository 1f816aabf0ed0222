"""What a run measured, as the charts of its page; what there is nothing of is empty or None."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from boards.reports.axes import amount, percentile
from boards.reports.charts import COLORS, Bar, Bars, Curve, Plot, Will, Wills, cdf, over_time
from boards.reports.record import BoardRecord, RunRecord, Series

_FEWEST_FOR_CURVE = 5
_TIMES = ("us", "ms", "s")
_WILLS_PER_LANE = 50
_PING, _BASELINE = ("ping", "rtt", "us"), ("baseline", "baseline_rtt", "us")
_Line = tuple[str, int, Sequence[float], float | None]


@dataclass(frozen=True, slots=True)
class Measured:
    """All of it."""

    times: dict[str, Plot]  # a distribution per check that measured times often enough for one
    rates: dict[str, Bars]  # everything that is measured per second, by metric
    wills: Wills | None
    heap: Plot | None  # KiB that are free against the run's seconds
    figures: list[list[str]]  # rows, with declared limits


def measured(run: RunRecord) -> Measured:
    """Return what ``run`` measured."""
    return Measured(_round_trips(run), _rates(run), _last_wills(run), _heap(run), _figures(run))


def _series(run: RunRecord) -> Iterator[tuple[int, BoardRecord, Series]]:
    for number, board in enumerate(run.boards.values()):
        for series in board.series.values():
            if series.values:
                yield number, board, series


def _round_trips(run: RunRecord) -> dict[str, Plot]:
    charts: dict[tuple[str, str, str], list[_Line]] = {}
    for number, board, series in _series(run):
        if len(series.values) >= _FEWEST_FOR_CURVE and series.unit in _TIMES:
            key = series.check, series.metric, series.unit
            line = (board.called, number, series.values, series.high)
            charts.setdefault(key, []).append(line)
    _lay_under(run, charts)
    return {
        f"{check}: {metric}": cdf(lines, unit) for (check, metric, unit), lines in charts.items()
    }


def _lay_under(run: RunRecord, charts: dict[tuple[str, str, str], list[_Line]]) -> None:
    """Draw the baseline with what is to be compared with it, and no longer by itself."""
    if _PING not in charts or _BASELINE not in charts:
        return
    del charts[_BASELINE]
    for number, board in enumerate(run.boards.values()):
        series = board.series.get(_BASELINE[:2])
        if series is not None and len(series.values) >= _FEWEST_FOR_CURVE:
            name = f"{board.called}, baseline"
            charts[_PING].append((name, number % COLORS + COLORS, series.values, None))


def _rates(run: RunRecord) -> dict[str, Bars]:
    groups: dict[tuple[str, str], list[Bar]] = {}
    for _, board, series in _series(run):
        if series.unit.endswith("/s"):
            bar = Bar(
                f"{board.called}, {series.check}",
                percentile(series.values, 50),
                min(series.values),
                max(series.values),
                f"n {series.count}" if series.count > 1 else "",
            )
            groups.setdefault((series.metric, series.unit), []).append(bar)
    return {metric: Bars(rows, unit) for (metric, unit), rows in groups.items()}


def _last_wills(run: RunRecord) -> Wills | None:
    rows = []
    for _, board, series in _series(run):
        if series.metric == "will_delay" and series.unit == "ms":
            earliest = _edge(board, series.check, "will_earliest", min)
            latest = _edge(board, series.check, "will_latest", max)
            latest = series.high if latest is None else latest
            delays = series.values[:_WILLS_PER_LANE]
            rows.append(Will(board.called, series.check, delays, earliest, latest, series.outcome))
    return Wills(rows) if rows else None


def _edge(
    board: BoardRecord, check: str, metric: str, of: Callable[[Sequence[float]], float]
) -> float | None:
    """Return the widest of the windows, if the check was repeated."""
    series = board.series.get((check, metric))
    return of(series.values) if series is not None and series.values else None


def _heap(run: RunRecord) -> Plot | None:
    points: dict[str, tuple[int, list[tuple[float, float]]]] = {}
    for number, board, series in _series(run):
        if series.metric.startswith("heap_free") and series.unit in ("B", "bytes"):
            drawn = points.setdefault(board.called, (number, []))[1]
            kib = [value / 1024 for value in series.values]
            drawn += zip(_seconds(run, board, series), kib, strict=True)
    curves = [Curve(name, number, sorted(drawn)) for name, (number, drawn) in points.items()]
    return over_time(curves, "KiB") if curves else None


def _seconds(run: RunRecord, board: BoardRecord, series: Series) -> Sequence[float]:
    """Return when values were measured. Those reported at once are spread over their check."""
    times = [(at - run.start_ns) / 1e9 for at in series.at_ns]
    check = board.last().get(series.check)
    if len(times) < 2 or len(set(times)) > 1 or check is None:
        return times
    began = (check.start_ns - run.start_ns) / 1e9
    return [began + (index + 1) / len(times) * check.seconds for index in range(len(times))]


def _figures(run: RunRecord) -> list[list[str]]:
    rows = []
    for _, board, series in _series(run):
        cells = [amount(percentile(series.values, at), series.unit) for at in (0, 50, 99, 100)]
        limits = [
            f"{sign} {amount(limit, series.unit)}"
            for sign, limit in (("≥", series.low), ("≤", series.high))
            if limit is not None
        ]
        words = board.called, series.check, series.metric, str(series.count)
        rows.append([*words, *cells, ", ".join(limits)])
    return rows
