"""``motemq ping``: measure round trips to a broker."""

import click

from host_broker.cli.failure import failing_clearly
from host_broker.cli.options import connected, timeout_option, url_argument
from host_broker.client import ClientError, Timeout


@click.command()
@url_argument
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="How many.",
)
@timeout_option
def command(url: str, count: int, timeout_s: float) -> None:
    """Send N pings to the broker URL, one after the other, and print the round trip times.

    URL is fmqp://host:port (a message to ourselves, FMQP has no ping) or
    lightmq://host:port/client-id (PING and PONG).

    Exit codes: 0 all came back, 1 some were lost or no connection, 2 wrong arguments, 130 Ctrl-C.
    """
    times: list[float] = []
    lost = 0
    with failing_clearly("ping", ClientError), connected(url, timeout_s) as client:
        for _ in range(count):
            try:
                times.append(client.ping(timeout_s))
            except Timeout:
                lost += 1
        if times:
            click.echo(_summary(times, lost))
        if lost:
            raise Timeout(f"{lost} of {count} pings were not answered within {timeout_s:g} s")


def _summary(times: list[float], lost: int) -> str:
    times.sort()
    parts = [f"{len(times)} round trips, {lost} lost"]
    for name, share in (("min", 0.0), ("median", 0.5), ("p99", 0.99), ("max", 1.0)):
        # Nearest rank: a time that was measured, not one between two.
        microseconds = times[min(len(times) - 1, int(share * len(times)))] * 1e6
        parts.append(f"{name} {microseconds:.0f} us")
    return ", ".join(parts)
