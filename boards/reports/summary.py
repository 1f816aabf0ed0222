"""What a person reads when a run is over: boards by checks, and what to do about failures."""

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from boards.reports.axes import amount, percentile
from boards.reports.board_state import BoardState
from boards.reports.live_table import STYLES
from boards.reports.record import by_reason
from boards.session.plan import STEPS
from host_broker.printable import printable, printable_lines

_SIDE = 3  # characters that the frame adds to a column


def print_summary(
    console: Console, boards: Sequence[BoardState], checks: Sequence[str], argv: Sequence[str]
) -> None:
    """Print the matrix, its failures with their reasons, and how to run those again.

    ``argv`` is the command line of the run.
    """
    # Boards are columns, as many as fit: there are few of them on a desk, and many checks.
    first = max([len("telemetry"), *map(len, checks)]) + _SIDE
    widest = max((_width(board, checks) for board in boards), default=0) + _SIDE
    count = max(1, (console.width - first - 1) // widest)
    for start in range(0, len(boards), count):
        console.print(_matrix(boards[start : start + count], checks))
    if any(board.virtual for board in boards):
        note = "virtual boards: their times say nothing about hardware"
        console.print(note, style="dim", highlight=False)
    for board in boards:
        for style, line in _lines(board):
            line = printable_lines(line)
            console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)
    if failed := [board for board in boards if board.failures]:
        line = printable(f"again: {_again(failed, argv)}")
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _matrix(boards: Sequence[BoardState], checks: Sequence[str]) -> Table:
    table = Table(title="boards and checks")
    table.add_column("", no_wrap=True)
    for board in boards:
        table.add_column(_heading(board), no_wrap=True)
    for step in STEPS:
        if step == "check":
            for check in checks:
                table.add_row(
                    Text(printable(check)), *(_check_cell(board, check) for board in boards)
                )
        elif step not in ("start", "stop") or any(_is_told(b.steps.get(step)) for b in boards):
            table.add_row(step, *(_cell(board.steps.get(step, "")) for board in boards))
    if any(board.rtt_us for board in boards):
        for percent in (50, 90, 99):
            table.add_row(f"RTT p{percent}", *(_rtt(board, percent) for board in boards))
    return table


def _heading(board: BoardState) -> str:
    kind = "virtual, " if board.virtual else ""
    return f"{board.id}\n{kind}{board.job.board.protocol}"


def _width(board: BoardState, checks: Sequence[str]) -> int:
    cells = [len(_check_cell(board, check)) for check in checks]
    return max([len("NOT RUN"), *map(len, _heading(board).splitlines()), *cells])


def _check_cell(board: BoardState, check: str) -> Text:
    cell = _cell(board.checks.get(check, ""))
    if figure := board.figures.get(check):
        cell.append(f" {printable(figure)}", style="dim")
    return cell


def _cell(outcome: str) -> Text:
    word = {"passed": "ok", "": "-", "skipped": "not run"}.get(outcome, outcome.upper())
    return Text(word, style=STYLES.get(outcome, "dim"))


def _rtt(board: BoardState, percent: float) -> str:
    return amount(percentile(board.rtt_us, percent), "us") if board.rtt_us else "-"


def _is_bad(outcome: str | None) -> bool:
    return outcome not in (None, "", "passed", "not run", "absent", "skipped")


def _is_told(outcome: str | None) -> bool:
    return _is_bad(outcome) or outcome == "absent"


def _lines(board: BoardState) -> Iterator[tuple[str, str]]:
    if board.absent:
        yield "", f"{board.id} is absent, and need not be there: {board.absent}"
    for why, names in by_reason(board.skipped.items()):
        yield "dim", f"{board.id} did not run {', '.join(names)}: {why}"
    for several in board.repeated:
        yield "", f"{board.id} {several}"
    for once in board.flaky:
        yield "yellow", f"{board.id} FLAKY: {once}"
    bad_checks = _bad(board.checks)
    for failure in board.failures:
        # The step is only the sum of its checks, unless none of them failed.
        if not (bad_checks and failure.startswith(("check failed:", "check error:"))):
            yield "red", f"{board.id} {failure}"
    if board.failures:
        yield "", f"  logs: {board.job.log_dir}/{board.id}.serial.log and .worker.log"


def _again(boards: Sequence[BoardState], argv: Sequence[str]) -> str:
    """Return the command for what failed; with failed steps, whatever was chosen is run again."""
    steps = {step for board in boards for step in _bad(board.steps)}
    checks = list(dict.fromkeys(check for board in boards for check in _bad(board.checks)))
    if any(board.job.check_files for board in boards):
        checks = []  # a file is chosen as a whole
    on_desk = [board.id for board in boards if board.job.board.file]
    return rerun_command(argv, on_desk, checks if steps <= {"check"} else [])


def _bad(outcomes: Mapping[str, str]) -> list[str]:
    return [name for name, outcome in outcomes.items() if _is_bad(outcome)]


def rerun_command(argv: Sequence[str], boards: Sequence[str], checks: Sequence[str]) -> str:
    """Return the command line ``argv`` for ``boards`` of the desk and for ``checks`` only.

    No ``checks`` leaves the choice of ``argv``; no ``boards`` too: virtual boards that a run starts
    itself are started again as they were, as their ids and protocols come from their order.
    """
    dropped = ["--junit"]  # else the results of everything would be written over
    dropped += ["--checks"] if checks else []
    dropped += ["--board", "-b", "--cap"] if boards else []
    words = [*_program(argv[0]), *_without(argv[1:], dropped)]
    for board in boards:
        words += ["--board", board]
    if checks:
        words += ["--checks", ",".join(checks)]
    return shlex.join(words)


def _program(word: str) -> list[str]:
    if Path(word).name != "__main__.py":
        return [word]
    return [sys.executable, "-m", Path(word).parent.name]


def _without(words: Sequence[str], dropped: Sequence[str]) -> list[str]:
    """Leave options out with their values: ``--name value``, ``--name=value``, ``-nvalue``."""
    joined = tuple(f"{name}=" if name.startswith("--") else name for name in dropped)
    kept, skip = [], False
    for word in words:
        if not skip and word not in dropped and not word.startswith(joined):
            kept.append(word)
        skip = not skip and word in dropped
    return kept
