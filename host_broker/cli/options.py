"""What the commands that talk to a broker have in common on the command line."""

import contextlib
from collections.abc import Callable, Iterable, Iterator

import click

from host_broker.client import AddressError, BadArgument, FmqpClient, LightmqClient, connect
from host_broker.protocols.fmqp.spelling import encode_subscription

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

reconnect_option = click.option(
    "--reconnect/--no-reconnect",
    default=False,
    show_default=True,
    help="Connect again when the broker is not there or is lost; says so on stderr.",
)

quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="Nothing but errors that end it on stderr."
)


def speaker(name: str, quiet: bool) -> Callable[[str], None]:
    """Return what says a line on stderr, unless it is to be quiet."""

    def say(text: str) -> None:
        if not quiet:
            click.echo(f"{name}: {text}", err=True)

    return say


def require_topics(topics: Iterable[str]) -> None:
    """Raise ``UsageError`` for what is no topic: at once, not when a broker is there at last."""
    for topic in topics:
        try:
            encode_subscription(topic)
        except ValueError as error:
            raise click.UsageError(str(error)) from error


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Turn what the user mistyped into a usage error."""
    try:
        yield
    except (AddressError, BadArgument) as error:
        raise click.UsageError(str(error)) from error


@contextlib.contextmanager
def connected(url: str, timeout_s: float) -> Iterator[FmqpClient | LightmqClient]:
    """Connect while the block lasts; what the user mistyped in it is a usage error."""
    with usage_errors(), connect(url, timeout_s=timeout_s) as client:
        yield client
