"""``python -m benchmarks umq``."""

import datetime
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

import click

from benchmarks.broker.certificates import Certificate
from benchmarks.broker.metering import Measured, undisturbed
from benchmarks.broker.peers import NATS, Peer, PeerFailed, Running, installed, running
from benchmarks.broker.report import machine
from benchmarks.broker.wires import FMQP
from benchmarks.umq.traffic import Latency, scene
from benchmarks.umq.wires import NATS as NATS_WIRE
from benchmarks.umq.wires import RELAY, UMQ, Wire

_ATTEMPTS = 3
_SUBSCRIBERS = (1, 8)
_RATE = 1_000  # publications a second, of which each is timed


def _motemq_argv(port: int, folder: Path, tls: Certificate | None) -> list[str]:
    listen = f"umq://127.0.0.1:{port}"
    return [sys.executable, "-m", "motemq", "broker", "--listen", listen, "--ephemeral"]


def _nats_argv(port: int, folder: Path, tls: Certificate | None) -> list[str]:
    config = folder / "nats.conf"
    config.write_text(
        'host: "127.0.0.1"\nport: -1\nmax_pending: 1GB\n'
        f'websocket {{ host: "127.0.0.1", port: {port}, no_tls: true }}\n'
    )
    return ["nats-server", "-c", str(config), "-l", str(folder / "nats.log")]


def _relay_argv(port: int, folder: Path, tls: Certificate | None) -> list[str]:
    return [sys.executable, "-m", "benchmarks.umq.relay", str(port)]


_PEERS: Sequence[tuple[Peer, Wire]] = (
    (Peer("motemq, UMQ", sys.executable, "", _motemq_argv, FMQP), UMQ),
    (Peer("nats-server", NATS.program, NATS.package, _nats_argv, FMQP), NATS_WIRE),
    (Peer("aiohttp broadcast", sys.executable, "", _relay_argv, FMQP), RELAY),
)


@dataclass
class _Found:
    """What was measured of one peer, a figure for each round."""

    rates: dict[int, list[Measured]] = field(default_factory=dict)  # by subscribers
    latencies: list[Latency] = field(default_factory=list)


@click.command()
@click.option("--short", is_flag=True, help="Little of everything: whether it works, no figures.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="How many.")
@click.option(
    "--duration",
    "duration_s",
    type=click.FloatRange(min=0.05),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Of each measurement.",
)
def command(short: bool, rounds: int, duration_s: float) -> None:
    """Measure UMQ: publications over WebSocket, to one subscriber and to eight.

    64 topics in no order, texts of 16 to 112 letters, a WebSocket message for each publication, at
    most 128 that not everybody has heard; then 1,000 a second, and how long each takes. Against
    nats-server by its WebSocket, and a broadcast of a few lines with aiohttp, without topics. They
    take turns, and each ratio is taken within a round; medians are printed. A measurement that
    others disturb is taken again, up to three times.

    Exit codes: 0 measured, 1 a program failed or lost a publication, 2 wrong usage.
    """
    attempts = _ATTEMPTS
    if short:
        rounds, duration_s, attempts = 1, 0.05, 1
    peers = [(peer, wire) for peer, wire in _PEERS if installed(peer)]
    for peer, _ in _PEERS:
        if not installed(peer):
            click.echo(f"{peer.name} is not here: apt-get install {peer.package}", err=True)
    found = {peer.name: _Found() for peer, _ in peers}
    try:
        for turn in range(rounds):
            for peer, wire in (peers, peers[::-1])[turn % 2]:
                with running(peer) as broker:
                    _measure(found[peer.name], wire, broker, duration_s, attempts)
    except PeerFailed as error:
        raise click.ClickException(f"{peer.name}: {error}") from error
    click.echo(_table(found))


def _measure(found: _Found, wire: Wire, broker: Running, duration_s: float, attempts: int) -> None:
    def rate(subscribers: int) -> Measured:
        with scene(wire, broker, subscribers) as clients:
            return clients.rate(duration_s)

    def latency() -> Latency:
        with scene(wire, broker, 1) as clients:
            return clients.latency(_RATE, duration_s)

    for subscribers in _SUBSCRIBERS:
        taken = undisturbed(partial(rate, subscribers), attempts)
        found.rates.setdefault(subscribers, []).append(taken)
    found.latencies.append(undisturbed(latency, attempts))


def _table(found: Mapping[str, _Found]) -> str:
    every: list[Measured | Latency] = []
    for each in found.values():
        every += chain(*each.rates.values(), each.latencies)
    (ours, *_) = found.values()
    lines = [
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, {machine()}, "
        f"{sum(each.disturbed for each in every)} of {len(every)} disturbed",
        "",
        "| publications over WebSocket | program | deliveries/s | us a delivery | motemq's rate |",
        "|---|---|---|---|---|",
    ]
    for subscribers in _SUBSCRIBERS:
        for name, each in found.items():
            taken = each.rates[subscribers]
            rate = statistics.median([one.deliveries_per_second for one in taken])
            cost = statistics.median([one.cpu_us for one in taken])
            ratio = "" if each is ours else _ratio(ours.rates[subscribers], taken)
            lines.append(f"| 1 to {subscribers} | {name} | {rate:,.0f} | {cost:.1f} | {ratio} |")
    lines += [
        "",
        f"| at {_RATE:,} a second, 1 to 1 | p50, us | p99, us | motemq's p99 |",
        "|---|---|---|---|",
    ]
    for name, each in found.items():
        p50 = statistics.median([one.p50_us for one in each.latencies])
        p99 = statistics.median([one.p99_us for one in each.latencies])
        pairs = zip(ours.latencies, each.latencies, strict=True)
        ratio = (
            f"{statistics.median([one.p99_us / other.p99_us for one, other in pairs]):.2f} of it"
        )
        lines.append(f"| {name} | {p50:,.0f} | {p99:,.0f} | {'' if each is ours else ratio} |")
    return "\n".join(lines)


def _ratio(ours: Sequence[Measured], theirs: Sequence[Measured]) -> str:
    pairs = zip(ours, theirs, strict=True)
    ratios = [one.deliveries_per_second / other.deliveries_per_second for one, other in pairs]
    return f"{statistics.median(ratios):.2f} of it ({min(ratios):.2f} to {max(ratios):.2f})"
