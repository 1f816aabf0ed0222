"""The results as a table (Markdown, so that it can be pasted into the docs) and as JSON."""

import datetime
import os
import platform
from collections.abc import Sequence
from typing import Any

from benchmarks.broker.rounds import Result


def table(results: Sequence[Result]) -> str:
    """Return the table: rates are medians, ratios are medians of per-round ratios (range)."""
    lines = [
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, {machine()}",
        "",
        "| workload | ours, M/s | to | M/s | ours/theirs | must reach | reached |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        for name in result.rates:
            if name != result.ours:
                lines.append(_line(result, name))  # noqa: PERF401
    return "\n".join(lines)


def _line(result: Result, name: str) -> str:
    ratios = sorted(result.ratios(name))
    ratio = ratios[len(ratios) // 2]
    must = result.workload.must.get(name)
    cells = [
        result.workload.title,
        f"{result.median(result.ours) / 1e6:.3f}",
        name,
        f"{result.median(name) / 1e6:.3f}",
        f"{ratio:.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})",  # noqa: RUF001
        "" if must is None else f"{must:g}",
        "" if must is None else _verdict(result, ratio >= must),
    ]
    return "| " + " | ".join(cells) + " |"


def _verdict(result: Result, reached: bool) -> str:
    # How `singles` waits changes its rates, and their order, more than the brokers do
    # (docs/benchmarks.md): until that is mended its ratios decide nothing.
    if result.workload.kind == "singles":
        return "unsettled"
    return "yes" if reached else "**no**"


def machine() -> str:
    """Say what this ran on."""
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, CPython {platform.python_version()}, "
        f"load average {load:.1f}"
    )


def document(results: Sequence[Result]) -> dict[str, Any]:
    """Return everything as JSON values."""
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "workloads": {
            result.workload.name: {
                "ours": result.ours,
                "deliveries_per_second": result.rates,
                "must": result.workload.must,
            }
            for result in results
        },
    }
