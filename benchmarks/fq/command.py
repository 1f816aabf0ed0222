"""``python -m benchmarks fq``."""

import contextlib
import shutil
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from benchmarks.broker import wires
from benchmarks.broker.certificates import Certificate
from benchmarks.broker.metering import Measured, undisturbed
from benchmarks.broker.peers import NATS, Peer, PeerFailed, Running, installed, running
from benchmarks.broker.report import machine
from benchmarks.fq.traffic import Load, fq_traffic, nats_traffic

_WANTED = 300_000  # messages a second, 1 to 1
_DEARER = 3.0  # at most, with 10,000 bindings
_ATTEMPTS = 5
_ONE = Load("1 to 1, one route", routes=1)
_MIXED = Load("1 to 1, 16 routes")
_MANY = Load("1 to 1, 2,000 routes", routes=2_000)
_COMPETING = Load("1 to 8 that compete", consumers=8)
_BINDINGS = [Load(f"{count:,} bindings", bindings=count) for count in (10, 1_000, 10_000)]

_Traffic = Callable[[Running, Load, float], Measured]
_Found = Mapping[tuple[str, str], Sequence[Measured]]  # by the names of peer and load


def _argv(port: int, folder: Path, tls: Certificate | None) -> list[str]:
    listen = f"fq://127.0.0.1:{port}"
    return [sys.executable, "-m", "motemq", "broker", "--listen", listen, "--ephemeral"]


def _fqd(program: str) -> Peer:
    def argv(port: int, folder: Path, tls: Certificate | None) -> list[str]:
        files = ["-D", "-c", str(folder / "fqd.sqlite"), "-q", str(folder / "queues")]
        return [program, *files, "-n", "127.0.0.1", "-p", str(port)]

    return Peer("fqd", program, "", argv, wires.FMQP)


_MOTEMQ = Peer("motemq", sys.executable, "", _argv, wires.FMQP)


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
@click.option(
    "--fqd",
    "fqd",
    type=click.Path(exists=True, dir_okay=False),
    default=shutil.which("fqd"),
    help="The program to compare with, if it is not on PATH.",
)
def command(short: bool, rounds: int, duration_s: float, fqd: str | None) -> None:
    """Measure fq: one exchange, one publisher, queues in memory.

    The route changes from message to message, at random among 16: one consumer, eight that compete,
    and one whose queue has 10, 1,000 and 10,000 bindings; one consumer also with 2,000 routes and
    with one. Against fqd, and without one against queue groups of nats-server, which has no
    bindings. Brokers take turns, and each ratio is taken within a round; medians are printed. A
    measurement that others disturb is taken again, up to 5 times.

    Exit codes: 0 measured (figures may fall short, the table says so), 1 a broker failed or lost a
    message, 2 wrong usage.
    """
    attempts = _ATTEMPTS
    if short:
        rounds, duration_s, attempts = 1, 0.05, 1
    loads = [_MIXED, _MANY, _ONE, _COMPETING, *_BINDINGS]
    peers: list[tuple[Peer, _Traffic, list[Load]]] = [(_MOTEMQ, fq_traffic, loads)]
    if fqd is not None:
        peers.append((_fqd(fqd), fq_traffic, loads))
    elif installed(NATS):
        peers.append((NATS, nats_traffic, loads[:4]))
    else:
        click.echo("neither fqd nor nats-server (apt-get install nats-server) is here", err=True)
    found: dict[tuple[str, str], list[Measured]] = {}
    try:
        for load in loads:
            for turn in range(rounds):
                for peer, traffic, its in (peers, peers[::-1])[turn % 2]:
                    if load in its:
                        taken = _one(peer, traffic, load, duration_s, attempts)
                        found.setdefault((peer.name, load.name), []).append(taken)
    except PeerFailed as error:
        raise click.ClickException(str(error)) from error
    click.echo(_table(found, [peer.name for peer, _, _ in peers], loads))


def _one(peer: Peer, traffic: _Traffic, load: Load, duration_s: float, attempts: int) -> Measured:
    """Measure with a broker of its own, which has no other bindings."""

    def measured() -> Measured:
        with contextlib.ExitStack() as stack:
            return traffic(stack.enter_context(running(peer)), load, duration_s)

    return undisturbed(measured, attempts)


def _table(found: _Found, peers: Sequence[str], loads: Sequence[Load]) -> str:
    every = [each for measured in found.values() for each in measured]
    lines = [
        f"{machine()}; {sum(each.disturbed for each in every)} of {len(every)} disturbed",
        "",
        "| payloads of 16 to 112 B | broker | msg/s | broker, us a message | ratio |",
        "|---|---|---|---|---|",
    ]
    ours = peers[0]
    for load in loads:
        for peer in peers:
            measured = found.get((peer, load.name))
            if measured is None:
                continue
            cost = statistics.median(each.cpu_us for each in measured)
            ratio = "" if peer == ours else f"{_ratio(found[ours, load.name], measured):.2f}"
            lines.append(
                f"| {load.name} | {peer} | {_rate(measured):,.0f} | {cost:.2f} | {ratio} |"
            )
    few, _, many = (found[ours, load.name] for load in _BINDINGS)
    one = min(_rate(found[ours, load.name]) for load in (_MIXED, _MANY, _ONE))
    dearer = _ratio(few, many)
    lines += [
        "",
        f"- msg/s, 1 to 1, the slowest: {one:,.0f}, wanted {_WANTED:,}: {_verdict(one >= _WANTED)}",
        f"- 10,000 bindings cost {dearer:.2f} times what 10 cost, wanted at most {_DEARER:g}: "
        f"{_verdict(dearer <= _DEARER)}",
    ]
    return "\n".join(lines)


def _verdict(good: bool) -> str:
    return "reached" if good else "not reached"


def _rate(measured: Sequence[Measured]) -> float:
    return statistics.median(each.deliveries_per_second for each in measured)


def _ratio(ours: Sequence[Measured], theirs: Sequence[Measured]) -> float:
    """Return the median of the rounds' ratios."""
    pairs = zip(ours, theirs, strict=True)
    return statistics.median(
        one.deliveries_per_second / other.deliveries_per_second for one, other in pairs
    )
