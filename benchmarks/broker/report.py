"""The results as tables (Markdown, so that they can be pasted into the docs) and as JSON."""

import datetime
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.broker.peers import BY_NAME
from benchmarks.broker.rounds import Result
from benchmarks.broker.workloads import Goal


def tables(results: Sequence[Result]) -> str:
    """Return rates, processor times and ratios of the workloads, three tables."""
    columns = list(
        dict.fromkeys(BY_NAME[name].column for each in results for name in each.workload.brokers)
    )
    rates = _figures(
        "deliveries, M/s", results, columns, lambda result, name: f"{result.rate(name) / 1e6:.3f}"
    )
    costs = _figures(
        "CPU per delivery, µs", results, columns, lambda result, name: f"{result.cpu_us(name):.4f}"
    )
    ratios = [
        "| workload | ratio | median (range) | at least | reached |",
        "|---|---|---|---|---|",
        *(line for result in results for line in _ratio_lines(result)),
    ]
    head = [
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, {machine()}",
        disturbances(results),
    ]
    return "\n".join([*head, "", *rates, "", *costs, "", *ratios])


def _figures(
    title: str,
    results: Sequence[Result],
    columns: Sequence[str],
    figure: Callable[[Result, str], str],
) -> list[str]:
    """Return a table with a column per broker; a cell is empty where one was not measured.

    The last column says how many of a row's measurements were disturbed.
    """
    lines = [f"| {title} | {' | '.join(columns)} | disturbed |", "|---" * (len(columns) + 2) + "|"]
    for result in results:
        found = {BY_NAME[name].column: figure(result, name) for name in result.measured}
        cells = [found.get(column, "") for column in columns]
        disturbed = " of ".join(map(str, _disturbed([result])))
        lines.append(f"| {result.workload.title} | {' | '.join(cells)} | {disturbed} |")
    return lines


def _ratio_lines(result: Result) -> list[str]:
    lines: list[str] = []
    for goal in result.workload.goals:
        title = "" if lines else result.workload.title
        theirs = f"{goal.theirs:,}/s" if isinstance(goal.theirs, int) else goal.theirs
        lines.append(f"| {title} | {goal.ours} / {theirs} | {verdict(result, goal)} |")
    return lines


def verdict(result: Result, goal: Goal) -> str:
    """Return a goal's last three cells: the median of the rounds' ratios, the least, reached."""
    least = "" if goal.at_least is None else f"{goal.at_least:g}"
    ratios = result.ratios(goal)
    if not ratios:
        return f"not measured | {least} | "
    ratio = statistics.median(ratios)
    reached = ""
    if goal.at_least is not None:
        reached = "yes" if ratio >= goal.at_least else "**no**"
    spread = f"{min(ratios):.2f}–{max(ratios):.2f}"  # noqa: RUF001
    return f"{ratio:.2f} ({spread}) | {least} | {reached}"


def disturbances(results: Sequence[Result]) -> str:
    """Say how many measurements other programs disturbed, after all attempts."""
    disturbed, all_ = _disturbed(results)
    return f"{disturbed} of {all_} measurements were disturbed."


def _disturbed(results: Sequence[Result]) -> tuple[int, int]:
    """Return how many measurements were disturbed, and how many there are."""
    all_ = [each for result in results for list_ in result.measured.values() for each in list_]
    return sum(each.disturbed for each in all_), len(all_)


def machine() -> str:
    """Say what this ran on."""
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, CPython {platform.python_version()}, "
        f"load average {load:.1f}"
    )


def document(results: Sequence[Result], seed: int) -> dict[str, Any]:
    """Return everything as JSON values."""
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "seed": seed,
        "workloads": {
            result.workload.name: {
                "fan_out": result.fan_out,
                "measured": {
                    name: [asdict(each) for each in all_] for name, all_ in result.measured.items()
                },
                "goals": [asdict(goal) for goal in result.workload.goals],
            }
            for result in results
        },
    }
