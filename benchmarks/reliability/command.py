"""``python -m benchmarks reliability``."""

import datetime
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.broker.peers import PeerFailed
from benchmarks.broker.report import machine
from benchmarks.reliability import acknowledged, faults, page
from benchmarks.reliability.kills import Outcome, campaign
from benchmarks.reliability.power_loss import Disk

_NAMES = ("cost", "faults", "kills", "power")
_KILLS, _LOSSES = 200, 50
_ROUNDS, _ROUND_S = 5, 1.0
_SHORT_KILLS, _SHORT_ROUND_S, _SHORT_SCALE = 3, 0.3, 0.02
_START_S = 2.0
_OF_MEMORY = 0.9  # ``written``, of the publications per second of ``memory``


@click.command()
@click.argument("names", nargs=-1, metavar="[MEASURE]...", type=click.Choice(_NAMES))
@click.option("--short", is_flag=True, help="Little of everything: whether it works, no figures.")
@click.option("--kills", type=click.IntRange(1), help=f"How many.  [default: {_KILLS}]")
@click.option("--losses", type=click.IntRange(1), help=f"Of power.  [default: {_LOSSES}]")
@click.option("--seed", type=int, help="Of the moments.  [default: another every time]")
@click.option("--write", is_flag=True, help="Put the tables into docs/reliability.md.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Where brokers keep their data meanwhile.  [default: the system's]",
)
def command(
    names: tuple[str, ...],
    short: bool,
    kills: int | None,
    losses: int | None,
    seed: int | None,
    write: bool,
    folder: Path | None,
) -> None:
    """Show that answers keep their word, and what that costs.

    Without a MEASURE all are taken: cost, publications acknowledged per second at each level of
    journal.ack; faults, crowds, a long request and a start after a kill; kills, --kills of them
    with SIGKILL under mixed load; and power, --losses of power at journal.ack=synced, on a disk
    that keeps what was synced. All of it takes some 15 minutes.

    Exit codes: 0 every promise was kept (figures may fall short, the tables say so), 1 one was not
    or a broker failed, 2 wrong usage.
    """
    seed = int(time.time()) if seed is None else seed
    click.echo(f"seed {seed}", err=True)
    kept = True
    for name in names or _NAMES:
        with tempfile.TemporaryDirectory(prefix="motemq-reliability-", dir=folder) as place:
            try:
                if name == "cost":
                    lines = _cost(short)
                elif name == "faults":
                    lines = _faults(Path(place), short)
                else:
                    count = (losses or _LOSSES) if name == "power" else (kills or _KILLS)
                    count = _SHORT_KILLS if short else count
                    outcome = _campaign(name, Path(place), count, seed)
                    kept &= outcome.exact
                    lines = _outcome(outcome)
            except (RuntimeError, PeerFailed) as error:
                click.echo(f"reliability: {name}: {error}", err=True)
                raise SystemExit(1) from None
        when = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {machine()}"
        table = "\n".join([when, "", *lines])
        click.echo(f"\n{name}: {table}\n")
        if write:
            page.PAGE.write_text(page.replaced(page.PAGE.read_text(), name, table))
    raise SystemExit(0 if kept else 1)


def _cost(short: bool) -> list[str]:
    rows = acknowledged.ROWS
    rounds, duration_s = (1, _SHORT_ROUND_S) if short else (_ROUNDS, _ROUND_S)
    lines = [
        "| | messages/s acknowledged: memory | written | synced | p99 of an answer, ms: memory | "
        f"written | synced | written of memory, wanted ≥ {_OF_MEMORY:g} |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for number, row in enumerate(rows, 1):
        click.echo(f"cost: {number} of {len(rows)}, {row.title}", err=True)
        found = {
            ack: acknowledged.median(each)
            for ack, each in acknowledged.measure(row, rounds, duration_s).items()
        }
        ratio = found["written"].per_second / found["memory"].per_second
        cells = [f"{found[ack].per_second:,.0f}" for ack in acknowledged.LEVELS]
        cells += [f"{found[ack].p99_ms:.2f}" for ack in acknowledged.LEVELS]
        reached = f"{ratio:.2f}" if ratio >= _OF_MEMORY else f"**{ratio:.2f}**"
        lines.append("| " + " | ".join([row.title, *cells, reached]) + " |")
    return lines


def _faults(place: Path, short: bool) -> list[str]:
    faults.allow_files()
    lines = ["| fault | measured | wanted | reached |", "|---|---|---|---|"]
    for number, take in enumerate(faults.ALL, 1):
        title = take.__name__.replace("_", " ")
        click.echo(f"faults: {number} of {len(faults.ALL)}, {title}", err=True)
        folder = place / take.__name__
        folder.mkdir()
        found = take(folder, _SHORT_SCALE if short else 1.0)
        reached = "yes" if found.reached else "**no**"
        lines.append(f"| {found.fault} | {found.measured} | {found.wanted} | {reached} |")
    return lines


def _campaign(name: str, place: Path, count: int, seed: int) -> Outcome:
    def tell(done: int) -> None:
        if done % 10 == 0 or done == count:
            click.echo(f"{name}: {done} of {count}", err=True)

    data = place / "data"
    if name == "kills":
        return campaign(data, count, seed, tell=tell)
    data.mkdir()
    options = ("--set", "journal.ack=synced")
    return campaign(data, count, seed, options, Disk(data, place / "notes"), tell)


def _outcome(found: Outcome) -> list[str]:
    starts: Sequence[float] = sorted(found.start_s) or [0.0]
    cells = [
        found.kills,
        f"{found.acknowledged:,}",
        f"{found.journalled:,}",
        len(found.lost),
        len(found.twice),
        len(found.torn),
        len(found.stale),
        found.tails,
        f"{starts[len(starts) // 2]:.2f} ({starts[-1]:.2f})",
    ]
    return [
        "| times | acknowledged | in the journal | acknowledged and lost | numbered, there twice | "
        "numbered, there in part | retained, but older | torn tails | start, s (longest) |",
        "|---|---|---|---|---|---|---|---|---|",
        "| " + " | ".join(map(str, cells)) + " |",
    ]
