"""``python -m benchmarks pipeline-faults``."""

import random
import tempfile
import time
from pathlib import Path

import click

from benchmarks.cluster import campaign
from benchmarks.cluster.network import network
from benchmarks.faults import kills
from benchmarks.faults.processes import Failed

_LOCAL = (kills.DRIVER, kills.EXECUTOR, kills.BROKER)
_CLUSTER = "cluster"
_WHAT = (*_LOCAL, _CLUSTER)


@click.command()
@click.argument("what", nargs=-1, metavar="[WHAT]...", type=click.Choice(_WHAT))
@click.option("--times", default=20, show_default=True, type=click.IntRange(1, 1000))
@click.option("--rate", default=500.0, show_default=True, type=click.FloatRange(1.0, 50_000.0))
@click.option("--seed", type=int, help="Of the moments.  [default: another every time]")
def command(what: tuple[str, ...], times: int, rate: float, seed: int | None) -> None:
    """Kill (-9) parts of a pipeline, cut its networks, --times each, and count messages.

    driver, executor and broker are those of a pipeline on this machine. cluster is one of machines
    with addresses of their own, network namespaces: a driver, a standalone master and two workers,
    two brokers, an object store for the tables. There driver, worker and broker are killed, and the
    cables of driver, worker, broker, store and master are cut, one after the other; it takes root.
    Without WHAT all of them are done.

    Exit codes: 0 every message is in the tables once, 1 not so, or a part did not start again, 2
    wrong usage.
    """
    seed = int(time.time()) if seed is None else seed
    click.echo(f"seed {seed}, {rate:g} messages/s", err=True)
    chosen = what or _WHAT
    good = True
    for number, victim in enumerate(chosen):
        try:
            if victim == _CLUSTER:
                good &= _cluster(times, rate, random.Random(seed))
            else:
                good &= _local(victim, times, rate, random.Random(seed), head=number == 0)
        except Failed as error:
            click.echo(f"pipeline-faults: {victim}: {error}", err=True)
            raise SystemExit(1) from None
    raise SystemExit(0 if good else 1)


def _local(victim: str, times: int, rate: float, chance: random.Random, head: bool) -> bool:
    if head:
        click.echo(
            "| killed | table | sent | journal | rows | twice | missing | others | s | exact |"
        )
        click.echo("|---|---|---|---|---|---|---|---|---|---|")
    found = kills.run([victim] * times, rate, chance, _tell)
    for name, table in (("bronze", found.bronze), ("silver", found.silver)):
        click.echo(
            f"| {times} x {victim} | {name} | {found.sent} | {table.journal} | {table.rows} | "
            f"{table.twice} | {table.missing} | {table.others} | {found.seconds:.0f} | "
            f"{_yes(found.exact)} |"
        )
    return found.exact


def _cluster(times: int, rate: float, chance: random.Random) -> bool:
    faults = [fault for _ in range(times) for fault in campaign.FAULTS]
    with tempfile.TemporaryDirectory(prefix="motemq-faults-", ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        (scratch / "campaign").mkdir()
        with network(scratch) as machines:
            found = campaign.run(machines, scratch / "campaign", faults, rate / 2, chance, _tell)
    click.echo("| faults | acknowledged | journals | rows | twice | missing | others | s | exact |")
    click.echo("|---|---|---|---|---|---|---|---|---|")
    click.echo(
        f"| {times} x {', '.join(campaign.FAULTS)} | {found.acknowledged} | {found.journal} | "
        f"{found.rows} | {found.twice} | {found.missing} | {found.others} | {found.seconds:.0f} | "
        f"{_yes(found.exact)} |"
    )
    for words in found.ended:
        click.echo(f"a driver ended by itself and was started again: {words}", err=True)
    return found.exact


def _yes(reached: bool) -> str:
    return "yes" if reached else "**no**"


def _tell(line: str) -> None:
    click.echo(line, err=True)
