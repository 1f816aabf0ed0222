"""``motemq sub``: print messages as they arrive."""

import sys
import time

import click

from host_broker.cli.failure import failing_clearly
from host_broker.cli.options import connected, timeout_option, url_argument
from host_broker.client import ClientError, FmqpClient, LightmqClient, Timeout

_FOREVER_S = 3600.0  # one wait; there is always another


@click.command()
@url_argument
@click.argument("topic")
@click.option(
    "--count", type=click.IntRange(min=1), metavar="N", help="Stop after N messages, exit 0."
)
@click.option(
    "--timeout",
    "wait_s",
    type=click.FloatRange(min=0.0, min_open=True),
    metavar="SECONDS",
    help="Stop this long after the start: exit 0 without --count, 1 with.",
)
@click.option("-v", "--verbose", is_flag=True, help="Print the topic before each message.")
@timeout_option
def command(
    url: str,
    topic: str,
    count: int | None,
    wait_s: float | None,
    verbose: bool,
    timeout_s: float,
) -> None:
    """Print the messages of TOPIC at the broker URL, one a line.

    URL is fmqp://host:port; a level '*' in TOPIC is any level. Or lightmq://host:port/client-id,
    where TOPIC is 'down': what the broker SENDs to this client, i.e. what is published under
    lightmq/CLIENT-ID/down; each is answered with an empty response. 'subscribed' is said on
    stderr when the subscription is active.

    Exit codes: 0 done, 1 the broker was lost or messages missing, 2 wrong arguments, 130 Ctrl-C.
    """
    end = None if wait_s is None else time.monotonic() + wait_s
    with failing_clearly("sub", ClientError), connected(url, timeout_s) as client:
        if isinstance(client, FmqpClient):
            client.subscribe(topic)
            client.sync(timeout_s)
        elif topic != "down":
            raise click.UsageError(
                "LightMQ has no topics: a client is only sent what is for it; write: "
                f"motemq sub {url} down"
            )
        click.echo("subscribed", err=True)
        printed = 0
        while count is None or printed < count:
            wait = _FOREVER_S if end is None else end - time.monotonic()
            received = _next(client, wait) if wait > 0 else None
            if received is not None:
                _print(*received, verbose)
                printed += 1
            elif end is not None:
                break
        if count is not None and printed < count:
            raise Timeout(f"{printed} of {count} messages came within {wait_s:g} s")


def _next(client: FmqpClient | LightmqClient, wait_s: float) -> tuple[str, bytes] | None:
    if isinstance(client, FmqpClient):
        message = client.receive(wait_s)
        return None if message is None else (message.topic, message.payload)
    request = client.receive(wait_s)
    if request is None:
        return None
    client.respond(request, b"")
    return "down", request.data


def _print(topic: str, payload: bytes, verbose: bool) -> None:
    prefix = f"{topic} ".encode() if verbose else b""
    sys.stdout.buffer.write(prefix + payload + b"\n")
    sys.stdout.buffer.flush()
