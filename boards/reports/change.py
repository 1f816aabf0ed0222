"""Compare a run with those before it: median and MAD, and what stands out.

A flag is a question, never a verdict: one run beyond the usual range happens, several in a row
are called a change. Too few former runs flag nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from boards.reports.axes import percentile
from boards.reports.record import BoardRecord, RunRecord

FEWEST = 5  # former runs, before anything is flagged
_MADS = 4.0  # in units of a standard deviation; one in 16 000 normal values is beyond
_TO_SIGMA = 1.4826
_LEAST_SHARE = 0.1  # of the median: less is no news, however steady the former runs were
_TAIL_COUNT = 50  # values, before their p99 is compared

Key = tuple[str, str, str, str, str, bool]  # board, check, metric, statistic, model, virtual


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of this run and of those before it."""

    board: str
    check: str
    metric: str
    statistic: str  # "p50" or "p99", or "" for a duration
    unit: str
    value: float
    former: tuple[float, ...]
    beyond: int  # how many runs in a row, this one included, are outside of the usual range

    @property
    def center(self) -> float | None:
        """The median of the former runs."""
        return median(self.former) if self.former else None

    @property
    def spread(self) -> float | None:
        """The MAD of the former runs; None if fewer than two."""
        return _mad(self.former) if len(self.former) > 1 else None

    @property
    def share(self) -> float | None:
        """By how much this run differs from the median, as a share of it."""
        return None if not self.center else self.value / self.center - 1


def compare(run: RunRecord, former: Sequence[RunRecord]) -> list[Comparison]:
    """Compare all figures of ``run`` with ``former``, oldest first; what stands out comes first."""
    tables = [dict(_figures(one)) for one in former]
    compared = []
    for key, (value, unit) in _figures(run):
        before = [table[key][0] for table in tables if key in table and table[key][1] == unit]
        board, check, metric, statistic = key[:4]
        streak = _beyond([*before, value])
        words = board, check, metric, statistic, unit
        compared.append(Comparison(*words, value, tuple(before), streak))
    return sorted(compared, key=lambda one: not one.beyond)


def _figures(run: RunRecord) -> Iterator[tuple[Key, tuple[float, str]]]:
    for board in run.boards.values():
        for interval in board.last().values():
            if interval.outcome == "passed":
                key = _key(board, interval.name, "duration", "")
                yield key, (interval.seconds, "s")
        for series in board.series.values():
            if not series.values or series.outcome not in ("passed", ""):
                continue
            key = _key(board, series.check, series.metric, "p50")
            yield key, (median(series.values), series.unit)
            if len(series.values) >= _TAIL_COUNT:
                key = _key(board, series.check, series.metric, "p99")
                yield key, (percentile(series.values, 99), series.unit)


def _key(board: BoardRecord, check: str, metric: str, statistic: str) -> Key:
    # A board that was replaced by another model, or a virtual one, is not the same board.
    return board.id, check, metric, statistic, board.model, board.virtual


def _beyond(values: Sequence[float]) -> int:
    """Return how many of the last values, in a row, are outside of the range of those before."""
    longest = 0
    for count in range(1, len(values) - FEWEST + 1):
        before, last = values[:-count], values[-count:]
        center = median(before)
        margin = max(_MADS * _TO_SIGMA * _mad(before), _LEAST_SHARE * abs(center))
        above = all(value > center + margin for value in last)
        if above or all(value < center - margin for value in last):
            longest = count
    return longest


def _mad(values: Sequence[float]) -> float:
    center = median(values)
    return median(abs(value - center) for value in values)
