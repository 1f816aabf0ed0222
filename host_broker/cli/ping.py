"""``motemq ping``: measure round trips to a broker."""

import json
import math
import sys
import time

import click

from host_broker.cli import round_trips
from host_broker.cli.failure import failing_clearly
from host_broker.cli.options import (
    Seconds,
    connected,
    dialect_option,
    speaker,
    timeout_option,
    url_argument,
)
from host_broker.cli.standard_output import put
from host_broker.client import ClientError, Timeout

_SAY_EVERY_S = 1.0  # of pings that are lost


@click.command()
@url_argument
@click.option(
    "-c",
    "--count",
    type=click.IntRange(min=1, max=1_000_000),
    default=10,
    show_default=True,
    metavar="N",
    help="How many.",
)
@click.option(
    "-i",
    "--interval",
    "interval_s",
    type=Seconds(min=0.0),
    default=0.0,
    metavar="SECONDS",
    help="Between the answer and the next ping.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with every time.")
@dialect_option
@timeout_option
def command(
    url: str,
    count: int,
    interval_s: float,
    as_json: bool,
    dialect: str | None,
    timeout_s: float,
) -> None:
    """Send N pings to the broker URL, one after the other, and print the round trip times.

    URL is the broker's, of any protocol: FMQP has no ping, so there it is a message to ourselves;
    LightMQ has PING and PONG, and without a client id in the URL nobody is told that we were
    there. All times are in microseconds; the second line shows how they are spread. A broker on
    this machine that is just starting is waited for, up to 3 s.

    Exit codes: 0 all came back, 1 some were lost or no connection, 2 wrong arguments, 130 Ctrl-C.
    """
    times: list[float] = []
    lost = 0
    said_at = -math.inf
    # Progress, for somebody who looks on; the error at the end has it all.
    say = speaker("ping", quiet=not (sys.stderr and sys.stderr.isatty()))
    with (
        failing_clearly("ping", ClientError),
        connected(url, timeout_s, unseen=True, dialect=dialect) as client,
    ):
        try:
            for number in range(count):
                if interval_s and number:
                    client.wait(interval_s)
                try:
                    times.append(client.ping(timeout_s))
                except Timeout:
                    lost += 1
                    if number + 1 < count and time.monotonic() - said_at >= _SAY_EVERY_S:
                        said_at = time.monotonic()
                        say(f"no answer within {timeout_s:g} s ({number + 1} of {count})")
        finally:  # what was measured before Ctrl-C or a lost connection is of interest, too
            if as_json:
                put(_json(url, times, lost).encode())
            elif times:
                put(_text(times, lost).encode())
        if lost:
            raise Timeout(
                f"{lost} of {count} pings were not answered within {timeout_s:g} s{client.doubt}"
            )


def _text(times_s: list[float], lost: int) -> str:
    return f"{round_trips.summary(times_s, lost)}\n{round_trips.histogram(times_s)}\n"


def _json(url: str, times_s: list[float], lost: int) -> str:
    figures = round_trips.figures_us(times_s) if times_s else {}
    return (
        json.dumps(
            {
                "url": url,
                "sent": len(times_s) + lost,
                "lost": lost,
                **{f"{name}_us": round(value, 1) for name, value in figures.items()},
                "round_trips_us": [round(time_s * 1e6, 1) for time_s in times_s],
            }
        )
        + "\n"
    )
