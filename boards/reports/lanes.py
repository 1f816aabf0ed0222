"""What happened when: the steps and checks of each board as spans of the run's seconds."""

from collections.abc import Iterator
from dataclasses import dataclass

from boards.reports.axes import Scale
from boards.reports.record import BoardRecord, Interval, RunRecord
from boards.session.plan import STEPS as STEPS

_NARROWEST = 0.3  # percent; less could not be seen


@dataclass(frozen=True, slots=True)
class Span:
    """One step or check: its classes, its place in percent, and its story."""

    kind: str
    left: float
    width: float
    title: str


def axis(run: RunRecord) -> Scale:
    """Return the axis of the run's seconds."""
    return Scale(0.0, max(run.seconds, 0.001))


def steps(run: RunRecord, board: BoardRecord) -> list[Span]:
    """Return the steps of a board."""
    return list(_spans(run, [one for one in board.intervals if not one.check]))


def checks(run: RunRecord, board: BoardRecord) -> list[Span]:
    """Return the checks that were run."""
    ran = [one for one in board.intervals if one.check and one.outcome != "skipped"]
    return list(_spans(run, ran))


def _spans(run: RunRecord, intervals: list[Interval]) -> Iterator[Span]:
    scale = axis(run)
    for one in intervals:
        left = scale.place((one.start_ns - run.start_ns) / 1e9)
        width = max(_NARROWEST, scale.place((one.end_ns - run.start_ns) / 1e9) - left)
        kind = "c-check" if one.check else f"s-{one.step}"
        if one.step not in STEPS:
            kind = "s-other"
        if one.outcome in ("failed", "error", "quarantined"):
            kind += f" o-{one.outcome}"
        title = f"{one.tried}: {one.shown_outcome}, {one.seconds:.1f} s"
        yield Span(kind, min(left, 100 - width), width, title)
