"""What a person sees of a run: a live table on a terminal, plain lines elsewhere."""

import time
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from boards.rig.percentiles import percentile
from boards.rig.plan import STEPS, Job

_COLORS = {
    "passed": "green",
    "failed": "bold red",
    "error": "bold magenta",
    "quarantined": "yellow",
    "": "dim",
}


@dataclass(slots=True)
class BoardState:
    """What is known of one board."""

    job: Job
    model: str
    virtual: bool
    step: str = ""
    detail: str = ""
    started_s: float = field(default_factory=time.monotonic)
    ended_s: float | None = None
    steps: dict[str, str] = field(default_factory=dict)  # step -> outcome
    checks: dict[str, str] = field(default_factory=dict)
    rtt_us: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    flaky: list[str] = field(default_factory=list)


class Show:
    """Shows the boards while the ``with`` block lasts."""

    def __init__(self, console: Console, boards: dict[str, BoardState], checks: list[str]) -> None:
        self._console = console
        self._boards = boards
        self._checks = checks
        self._live: Live | None = None

    def __enter__(self) -> "Show":
        if self._console.is_terminal:
            self._live = Live(self._progress(), console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._live is not None:
            self._live.update(self._progress(), refresh=True)
            self._live.stop()

    def refresh(self) -> None:
        """Draw the live table again."""
        if self._live is not None:
            self._live.update(self._progress(), refresh=True)

    def line(self, text: str) -> None:
        """Print a line where there is no live table."""
        if self._live is None:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def summary(self) -> None:
        """Print boards x checks with round-trip percentiles, then the failures."""
        # Boards are columns: there are few of them on a desk, and 80 columns on many terminals.
        table = Table(title="boards and checks")
        table.add_column("", no_wrap=True)
        boards = list(self._boards.values())
        for board in boards:
            table.add_column(f"{board.job.board.id}\n{board.job.board.protocol}", no_wrap=True)
        for step in ("flash", "install"):
            table.add_row(step, *(_cell(board.steps.get(step, "")) for board in boards))
        for check in self._checks:
            table.add_row(check, *(_cell(board.checks.get(check, "")) for board in boards))
        for percent in (50, 90, 99):
            table.add_row(
                f"RTT p{percent}", *(_milliseconds(board.rtt_us, percent) for board in boards)
            )
        table.add_row("telemetry", *(_cell(board.steps.get("telemetry", "")) for board in boards))
        self._console.print(table)
        if any(board.virtual for board in boards):
            note = "virtual boards: their times say nothing about hardware"
            self._console.print(note, style="dim")
        for board in self._boards.values():
            for once in board.flaky:
                text = f"{board.job.board.id} FLAKY: {once}"
                self._console.print(text, style="yellow", markup=False, soft_wrap=True)
            for failure in board.failures:
                text = f"{board.job.board.id} {failure}"
                self._console.print(text, style="red", markup=False, soft_wrap=True)
            if board.failures:
                log = f"  logs: {board.job.log_dir}/{board.job.board.id}.serial.log and .worker.log"
                self._console.print(log, markup=False, highlight=False, soft_wrap=True)

    def _progress(self) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for name in ("board", "steps", "now", "checks", "elapsed"):
            table.add_column(name, no_wrap=True)
        for board in self._boards.values():
            dots = Text()
            for step in STEPS:
                outcome = board.steps.get(step)
                dots.append("●" if outcome else "○", style=_COLORS[outcome or ""])
            done = sum(outcome == "passed" for outcome in board.checks.values())
            table.add_row(
                board.job.board.id,
                dots,
                f"{board.step} {board.detail}"[:70],
                f"{done}/{len(board.job.checks)}",
                f"{(board.ended_s or time.monotonic()) - board.started_s:.0f} s",
            )
        return table


def _cell(outcome: str) -> Text:
    return Text({"passed": "ok", "": "-"}.get(outcome, outcome.upper()), style=_COLORS[outcome])


def _milliseconds(values_us: list[float], percent: float) -> str:
    return f"{percentile(values_us, percent) / 1000:.2f} ms" if values_us else "-"
