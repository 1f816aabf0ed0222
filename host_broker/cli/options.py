"""What the commands that talk to a broker have in common on the command line."""

import contextlib
from collections.abc import Iterator

import click

from host_broker.client import AddressError, BadArgument, FmqpClient, LightmqClient, connect

url_argument = click.argument("url")

timeout_option = click.option(
    "--answer-within",
    "timeout_s",
    type=click.FloatRange(min=0.0, min_open=True),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the broker may take to answer.",
)


@contextlib.contextmanager
def connected(url: str, timeout_s: float) -> Iterator[FmqpClient | LightmqClient]:
    """Connect while the block lasts; what the user mistyped in it is a usage error."""
    try:
        with connect(url, timeout_s=timeout_s) as client:
            yield client
    except (AddressError, BadArgument) as error:
        raise click.UsageError(str(error)) from error
