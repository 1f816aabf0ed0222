"""``motemq sub``: print messages as they arrive."""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import click

from host_broker.cli import message_format
from host_broker.cli.failure import OutOfTime, failing_clearly
from host_broker.cli.listening import Heard, Listening
from host_broker.cli.options import connected, timeout_option, url_argument
from host_broker.cli.reconnecting import Backoff, reconnecting
from host_broker.cli.standard_output import put
from host_broker.client import ClientError, FmqpClient, LightmqClient

_FOREVER_S = 3600.0  # one wait; there is always another


@click.command()
@url_argument
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("-v", "--verbose", is_flag=True, help="Print the topic before each message.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per message.")
@click.option("--hex", "hexadecimal", is_flag=True, help="Print payloads as hexadecimal digits.")
@click.option(
    "--output",
    type=click.Choice(["line", "raw"]),
    default="line",
    show_default=True,
    help="A safe line per message, or the bytes of the payloads and nothing else.",
)
@click.option(
    "--count", type=click.IntRange(min=1), metavar="N", help="Stop after N messages, exit 0."
)
@click.option(
    "--timeout",
    "wait_s",
    type=click.FloatRange(min=0.0, min_open=True),
    metavar="SECONDS",
    help="Stop this long after the start: exit 0 without --count, 124 with.",
)
@click.option(
    "--retained-only", is_flag=True, help="Print what the broker keeps of TOPIC now, and stop."
)
@click.option("--no-retained", is_flag=True, help="Leave that out; print only what comes after.")
@click.option(
    "--feedback", is_flag=True, help="Print how many subscribe to TOPIC, not what is published."
)
@click.option(
    "--debug-subscription", "debug", is_flag=True, help="Do not be counted in others' feedback."
)
@click.option(
    "--reconnect/--no-reconnect",
    default=False,
    show_default=True,
    help="Connect again when the broker is not there or is lost; says so on stderr.",
)
@timeout_option
def command(
    url: str,
    topics: tuple[str, ...],
    verbose: bool,
    as_json: bool,
    hexadecimal: bool,
    output: str,
    count: int | None,
    wait_s: float | None,
    retained_only: bool,
    no_retained: bool,
    feedback: bool,
    debug: bool,
    reconnect: bool,
    timeout_s: float,
) -> None:
    """Print the messages of every TOPIC at the broker URL, one a line.

    URL is fmqp://host:port; a level '*' in TOPIC is any level. Or lightmq://host:port/client-id,
    where TOPIC is 'down': what the broker SENDs to this client, i.e. what is published under
    lightmq/CLIENT-ID/down; each is answered with an empty response. 'subscribed' is said on
    stderr when the subscription is active.

    Lines are UTF-8; bytes that are none and control characters are written as \\xNN or \\n. For
    exact bytes take --json, --hex or --output raw. In JSON, 'kept' is true for what the broker
    kept when the subscription began; 'cache' and 'will' are the flags as published.

    Exit codes: 0 done, 1 no connection or it was lost, 2 wrong arguments, 124 --timeout was over
    before --count messages came, 130 Ctrl-C, 141 the reader of the output went away.
    """
    if ((as_json or hexadecimal or verbose) and output == "raw") or (as_json and hexadecimal):
        raise click.UsageError("choose one of --output raw, --json, --hex; -v is for lines")
    if retained_only and no_retained:
        raise click.UsageError("--retained-only and --no-retained leave nothing to print")
    started = time.monotonic()
    wanted = _Wanted(
        count,
        None if wait_s is None else started + wait_s,
        retained_only,
        no_retained,
        _format(as_json, output, verbose, hexadecimal),
    )

    def session(backoff: Backoff) -> None:
        with connected(url, timeout_s) as client:
            if isinstance(client, FmqpClient):
                listening = Listening(
                    client, topics, feedback=feedback, debug=debug, answer_within_s=timeout_s
                )
                wanted.of_fmqp(listening, backoff.reset)
            elif topics != ("down",) or feedback or debug or retained_only or no_retained:
                raise click.UsageError(
                    "LightMQ has no topics: a client is only sent what is for it; write: "
                    f"motemq sub {url} down"
                )
            else:
                wanted.of_lightmq(client, backoff.reset)

    with failing_clearly("sub", ClientError):
        reconnecting("sub", session, again=reconnect, end=wanted.end)
        if count is not None and wanted.printed < count and not retained_only:
            raise OutOfTime(f"{wanted.printed} of {count} messages came within {wait_s:g} s")


def _format(as_json: bool, output: str, verbose: bool, hexadecimal: bool) -> message_format.Format:
    if as_json:
        return message_format.as_json
    if output == "raw":
        return message_format.raw
    return functools.partial(message_format.line, topic=verbose, hexadecimal=hexadecimal)


@dataclass(slots=True)
class _Wanted:
    """What to print and until when; lives through reconnections."""

    count: int | None
    end: float | None  # on the clock of monotonic()
    retained_only: bool
    no_retained: bool
    format: message_format.Format
    printed: int = 0

    def of_fmqp(self, listening: Listening, subscribed: Callable[[], None]) -> None:
        while self._more():
            was_active = listening.active
            heard = listening.next(self._wait_s())
            if listening.active and not was_active:
                subscribed()
                click.echo("subscribed", err=True)
                if self.retained_only:
                    return
            if heard is None or (heard.kept and self.no_retained):
                continue
            if heard.kept or not self.retained_only:
                self._print(heard)

    def of_lightmq(self, client: LightmqClient, subscribed: Callable[[], None]) -> None:
        subscribed()
        click.echo("subscribed", err=True)
        while self._more():
            request = client.receive(self._wait_s())
            if request is not None:
                client.respond(request, b"")
                self._print(Heard("down", request.data, request.received_ns))

    def _more(self) -> bool:
        if self.count is not None and self.printed >= self.count:
            return False
        return self.end is None or time.monotonic() < self.end

    def _wait_s(self) -> float:
        return _FOREVER_S if self.end is None else max(0.0, self.end - time.monotonic())

    def _print(self, heard: Heard) -> None:
        put(self.format(heard))
        self.printed += 1
