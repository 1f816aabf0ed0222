"""A run as a Markdown matrix, boards by steps and checks, for GitHub's step summary."""

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

_MARKS = {"passed": "✅", "failed": "❌", "error": "⚠️", "quarantined": "🟡", "": "·"}
_SUMMED = ("start", "stop", "check")  # rows of their own say nothing if all went well


def markdown(rows: Sequence[Row]) -> str:
    """Return the matrix and, below it, every failure with its reason."""
    boards = sorted({row["board_id"] for row in rows if row["board_id"]})
    cells: dict[str, dict[str, str]] = {}
    reasons = []
    virtual = {row["board_id"]: row["virtual"] for row in rows}
    for row in rows:
        if row["event"] not in ("step_finished", "check_finished"):
            continue
        name = row["check"] or row["step"]
        mark = _MARKS.get(str(row["outcome"]), "?")
        if row["outcome"] == "passed" and row["attempt"] > 1:
            mark = "✅ flaky"
        cells.setdefault(name, {})[row["board_id"]] = mark
        if row["outcome"] not in ("passed", ""):
            reasons.append(
                f"- **{row['board_id']}** {name} {row['outcome']}: {_line(row['message'])}"
            )
    ended = [row["outcome"] for row in rows if row["event"] == "run_finished"]
    title = f"### Rig {rows[0]['rig']}: {ended[0] if ended else 'aborted'}" if rows else "### Rig"
    names = [f"{board} (virtual)" if virtual[board] else board for board in boards]
    lines = [title, "", f"| | {' | '.join(names)} |", "|---" * (len(boards) + 1) + "|"]
    for name, marks in cells.items():
        if name in _SUMMED and set(marks.values()) == {_MARKS["passed"]}:
            continue
        lines.append(f"| {name} | {' | '.join(marks.get(board, '·') for board in boards)} |")
    return "\n".join([*lines, "", *reasons]).rstrip() + "\n"


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")[:500]
