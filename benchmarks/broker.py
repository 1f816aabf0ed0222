"""Throughput of the broker, one publisher to one subscriber, against mosquitto and nats-server."""

import statistics

import click

from benchmarks.load import messages_per_second
from benchmarks.peers import MOTEMQ, PEERS, Peer, installed, running


@click.command()
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1, 50))
@click.option("--payload", "payload_bytes", default=64, show_default=True, help="Bytes.")
@click.option("--count", default=400_000, show_default=True, help="Messages per measurement.")
def command(rounds: int, payload_bytes: int, count: int) -> None:
    """Measure delivered messages per second on loopback and print the ratios.

    Every round measures every broker once, in turn; a ratio is taken within a round. Exit code 3
    if no peer is installed: a figure without a peer says nothing.
    """
    absent = [peer for peer in PEERS if not installed(peer)]
    for peer in absent:
        click.echo(f"not measured: {peer.name} (apt-get install {peer.package})", err=True)
    present = [peer for peer in PEERS if peer not in absent]
    if present == [MOTEMQ]:
        raise SystemExit(3)
    rates: dict[str, list[float]] = {peer.name: [] for peer in present}
    for number in range(1, rounds + 1):
        for peer in present:
            rates[peer.name].append(_measure(peer, payload_bytes, count))
        line = ", ".join(f"{name} {values[-1] / 1e6:.2f}" for name, values in rates.items())
        click.echo(f"round {number}/{rounds}, M msg/s: {line}", err=True)
    click.echo(f"1 publisher, 1 subscriber, 1 topic, {payload_bytes}-byte payload, loopback")
    for name, values in rates.items():
        line = f"{name:12} median {statistics.median(values) / 1e6:6.2f} M msg/s"
        if name != MOTEMQ.name:
            ratios = [ours / its for ours, its in zip(rates[MOTEMQ.name], values, strict=True)]
            line += f"   motemq/{name}: {statistics.median(ratios):5.2f}"
            line += f" ({min(ratios):.2f} to {max(ratios):.2f})"
        click.echo(line)


def _measure(peer: Peer, payload_bytes: int, count: int) -> float:
    with running(peer) as port:
        return messages_per_second(peer, port, payload_bytes, count)
