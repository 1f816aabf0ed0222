"""What a person sees while a run lasts: a table with the time that is left, or plain lines."""

import time
from collections.abc import Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from boards.reports.axes import amount, percentile
from boards.reports.board_state import BoardState
from boards.session.plan import STEPS
from host_broker.printable import printable, printable_lines

# Where no former run tells: only the relation counts, for the bar.
_GUESSES_S = {"start": 2.0, "flash": 15.0, "install": 8.0, "telemetry": 10.0, "stop": 1.0}
_CHECK_S = 3.0
_ALMOST = 0.95  # a step that takes longer than usual is almost done, never done


class TimeEstimate:
    """Made of how many seconds each step and check of each board, (id, name), usually takes."""

    def __init__(self, usual_s: Mapping[tuple[str, str], float]) -> None:
        self._usual_s = usual_s

    def fraction(self, board: BoardState) -> float:
        """Return which share of its work a board has done, 0 to 1."""
        if board.outcome:
            return 1.0
        done = sum(self._expected(board, name) for name in self._all(board))
        total, remaining = done, board.remaining()
        for number, name in enumerate(remaining):
            expected = self._expected(board, name)
            done -= expected
            if number == 0:
                done += min(time.monotonic() - board.since_s, _ALMOST * expected)
        return max(0.0, done / total) if total else 0.0

    def left_s(self, board: BoardState) -> float | None:
        """Return the seconds that a board still needs; None where no former run tells."""
        remaining = [self._usual_s.get((board.id, name)) for name in board.remaining()]
        if board.outcome or not remaining or None in remaining:
            return None
        now, *later = [seconds for seconds in remaining if seconds is not None]
        return max(0.0, now - (time.monotonic() - board.since_s)) + sum(later)

    def _all(self, board: BoardState) -> list[str]:
        return [*(step for step in STEPS if step != "check"), *(board.job.checks or ["check"])]

    def _expected(self, board: BoardState, name: str) -> float:
        guess = _GUESSES_S.get(name, _CHECK_S)
        return max(0.01, self._usual_s.get((board.id, name), guess))


STYLES = {
    "passed": "green",
    "failed": "bold red",
    "error": "bold magenta",
    "invalid": "bold magenta",
    "quarantined": "yellow",
    "running": "cyan",
    "not run": "dim",
    "absent": "dim",
    "skipped": "dim",
}
_DRAW_EVERY_S = 0.1  # a board that babbles must not keep us drawing
_WIDE = 100  # columns, from which nothing has to be left out


class LiveTable:
    """Shows the boards while the ``with`` block lasts.

    On a terminal that cannot be drawn upon (TERM=dumb), and where there is none, plain lines.
    """

    def __init__(self, console: Console, boards: Sequence[BoardState], pace: TimeEstimate) -> None:
        self._console = console
        self._boards = boards
        self._pace = pace
        self._live: Live | None = None
        self._last = ""
        self._drawn_s = 0.0

    def __enter__(self) -> "LiveTable":
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(self._drawing(), console=self._console, auto_refresh=False)
            self._live.start(refresh=True)
        return self

    def __exit__(self, *_error: object) -> None:
        if self._live is not None:
            self._live.update(self._drawing(), refresh=True)
            self._live.stop()

    def refresh(self) -> None:
        """Draw the live table again, unless that was just now."""
        now = time.monotonic()
        if self._live is not None and now - self._drawn_s >= _DRAW_EVERY_S:
            self._drawn_s = now
            self._live.update(self._drawing(), refresh=True)

    def line(self, text: str) -> None:
        """Show what has just happened: as the last event below the table, or as a line."""
        if not text.endswith("…"):  # what begins is in the table
            self._last = text
        if self._live is None:
            shown = printable_lines(text)
            self._console.print(shown, markup=False, highlight=False, soft_wrap=True)

    def _drawing(self) -> RenderableType:
        last = Text(printable(self._last), style="dim", no_wrap=True, overflow="ellipsis")
        parts: list[RenderableType] = [self._table(), last]
        if not self._is_wide() and any(board.virtual for board in self._boards):
            ids = ", ".join(board.id for board in self._boards if board.virtual)
            parts.insert(1, Text(f"virtual: {ids}", no_wrap=True, overflow="ellipsis"))
        return Group(*parts)

    def _table(self) -> Table:
        wide = self._is_wide()
        table = Table(box=None, padding=(0, 2 if wide else 1, 0, 0), expand=True)
        rtt = "RTT p50/p99" if wide else "RTT p50"
        for name in ("board", "state", "step", "", "checks", rtt, "retries", "time +left"):
            right = name in ("checks", "retries")
            ratio = 1 if name == "step" else None  # it gives way where there is little room
            table.add_column(name, no_wrap=True, justify="right" if right else "left", ratio=ratio)
        for board in self._fitting():
            table.add_row(
                board.called if wide else board.id,
                Text(board.state, style=STYLES.get(board.state, "")),
                Text(printable(self._step(board)), overflow="ellipsis"),
                self._bar(board, 12 if wide else 8),
                self._checks(board),
                _round_trip(board.rtt_us, (50, 99) if wide else (50,)),
                str(board.retries or "-"),
                self._time(board),
            )
        return table

    def _is_wide(self) -> bool:
        return self._console.width >= _WIDE

    def _bar(self, board: BoardState, width: int) -> ProgressBar:
        return ProgressBar(
            total=1.0,
            completed=self._pace.fraction(board),
            width=width,
            complete_style=STYLES["running"],
            finished_style=STYLES.get(board.state, ""),
        )

    def _fitting(self) -> Sequence[BoardState]:
        """Where the screen is too low for all, those that are done go below its edge."""
        if len(self._boards) + 3 <= self._console.height:
            return self._boards
        return sorted(self._boards, key=lambda board: bool(board.outcome))

    def _step(self, board: BoardState) -> str:
        words = board.check or board.step
        return f"{words}: {board.detail}" if board.detail else words

    def _checks(self, board: BoardState) -> Text:
        ended = [board.checks[name] for name in board.job.checks if name in board.checks]
        style = STYLES["failed"] if set(ended) - {"passed", "skipped"} else ""
        return Text(f"{len(ended)}/{len(board.job.checks)}", style=style)

    def _time(self, board: BoardState) -> str:
        left = self._pace.left_s(board)
        return _clock(board.elapsed_s) + (f" +{_clock(left)}" if left is not None else "")


def _round_trip(values_us: Sequence[float], percents: Sequence[int]) -> str:
    if not values_us:
        return "-"
    return "/".join(amount(percentile(values_us, percent), "us") for percent in percents)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
