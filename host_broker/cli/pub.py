"""``motemq pub``: publish messages."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from host_broker.cli.failure import failing_clearly
from host_broker.cli.options import connected, timeout_option, url_argument
from host_broker.cli.outlet import FmqpOutlet, LightmqOutlet, Outlet
from host_broker.cli.standard_input import MOST_BYTES, StandardInput
from host_broker.client import ClientError, LightmqClient


@click.command()
@url_argument
@click.argument("topic")
@click.argument("payload", required=False)
@click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Publish what is in FILE, as one message.",
)
@click.option("--stdin", "whole", is_flag=True, help="Publish all of stdin, as one message.")
@click.option("--lines", is_flag=True, help="Publish each line of stdin as soon as it comes.")
@click.option("--null", is_flag=True, help="Publish no bytes: with --retain, clears what is kept.")
@click.option("--retain", is_flag=True, help="The broker keeps it for later subscribers (FMQP).")
@click.option("--will", is_flag=True, help="The broker publishes it when we disconnect (FMQP).")
@click.option(
    "--will-payload",
    metavar="TEXT",
    help="Beside the message, a last will of this text (kept too with --retain).",
)
@click.option("--will-topic", metavar="TOPIC", help="Where that will goes; TOPIC if not given.")
@click.option(
    "--repeat",
    type=click.IntRange(min=0),
    default=1,
    metavar="N",
    help="Publish it N times; 0 is until Ctrl-C.",
)
@click.option(
    "--delay",
    "delay_s",
    type=click.FloatRange(min=0.0),
    default=0.0,
    metavar="SECONDS",
    help="Between two messages.",
)
@click.option(
    "--wanted",
    "--feedback",
    "wanted",
    is_flag=True,
    help="Publish only while somebody subscribes to TOPIC, wait otherwise (FMQP).",
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0.0, min_open=True),
    metavar="SECONDS",
    help="With --wanted: wait no longer than this for a subscriber.",
)
@timeout_option
def command(
    url: str,
    topic: str,
    payload: str | None,
    file: Path | None,
    whole: bool,
    lines: bool,
    null: bool,
    retain: bool,
    will: bool,
    will_payload: str | None,
    will_topic: str | None,
    repeat: int,
    delay_s: float,
    wanted: bool,
    wait_s: float | None,
    timeout_s: float,
) -> None:
    """Publish PAYLOAD (text), a file or stdin under TOPIC at the broker URL.

    Ends when the broker has processed everything. URL is fmqp://host:port, or
    lightmq://host:port/client-id, where TOPIC is 'up' and the broker carries the message as
    lightmq/CLIENT-ID/up.

    With --will or --will-payload the connection is held until stdin ends (Ctrl-D), so that the
    will is published then, or whenever this program dies. FMQP brokers do not deliver empty
    messages, and discard those above their limit (fmqp.max_body, 1 MiB) without a word.

    Exit codes: 0 processed by the broker, 1 not, 2 wrong arguments, 124 nobody subscribed within
    --wait, 130 Ctrl-C.
    """
    if sum([payload is not None, file is not None, whole, lines, null]) != 1:
        raise click.UsageError("give one of PAYLOAD, --file, --stdin, --lines, --null")
    if will_topic is not None and will_payload is None:
        raise click.UsageError("--will-topic needs --will-payload")
    if wait_s is not None and not wanted:
        raise click.UsageError("--wait is for --wanted")
    if lines and repeat != 1:
        raise click.UsageError("--lines publishes each line once; leave out --repeat")
    body = (payload or "").encode("utf-8", "surrogateescape") if file is None else _content(file)
    source = _Source(body, whole, lines, repeat)
    holds = will or will_payload is not None
    with failing_clearly("pub", ClientError), connected(url, timeout_s) as client:
        outlet: Outlet
        if isinstance(client, LightmqClient):
            if topic != "up" or retain or holds or wanted:
                raise click.UsageError(
                    "LightMQ has no topics, retained messages, wills or feedback: a client can "
                    f"only send up; write: motemq pub {url} up PAYLOAD"
                )
            outlet = LightmqOutlet(client, timeout_s)
        else:
            if will_payload is not None:
                last = will_payload.encode("utf-8", "surrogateescape")
                client.publish(will_topic or topic, last, cache=retain, will=True)
            outlet = FmqpOutlet(
                client, topic, retain=retain, will=will, wanted=wanted, wait_s=wait_s
            )
        stdin = StandardInput(outlet.watch)
        _publish(outlet, source.messages(stdin), delay_s)
        if holds and not (whole or lines):
            click.echo("pub: holding the connection until stdin ends (Ctrl-D)", err=True)
            stdin.until_end()


def _publish(outlet: Outlet, messages: Iterator[bytes], delay_s: float) -> None:
    next_at = 0.0
    for body in messages:
        if delay_s and next_at:
            outlet.watch(until=next_at)
        outlet.send(body)
        next_at = time.monotonic() + delay_s
    outlet.finish()


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            body = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {error.strerror}") from error
    if len(body) > MOST_BYTES:
        raise click.UsageError(f"{file} is more than {MOST_BYTES >> 20} MiB")
    return body


@dataclass(frozen=True, slots=True)
class _Source:
    body: bytes
    whole: bool
    lines: bool
    repeat: int  # 0 is without end

    def messages(self, stdin: StandardInput) -> Iterator[bytes]:
        if self.lines:
            yield from stdin.lines()
            return
        body = stdin.whole() if self.whole else self.body
        sent = 0
        while not self.repeat or sent < self.repeat:
            yield body
            sent += 1
