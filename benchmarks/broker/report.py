"""The results as a table (Markdown, so that it can be pasted into the docs) and as JSON."""

import datetime
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.broker.rounds import Result


def table(results: Sequence[Result]) -> str:
    """Return the table: figures are medians, ratios are medians of per-round ratios (range)."""
    lines = [
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, {machine()}",
        disturbances(results),
        "",
        "| workload | broker | M/s | CPU, µs each | ours/theirs | must reach | reached |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        names = [result.ours, *(name for name in result.measured if name != result.ours)]
        lines += [_line(result, name) for name in names]
    return "\n".join(lines)


def _line(result: Result, name: str) -> str:
    cells = [
        result.workload.title if name == result.ours else "",
        name,
        f"{result.rate(name) / 1e6:.3f}",
        f"{result.cpu_us(name):.2f}",
    ]
    if name == result.ours:
        cells += ["", "", ""]
    else:
        ratios = result.ratios(name)
        ratio = statistics.median(ratios)
        must = result.workload.must.get(name)
        cells.append(f"{ratio:.2f} ({min(ratios):.2f}–{max(ratios):.2f})")  # noqa: RUF001
        cells.append("" if must is None else f"{must:g}")
        cells.append("" if must is None else "yes" if ratio >= must else "**no**")
    return "| " + " | ".join(cells) + " |"


def disturbances(results: Sequence[Result]) -> str:
    """Say how many measurements other programs disturbed, after all attempts."""
    all_ = [each for result in results for list_ in result.measured.values() for each in list_]
    return f"{sum(each.disturbed for each in all_)} of {len(all_)} measurements were disturbed."


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
                "measured": {
                    name: [asdict(each) for each in all_] for name, all_ in result.measured.items()
                },
                "must": result.workload.must,
            }
            for result in results
        },
    }
