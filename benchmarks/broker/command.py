"""``python -m benchmarks broker``."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import click

from benchmarks.broker import mixture, report, steady
from benchmarks.broker.effort import QUICK, WHOLE
from benchmarks.broker.peers import BY_NAME, PeerFailed, installed
from benchmarks.broker.rounds import Result, measure
from benchmarks.broker.workloads import WORKLOADS

_NAMES = [*(workload.name for workload in WORKLOADS), *steady.MEASURES]


@click.command()
@click.argument("names", nargs=-1, metavar="[ROW]...", type=click.Choice(_NAMES))
@click.option(
    "--rounds",
    type=click.IntRange(1, 50),
    help=f"Measurements of each broker.  [default: {WHOLE.rounds}, with --quick {QUICK.rounds}]",
)
@click.option(
    "--duration",
    "duration_s",
    # After two seconds nats-server has more to say than deliveries.
    type=click.FloatRange(0.05, 1.5),
    help="Seconds of publishing per throughput measurement.  "
    f"[default: {WHOLE.duration_s:g}, with --quick {QUICK.duration_s:g}]",
)
@click.option("--quick", is_flag=True, help="All rows in less than five minutes, less exact.")
@click.option(
    "--seed",
    default=mixture.DEFAULT_SEED,
    show_default=True,
    help="Of the mixed rows: other topics, payloads and lengths.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write every figure to this file too.",
)
@click.option("--ours-only", is_flag=True, help="Leave mosquitto and nats-server out.")
@click.option("--list", "listed", is_flag=True, help="List the rows and measure nothing.")
def command(
    names: tuple[str, ...],
    rounds: int | None,
    duration_s: float | None,
    quick: bool,
    seed: int,
    json_file: Path | None,
    ours_only: bool,
    listed: bool,
) -> None:
    """Measure our broker, mosquitto, nats-server and a byte relay in turn; print the ratios.

    Without a ROW all are measured but those that are for requests only (--list). Every delivery is
    waited for: a broker that loses one fails its row.

    Exit codes: 0 measured (reached or not), 1 a broker failed in a row, 2 wrong usage, 3 no other
    broker is installed: a figure without a peer says nothing.
    """
    if listed:
        click.echo("\n".join(_listing()))
        return
    others = [peer for peer in BY_NAME.values() if peer.package]
    missing = [peer for peer in others if not installed(peer)]
    for peer in missing:
        click.echo(f"not measured: {peer.name} (apt-get install {peer.package})", err=True)
    if not ours_only and missing == others:
        raise SystemExit(3)
    left_out = [peer.name for peer in (others if ours_only else missing)]
    effort = QUICK if quick else WHOLE
    effort = dataclasses.replace(
        effort, rounds=rounds or effort.rounds, duration_s=duration_s or effort.duration_s
    )
    failed: list[str] = []
    results: list[Result] = []
    for workload in WORKLOADS:
        if workload.name in names if names else not workload.on_request:
            with _recorded(workload.name, failed):
                results.append(measure(workload, left_out, seed, effort, _tell))
    document = report.document(results, seed)
    if results:
        click.echo(report.tables(results))
    for name in steady.MEASURES:
        if not names or name in names:
            with _recorded(name, failed):
                table = steady.measure(name, left_out, seed, effort, document, _tell)
                click.echo(f"\n{table}")
    document["failed"] = failed
    if json_file is not None:
        json_file.write_text(json.dumps(document, indent=1) + "\n")
    for line in failed:
        click.echo(f"failed: {line}")
    if failed:
        raise SystemExit(1)


@contextlib.contextmanager
def _recorded(name: str, failed: list[str]) -> Iterator[None]:
    """Add a broker's failure in a row to ``failed``; the other rows go on."""
    try:
        yield
    except PeerFailed as failure:
        failed.append(f"{name}: {failure}")
        _tell(f"broker benchmark: {failed[-1]}")


def _listing() -> Iterator[str]:
    width = max(len(name) for name in _NAMES)
    for workload in WORKLOADS:
        note = " (on request only)" if workload.on_request else ""
        yield f"{workload.name:{width}}  {workload.title}{note}"
    yield from steady.MEASURES


def _tell(line: str) -> None:
    click.echo(line, err=True)
