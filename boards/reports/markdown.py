"""A run as a Markdown matrix, boards by steps and checks, for GitHub's step summary."""

import re

from boards.reports.axes import amount, percentile
from boards.reports.record import BoardRecord, RunRecord
from host_broker.printable import printable_lines

_MARKS = {
    "passed": "✅",
    "flaky": "✅ flaky",
    "failed": "❌",
    "error": "⚠️",
    "invalid": "⚠️ invalid",
    "quarantined": "🟡",
    "not run": "·",
    "absent": "absent",
    "skipped": "not run",
    "unfinished": "⚠️ unfinished",
}
_SUMMED = ("start", "stop", "check")  # rows of their own say nothing if all went well
_MOST_REASONS = 200  # GitHub takes a summary of at most 1 MiB
_REASON_CHARACTERS = 500


def markdown(run: RunRecord) -> str:
    """Return the matrix and, below it, every failure, and what was not run, with its reason."""
    boards = list(run.boards.values())
    heads = [_plain(board.called) for board in boards]
    lines = [
        f"### Rig {_plain(run.rig)}: {_plain(run.outcome)}",
        "",
        f"| | {' | '.join(heads)} |",
        "|---" * (len(boards) + 1) + "|",
    ]
    for name in run.names():
        cells = [_cell(board, name) for board in boards]
        if name not in _SUMMED or not set(cells) <= {_MARKS["passed"], "·"}:
            lines.append(f"| {_plain(name)} | {' | '.join(cells)} |")
    if run.is_virtual:
        lines += ["", "Virtual boards: their times say nothing about hardware."]
    reasons = [
        f"- **{_plain(board.called)}** {_plain(f'{one.tried} {one.shown_outcome}')}: "
        f"{_code(one.message)}"
        for board in boards
        for one in board.failures()
    ]
    reasons += [
        f"- {_plain(board.called)} did not run {_plain(', '.join(names))}: {_code(why)}"
        for board in boards
        for why, names in board.not_run()
    ]
    if len(reasons) > _MOST_REASONS:
        reasons[_MOST_REASONS:] = [f"- … and {len(reasons) - _MOST_REASONS} more"]
    about = [f"Run {_code(run.run_id)}"]
    if commit := run.environment.get("git"):
        about.append(f"git {_code(commit)}")
    return "\n".join([*lines, "", *reasons, *([""] if reasons else []), ", ".join(about)]) + "\n"


def _cell(board: BoardRecord, name: str) -> str:
    last = board.last().get(name)
    if last is None:
        return "·"
    mark = _MARKS.get(last.shown_outcome, "⚠️")
    figure = board.figure(name)
    return f"{mark} {amount(percentile(figure.values, 50), figure.unit)}" if figure else mark


def _plain(text: str) -> str:
    """Return text that is no Markdown and no HTML, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&@])", r"\\\1", printable_lines(" ".join(text.split())))


def _code(text: str) -> str:
    """Return text as code, in which nothing is Markdown, HTML or a mention of somebody."""
    line = printable_lines(" ".join(text.split()))[:_REASON_CHARACTERS] or "no reason was given"
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    return f"{fence} {line} {fence}" if len(fence) > 1 else f"{fence}{line}{fence}"
