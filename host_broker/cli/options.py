"""What the commands that talk to a broker have in common on the command line."""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import click

from host_broker.cli.completion import complete_url
from host_broker.cli.outages import Outages
from host_broker.client import AddressError, BadArgument, Client, check, connect, parse_address
from host_broker.client_session import PropertyValue
from host_broker.printable import printable
from host_broker.registry import RegistryError

_LONGEST_S = 10**9
LOCAL_WAIT_S = 3.0  # for a broker on this machine that is just starting

url_argument = click.argument("url", shell_complete=complete_url)


class Seconds(click.FloatRange):
    """A time in seconds, that the kernel's clocks can count."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds: float = super().convert(value, param, ctx)
        if not seconds <= _LONGEST_S:  # also "nan", which is not less than any least either
            self.fail(f"{value} is more than {_LONGEST_S} seconds.", param, ctx)
        return seconds


timeout_option = click.option(
    "--answer-within",
    "timeout_s",
    type=Seconds(min=0.0, min_open=True),
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

dialect_option = click.option(
    "--dialect",
    metavar="NAME",
    help="The protocol's dialect, if it has several: for LightMQ spec or gbaranski.",
)


def speaker(name: str, quiet: bool) -> Callable[[str], None]:
    """Return what says a line on stderr, unless it is to be quiet."""

    def say(text: str) -> None:
        if not quiet:
            click.echo(f"{name}: {printable(text)}", err=True)

    return say


def require_topics(
    url: str,
    topics: Iterable[str] = (),
    patterns: Iterable[str] = (),
    *,
    filter: str = "",
    properties: Mapping[str, PropertyValue] | None = None,
) -> None:
    """Raise ``UsageError`` for what is no topic or pattern, or not for one: at once, not when a
    broker is there at last."""
    with usage_errors():
        check(
            parse_address(url),
            topics=topics,
            patterns=patterns,
            filter=filter,
            properties=properties,
        )


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Turn what the user mistyped into a usage error."""
    try:
        yield
    except (AddressError, BadArgument, RegistryError) as error:
        raise click.UsageError(printable(str(error))) from error


@contextlib.contextmanager
def connected(
    url: str,
    timeout_s: float,
    *,
    outages: Outages | None = None,
    most_wait_s: float = math.inf,
    unseen: bool = False,
    dialect: str | None = None,
) -> Iterator[Client]:
    """Connect while the block lasts; what the user mistyped in it is a usage error.

    ``outages``: connect again and again, and tell them; without, a broker on this machine has 3 s
    to appear. No try begins after ``most_wait_s``.
    """
    with usage_errors():
        wait_s = math.inf if outages is not None else 0.0
        if outages is None and parse_address(url).local:
            wait_s = LOCAL_WAIT_S
        client = connect(
            url,
            timeout_s=timeout_s,
            wait_s=min(wait_s, most_wait_s),
            reconnect=outages is not None,
            watcher=outages,
            unseen=unseen,
            dialect=dialect,
        )
        with client:
            yield client
