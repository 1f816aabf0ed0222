"""``python -m benchmarks fq-disk``."""

import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from benchmarks.broker import wires
from benchmarks.broker.certificates import Certificate
from benchmarks.broker.metering import Measured, undisturbed
from benchmarks.broker.peers import Peer, PeerFailed, Running, running
from benchmarks.broker.report import machine
from benchmarks.fq_disk.measure import at_once, one_by_one, store_alone

_WANTED = 50_000  # messages a second
_SIZE = 100
_COMMIT = 1000
_ATTEMPTS = 5
_ROOM = "1000000"


def _argv(port: int, folder: Path, tls: Certificate | None) -> list[str]:
    return [
        *(sys.executable, "-m", "motemq", "broker", "--listen", f"fq://127.0.0.1:{port}"),
        *("--data", str(folder / "data"), "--set", f"bus.max_queue_messages={_ROOM}"),
    ]


_BROKER = Peer("motemq", sys.executable, "", _argv, wires.FMQP)


@click.command()
@click.option("--short", is_flag=True, help="Little of everything: whether it works, no figures.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="How many.")
@click.option(
    "--messages",
    "count",
    type=click.IntRange(10),
    default=200_000,
    show_default=True,
    help="Of each measurement; of one a commit, a hundredth.",
)
def command(short: bool, rounds: int, count: int) -> None:
    """Measure a disk queue of fq: one publisher, one consumer, payloads of 100 bytes, 16 routes at
    random.

    All at once, where the broker stores many messages in one commit, against one message after the
    other, which is a commit each; and the store's file alone, in both ways. Medians are printed. A
    measurement that others disturb is taken again, up to 5 times.

    Exit codes: 0 measured (figures may fall short, the table says so), 1 the broker failed or lost
    a message, 2 wrong usage.
    """
    attempts = _ATTEMPTS
    if short:
        rounds, count, attempts = 1, 1000, 1
    few = max(10, count // 100)

    def measured(measure: Callable[[Running, int, int], Measured], many: int) -> list[Measured]:
        found = []
        for _ in range(rounds):
            with running(_BROKER) as broker:
                found.append(
                    undisturbed(lambda broker=broker: measure(broker, many, _SIZE), attempts)  # type: ignore[misc]
                )
        return found

    try:
        batched, single = measured(at_once, count), measured(one_by_one, few)
    except PeerFailed as error:
        raise click.ClickException(str(error)) from error
    click.echo(_table(batched, single, rounds, count, few))


def _table(
    batched: list[Measured], single: list[Measured], rounds: int, count: int, few: int
) -> str:
    every = [*batched, *single]
    lines = [
        f"{machine()}; {sum(each.disturbed for each in every)} of {len(every)} disturbed",
        "",
        f"| disk queue, {_SIZE} B, 1 to 1 | msg/s | broker, us a message |",
        "|---|---|---|",
    ]
    rates = []
    for name, found in (("many a commit", batched), ("one a commit", single)):
        rates.append(statistics.median(each.deliveries_per_second for each in found))
        cost = statistics.median(each.cpu_us for each in found)
        lines.append(f"| {name} | {rates[-1]:,.0f} | {cost:.2f} |")
    for many, commit in ((count, _COMMIT), (few, 1)):
        for sync in (False, True):
            name = f"the store alone, {commit:,} a commit" + (", each on the disk" if sync else "")
            with tempfile.TemporaryDirectory(prefix="motemq-fq-disk-") as folder:
                rate = statistics.median(
                    store_alone(Path(folder), many, _SIZE, commit, sync=sync) for _ in range(rounds)
                )
            lines.append(f"| {name} | {rate:,.0f} | |")
    verdict = "reached" if rates[0] >= _WANTED else "not reached"
    lines += [
        "",
        f"- msg/s, many a commit: {rates[0]:,.0f}, wanted {_WANTED:,}: {verdict}",
        f"- many a commit / one a commit: {rates[0] / rates[1]:,.1f}",
    ]
    return "\n".join(lines)
