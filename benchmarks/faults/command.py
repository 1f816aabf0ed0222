"""``python -m benchmarks pipeline-faults``."""

import random
import time

import click

from benchmarks.faults import kills
from benchmarks.faults.processes import Failed

_WHAT = (kills.DRIVER, kills.EXECUTOR, kills.BROKER)


@click.command()
@click.argument("what", nargs=-1, metavar="[WHAT]...", type=click.Choice(_WHAT))
@click.option("--times", default=20, show_default=True, type=click.IntRange(1, 1000))
@click.option("--rate", default=500.0, show_default=True, type=click.FloatRange(1.0, 50_000.0))
@click.option("--seed", type=int, help="Of the moments.  [default: another every time]")
def command(what: tuple[str, ...], times: int, rate: float, seed: int | None) -> None:
    """Kill (-9) driver, executors and broker of a pipeline, --times each, and count messages.

    Exit codes: 0 every message is in the tables once, 1 not so, or a part did not start again, 2
    wrong usage.
    """
    seed = int(time.time()) if seed is None else seed
    click.echo(f"seed {seed}, {rate:g} messages/s", err=True)
    click.echo("| killed | sent | journal | rows | twice | missing | others | s | exact |")
    click.echo("|---|---|---|---|---|---|---|---|---|")
    good = True
    for victim in what or _WHAT:
        try:
            found = kills.run([victim] * times, rate, random.Random(seed), _tell)
        except Failed as error:
            click.echo(f"pipeline-faults: {victim}: {error}", err=True)
            raise SystemExit(1) from None
        good &= found.exact
        for table in (found.bronze, found.silver):
            click.echo(
                f"| {times} x {victim} | {found.sent} | {table.journal} | {table.rows} | "
                f"{table.twice} | {table.missing} | {table.others} | {found.seconds:.0f} | "
                f"{'yes' if found.exact else '**no**'} |"
            )
    raise SystemExit(0 if good else 1)


def _tell(line: str) -> None:
    click.echo(line, err=True)
