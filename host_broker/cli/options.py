"""What the commands that talk to a broker have in common on the command line."""

import click

from host_broker.client import AddressError, FmqpClient, LightmqClient, connect

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


def connected(url: str, timeout_s: float) -> FmqpClient | LightmqClient:
    """Connect; an address that cannot be read is a usage error, the rest is ``ClientError``."""
    try:
        return connect(url, timeout_s=timeout_s)
    except AddressError as error:
        raise click.UsageError(str(error)) from error
