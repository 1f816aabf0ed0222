"""``python -m benchmarks acks``."""

import contextlib
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.acks.exchange import Exchange, measure
from benchmarks.acks.wires import MICROMSG2, MQTT_QOS_1, AckedWire
from benchmarks.broker import wires as plain_wires
from benchmarks.broker.certificates import Certificate
from benchmarks.broker.metering import undisturbed
from benchmarks.broker.peers import Peer, PeerFailed, installed, running
from benchmarks.broker.report import machine

_WINDOW, _SIZE = 100, 64
_RATE, _OF_MOSQUITTO, _OF_MEMORY = 150_000, 3.0, 0.8
_ATTEMPTS = 5


def _motemq(*options: str) -> Peer:
    def argv(port: int, folder: Path, tls: Certificate | None) -> list[str]:
        words = [sys.executable, "-m", "motemq", "broker", "--listen", f"auto://127.0.0.1:{port}"]
        if not options:
            return [*words, "--ephemeral"]
        return [*words, "--data", str(folder / "data"), *options]

    name = "motemq" if not options else f"motemq, {options[-1]}"
    return Peer(name, sys.executable, "", argv, plain_wires.FMQP)


def _mosquitto(port: int, folder: Path, tls: Certificate | None) -> list[str]:
    config = folder / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n"
        f"max_queued_messages 0\nmax_inflight_messages {_WINDOW}\nlog_type none\n"
    )
    return ["mosquitto", "-c", str(config)]


_PEERS: Sequence[tuple[Peer, AckedWire]] = (
    (_motemq(), MICROMSG2),
    (Peer("mosquitto", "mosquitto", "mosquitto", _mosquitto, plain_wires.MQTT), MQTT_QOS_1),
    (_motemq("--set", "journal.ack=memory"), MICROMSG2),
    (_motemq("--set", "journal.ack=written"), MICROMSG2),
)


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
    """Measure messages that are acknowledged, from one publisher to one subscriber.

    MicroMsg2 with batch-ack, and MQTT at QoS 1 by mosquitto, both with a window of 100 messages of
    64 bytes in both directions; and one message after the other. The brokers take turns, and each
    ratio is taken within a round; medians are printed. A measurement that others disturb is taken
    again, up to 5 times.

    Exit codes: 0 measured (figures may fall short, the table says so), 1 a broker failed or lost a
    message, 2 wrong usage.
    """
    attempts = _ATTEMPTS
    if short:
        rounds, duration_s, attempts = 1, 0.05, 1
    peers = [(peer, wire) for peer, wire in _PEERS if installed(peer)]
    for peer, _ in _PEERS:
        if not installed(peer):
            click.echo(f"{peer.name} is not installed (apt-get install {peer.package})", err=True)
    batches: dict[str, list[Exchange]] = {peer.name: [] for peer, _ in peers}
    singles: dict[str, list[Exchange]] = {peer.name: [] for peer, _ in peers}
    try:
        with contextlib.ExitStack() as stack:
            brokers = [(peer, wire, stack.enter_context(running(peer))) for peer, wire in peers]
            for turn in range(rounds):
                for peer, wire, broker in (brokers, brokers[::-1])[turn % 2]:
                    for window, found in ((_WINDOW, batches), (1, singles)):
                        taken = undisturbed(
                            lambda wire=wire, broker=broker, window=window: measure(  # type: ignore[misc]
                                wire, broker, window, _SIZE, duration_s
                            ),
                            attempts,
                        )
                        found[peer.name].append(taken)
    except PeerFailed as error:
        raise click.ClickException(str(error)) from error
    click.echo(_table(batches, singles))


def _table(batches: dict[str, list[Exchange]], singles: dict[str, list[Exchange]]) -> str:
    every = [each for found in (*batches.values(), *singles.values()) for each in found]
    lines = [
        f"{machine()}; {sum(each.disturbed for each in every)} of {len(every)} disturbed",
        "",
        f"| broker | window {_WINDOW}, {_SIZE} B, msg/s | broker, us a message | one by one, msg/s "
        "| one by one, ack p99, ms |",
        "|---|---|---|---|---|",
    ]
    for name, found in batches.items():
        single = singles[name]
        lines.append(
            f"| {name} | {_rate(found):,.0f} "
            f"| {statistics.median(each.measured.cpu_us for each in found):.2f} "
            f"| {_rate(single):,.0f} "
            f"| {statistics.median(each.p99_ms for each in single):.2f} |"
        )
    names = list(batches)
    lines += ["", _judged("msg/s of motemq", _rate(batches[names[0]]), _RATE)]
    if "mosquitto" in batches:
        ratio = _ratio(batches[names[0]], batches["mosquitto"])
        lines.append(_judged("motemq / mosquitto", ratio, _OF_MOSQUITTO))
    ratio = _ratio(batches[names[-1]], batches[names[-2]])
    lines.append(_judged("journal.ack, written / memory", ratio, _OF_MEMORY))
    return "\n".join(lines)


def _rate(found: Sequence[Exchange]) -> float:
    return statistics.median(each.measured.deliveries_per_second for each in found)


def _ratio(ours: Sequence[Exchange], theirs: Sequence[Exchange]) -> float:
    """Return the median of the rounds' ratios."""
    return statistics.median(
        one.measured.deliveries_per_second / other.measured.deliveries_per_second
        for one, other in zip(ours, theirs, strict=True)
    )


def _judged(what: str, found: float, wanted: float) -> str:
    verdict = "reached" if found >= wanted else "not reached"
    return f"- {what}: {found:,.2f}, wanted {wanted:,g}: {verdict}"
