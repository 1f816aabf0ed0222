"""The result as Markdown, so that it can be pasted into the docs, and as JSON values."""

import datetime
import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.broker.report import machine
from benchmarks.client.faults import FAULTS, Noticed
from benchmarks.client.goals import PEERS, Row


def heading(interpreter: str) -> str:
    """Say when, where and on what this was measured."""
    now = datetime.datetime.now(datetime.UTC)
    return f"{now:%Y-%m-%d %H:%M} UTC, {interpreter}, {machine()}"


def table(rows: Sequence[Row]) -> str:
    """Return one line per measure; a ratio is ours/theirs, of several rounds with its range."""
    peers = [peer for peer in PEERS if any(peer in row.theirs for row in rows)]
    head = "| measure | ours |" + "".join(f" {peer} | ratio |" for peer in peers)
    lines = [head + " must | reached |", "|---" * (4 + 2 * len(peers)) + "|"]
    return "\n".join([*lines, *(_line(row, peers) for row in rows)])


def _line(row: Row, peers: Sequence[str]) -> str:
    cells = [row.title, _number(row.figure, row.unit)]
    for peer in peers:
        theirs = row.theirs.get(peer)
        cells.append(_number(statistics.median(theirs), row.unit) if theirs else "")
        cells.append(_ratio(row, peer))
    cells += ["", ""] if row.must is None else [str(row.must), "yes" if row.reached else "**no**"]
    return "| " + " | ".join(cells) + " |"


def _ratio(row: Row, peer: str) -> str:
    ratio = row.ratio(peer)
    if ratio is None:
        return ""
    if len(row.ours) == 1:
        return f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}"
    all_ = [a / b for a, b in zip(row.ours, row.theirs[peer], strict=True)]
    return f"{ratio:.2f} ({min(all_):.2f}–{max(all_):.2f})"  # noqa: RUF001


def _number(value: float, unit: str) -> str:
    text = f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.2g}"
    return f"{text} {unit}".strip()


def faults(found: dict[str, dict[str, Noticed]]) -> str:
    """Return which client noticed what; bold is too late, or never."""
    lines = [
        "| the peer | at most | " + " | ".join(found) + " |",
        "|---" * (2 + len(found)) + "|",
    ]
    for fault in FAULTS:
        cells = [fault.title, f"{fault.within_s:g} s"]
        for name in found:
            noticed = found[name][fault.behaviour]
            cells.append(noticed.text if noticed.in_time else f"**{noticed.text}**")
        lines.append("| " + " | ".join(cells) + " |")
    sums = [sum(each.in_time for each in all_.values()) for all_ in found.values()]
    cells = ["noticed in time", "6 of 6", *(f"{number} of {len(FAULTS)}" for number in sums)]
    return "\n".join([*lines, "| " + " | ".join(cells) + " |"])


def document(
    interpreter: str, rows: Sequence[Row], found: dict[str, dict[str, Noticed]]
) -> dict[str, Any]:
    """Return everything as JSON values."""
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "interpreter": interpreter,
        "machine": machine(),
        "rows": [
            {
                "title": row.title,
                "unit": row.unit,
                "ours": row.ours,
                "theirs": row.theirs,
                "must": None if row.must is None else str(row.must),
                "reached": row.reached,
            }
            for row in rows
        ],
        "faults": {
            name: {behaviour: each.text for behaviour, each in all_.items()}
            for name, all_ in found.items()
        },
    }
