"""``python -m benchmarks dashboard``."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from benchmarks.broker.report import machine
from benchmarks.dashboard.browser import viewer
from benchmarks.dashboard.traffic import Stopwatch
from benchmarks.faults.processes import Broker, Failed, line

_MOST_OF_A_CORE = 0.5
_MOST_RATIO = 2.0
_START_S = 60.0
_VIEWS = ("overview", "topics", "topics/load%2F0%2F7%2Freading", "boards")


@dataclass
class _Window:
    """What was measured with one view, in several windows."""

    name: str
    page: list[float] = field(default_factory=list)  # cores
    browser: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    ratio: list[float] = field(default_factory=list)  # to the p99 of the quiet just before


@click.command()
@click.option("--topics", default=1000, show_default=True, type=click.IntRange(10, 100_000))
@click.option("--rate", default=10.0, show_default=True, type=click.FloatRange(0.1, 1000.0))
@click.option("--seconds", default=8.0, show_default=True, type=click.FloatRange(1.0, 600.0))
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 100))
@click.option(
    "--nice",
    default=19,
    show_default=True,
    type=click.IntRange(0, 19),
    help="Of the browser, which else runs on another machine than the broker.",
)
@click.option(
    "--first/--no-first",
    default=False,
    show_default=True,
    help="Have the broker and who measures come before the browser, by real-time priority: as if "
    "who looks had a machine of their own. Needs root.",
)
def command(topics: int, rate: float, seconds: float, rounds: int, nice: int, first: bool) -> None:
    """Measure what the dashboard's page costs while TOPICS topics change RATE times a second.

    In each round nothing is shown for --seconds and then a view for as long, one view after the
    other. Each p99 is compared with that of the quiet before it; medians are printed.

    Exit codes: 0 measured, 1 a browser or the broker did not do its part, 2 wrong usage.
    """
    click.echo(machine())
    if first:
        _come_first()
    try:
        with tempfile.TemporaryDirectory(
            prefix="motemq-bench-", ignore_cleanup_errors=True
        ) as name:
            _report(_measured(Path(name), topics, rate, seconds, rounds, nice), topics, rate)
    except Failed as error:
        click.echo(f"dashboard benchmark: {error}", err=True)
        raise SystemExit(1) from None


def _come_first() -> None:
    """Have this process, and those that it starts, come before others that want the processor."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        click.echo("without root the browser may delay those who are measured")


def _measured(
    folder: Path, topics: int, rate: float, seconds: float, rounds: int, nice: int
) -> list[_Window]:
    quiet = _Window("no page")
    windows = [_Window(view) for view in _VIEWS]
    broker = Broker(folder / "data")
    argv = [sys.executable, "-m", "benchmarks.dashboard.traffic"]
    load = subprocess.Popen(
        [*argv, str(broker.port), str(topics), str(rate)], stdout=subprocess.PIPE, bufsize=0
    )
    try:
        line(load, b"", _START_S)
        stopwatch = Stopwatch(broker.port)
        with viewer(folder, nice) as (shown, processes):
            origin = f"http://127.0.0.1:{broker.port}/"
            for _ in range(rounds):
                for window in windows:
                    shown.show_nothing()
                    stopwatch.measure(1.0)  # what came meanwhile
                    quiet.p99_ms.append(_p99(stopwatch.measure(seconds)))
                    shown.show(f"{origin}#/{window.name}")
                    stopwatch.measure(1.0)  # and until all that is retained is there
                    began, before = time.monotonic(), processes.used_s()
                    window.p99_ms.append(_p99(stopwatch.measure(seconds)))
                    window.ratio.append(window.p99_ms[-1] / quiet.p99_ms[-1])
                    took, after = time.monotonic() - began, processes.used_s()
                    window.page.append((after[0] - before[0]) / took)
                    window.browser.append((after[1] - before[1]) / took)
        stopwatch.close()
    finally:
        load.kill()
        load.communicate()
        broker.end()
    return [quiet, *windows]


def _p99(took: Sequence[float]) -> float:
    return sorted(took)[int(len(took) * 0.99)]


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _report(windows: Sequence[_Window], topics: int, rate: float) -> None:
    quiet, *views = windows
    usual = _median(quiet.p99_ms)
    click.echo(f"\n{topics} topics, each {rate:g} times a second; others' p99 without a page: ")
    click.echo(f"{usual:.2f} ms ({min(quiet.p99_ms):.2f} to {max(quiet.p99_ms):.2f})\n")
    click.echo("| view | page, cores | whole browser, cores | others' p99, ms | to quiet |")
    click.echo("|---|---|---|---|---|")
    for each in views:
        click.echo(
            f"| {each.name} | {_median(each.page):.3f} | {_median(each.browser):.3f} | "
            f"{_median(each.p99_ms):.2f} | {_median(each.ratio):.2f} "
            f"({min(each.ratio):.2f} to {max(each.ratio):.2f}) |"
        )
    worst = max(_median(each.page) for each in views)
    ratio = max(_median(each.ratio) for each in views)
    for text, reached in (
        (f"page {worst:.2f} of a core, under {_MOST_OF_A_CORE:g}", worst < _MOST_OF_A_CORE),
        (f"others' p99 {ratio:.2f} x quiet, under {_MOST_RATIO:g}", ratio < _MOST_RATIO),
    ):
        click.echo(f"- {text}: {'' if reached else 'not '}reached")
