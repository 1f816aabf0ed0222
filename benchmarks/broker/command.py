"""``python -m benchmarks broker``."""

import json
from pathlib import Path

import click

from benchmarks.broker import report, steady
from benchmarks.broker.peers import AUTO, GREETED, MOTEMQ, RELAY, PeerFailed, installed
from benchmarks.broker.rounds import PEERS, measure
from benchmarks.broker.workloads import WORKLOADS

_NAMES = [*(workload.name for workload in WORKLOADS), *steady.MEASURES]


@click.command()
@click.argument("names", nargs=-1, metavar="[WORKLOAD]...", type=click.Choice(_NAMES))
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(1, 50))
@click.option(
    "--duration",
    "duration_s",
    default=0.4,
    show_default=True,
    # After two seconds nats-server has more to say than deliveries, which counted as a failure.
    type=click.FloatRange(0.05, 1.5),
    help="Seconds of publishing per throughput measurement.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write every figure to this file too.",
)
@click.option("--ours-only", is_flag=True, help="Leave the other brokers out (no verdicts).")
@click.option("--auto", is_flag=True, help="Against our own auto:// listener, and nobody else.")
def command(
    names: tuple[str, ...],
    rounds: int,
    duration_s: float,
    json_file: Path | None,
    ours_only: bool,
    auto: bool,
) -> None:
    """Measure our broker, mosquitto, nats-server and a byte relay in turn; print the ratios.

    Without a WORKLOAD all are measured. Every delivery is waited for: a broker that loses one
    fails the run.

    Exit codes: 0 measured (reached or not), 1 a broker failed, 2 wrong usage, 3 no other broker
    is installed: a figure without a peer says nothing.
    """
    wanted = (GREETED, AUTO) if auto else (MOTEMQ, RELAY) if ours_only else PEERS
    peers = tuple(peer for peer in wanted if installed(peer))
    for peer in wanted:
        if peer not in peers:
            click.echo(f"not measured: {peer.name} (apt-get install {peer.package})", err=True)
    if not (ours_only or auto) and set(peers) == {MOTEMQ, RELAY}:
        raise SystemExit(3)
    chosen = [workload for workload in WORKLOADS if not names or workload.name in names]
    try:
        results = [measure(workload, peers, rounds, duration_s, _tell) for workload in chosen]
        if results:
            click.echo(report.table(results))
        document = report.document(results)
        for name in steady.MEASURES:
            if not names or name in names:
                click.echo(f"\n{steady.measure(name, peers, rounds, document, _tell)}")
    except PeerFailed as failed:
        click.echo(f"broker benchmark: {failed}", err=True)
        raise SystemExit(1) from None
    if json_file is not None:
        json_file.write_text(json.dumps(document, indent=1) + "\n")


def _tell(line: str) -> None:
    click.echo(line, err=True)
