"""``motemq pub``: publish messages."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from host_broker.cli.delivery import Delivery
from host_broker.cli.failure import failing_clearly
from host_broker.cli.options import (
    quiet_option,
    reconnect_option,
    require_topics,
    speaker,
    timeout_option,
    url_argument,
    usage_errors,
)
from host_broker.cli.outlet import FmqpManner, FmqpOutlet, LightmqOutlet, Outlet, Will
from host_broker.cli.reconnecting import Reconnection
from host_broker.cli.source import Source, content
from host_broker.cli.standard_input import StandardInput
from host_broker.cli.standard_output import put
from host_broker.client import BadArgument, ClientError, FmqpClient, connect


@click.command()
@url_argument
@click.argument("topic")
@click.argument("payload", required=False)
@click.option(
    "-m", "--message", "text", metavar="TEXT", help="The same as PAYLOAD; may begin with '-'."
)
@click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Publish what is in FILE, as one message.",
)
@click.option("-s", "--stdin", "whole", is_flag=True, help="Publish all of stdin as one message.")
@click.option("-l", "--lines", is_flag=True, help="Publish each line of stdin as soon as it comes.")
@click.option(
    "-n", "--null", is_flag=True, help="Publish no bytes: with --retain, clears what is kept."
)
@click.option(
    "-r", "--retain", is_flag=True, help="The broker keeps it for later subscribers (FMQP)."
)
@click.option("--will", is_flag=True, help="The broker publishes it when we disconnect (FMQP).")
@click.option(
    "--will-payload", metavar="TEXT", help="Beside the message, a last will of this text."
)
@click.option("--will-topic", metavar="TOPIC", help="Where that will goes; TOPIC if not given.")
@click.option(
    "--will-retain/--no-will-retain",
    default=None,
    help="Whether the broker keeps that will; as --retain if not given.",
)
@click.option(
    "--repeat",
    type=click.IntRange(min=0),
    default=1,
    metavar="N",
    help="Publish it N times; 0 is until Ctrl-C.",
)
@click.option(
    "--delay",
    "--repeat-delay",
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
@click.option(
    "--json", "as_json", is_flag=True, help="At the end print one JSON object: what was published."
)
@reconnect_option
@quiet_option
@timeout_option
def command(
    url: str,
    topic: str,
    payload: str | None,
    text: str | None,
    file: Path | None,
    whole: bool,
    lines: bool,
    null: bool,
    retain: bool,
    will: bool,
    will_payload: str | None,
    will_topic: str | None,
    will_retain: bool | None,
    repeat: int,
    delay_s: float,
    wanted: bool,
    wait_s: float | None,
    as_json: bool,
    reconnect: bool,
    quiet: bool,
    timeout_s: float,
) -> None:
    """Publish PAYLOAD (text), a file or stdin under TOPIC at the broker URL.

    Ends when the broker has processed everything. URL is fmqp://host:port, or
    lightmq://host:port/client-id, where TOPIC is 'up' and the broker carries the message as
    lightmq/CLIENT-ID/up.

    With --will or --will-payload the connection is held until stdin ends (Ctrl-D), so that the
    will is published then, or whenever this program dies. FMQP brokers do not deliver empty
    messages, and discard those above their limit (fmqp.max_body, 1 MiB) without a word.

    With --reconnect every message reaches a broker, and a few may do so twice: after a loss, what
    the broker has not shown to have processed is sent again, and the last will is left there anew.

    --json prints url, topic, messages, payload_bytes, processed (whether the broker has processed
    them all) and duration_s, whatever ended the command.

    Exit codes: 0 processed by the broker, 1 not, 2 wrong arguments, 124 nobody subscribed within
    --wait, 130 Ctrl-C.
    """
    if sum([payload is not None, text is not None, file is not None, whole, lines, null]) != 1:
        raise click.UsageError("give one of PAYLOAD, --message, --file, --stdin, --lines, --null")
    if will_payload is None and (will_topic is not None or will_retain is not None):
        raise click.UsageError("--will-topic and --will-retain need --will-payload")
    if wait_s is not None and not wanted:
        raise click.UsageError("--wait is for --wanted")
    if lines and repeat != 1:
        raise click.UsageError("--lines publishes each line once; leave out --repeat")
    if will and reconnect and (lines or repeat != 1):
        raise click.UsageError("with --reconnect, --will is for one message")
    last_topic = topic if will_topic is None else will_topic
    require_topics([topic, last_topic])
    last_will = None
    if will_payload is not None:
        kept = retain if will_retain is None else will_retain
        last_will = Will(last_topic, _bytes(will_payload), kept)
    manner = FmqpManner(topic, retain, will, last_will, wanted, wait_s)
    body = _bytes(payload or text or "") if file is None else content(file)
    source = Source(body, whole, lines, repeat)
    say = speaker("pub", quiet)
    delivery = Delivery(
        lambda: _outlet(url, timeout_s, manner, say),
        Reconnection(again=reconnect, say=say),
        say,
        repeat_all=will and reconnect,
        repeat_last=last_will is not None and last_will.topic.strip("/") == topic.strip("/"),
    )
    with (
        failing_clearly("pub", ClientError),
        usage_errors(),
        contextlib.closing(delivery),
        _telling_what_may_be_lost(delivery, say),
        _accounting(url, topic, delivery) if as_json else contextlib.nullcontext(),
    ):
        delivery.open()
        stdin = StandardInput(delivery.watch)
        _publish(delivery, source.messages(stdin), delay_s)
        if (will or last_will is not None) and not (whole or lines):
            say("holding the connection until stdin ends (Ctrl-D)")
            stdin.until_end()


def _outlet(url: str, timeout_s: float, manner: FmqpManner, say: Callable[[str], None]) -> Outlet:
    client = connect(url, timeout_s=timeout_s)
    try:
        if isinstance(client, FmqpClient):
            return FmqpOutlet(client, manner, say)
        if manner != FmqpManner("up"):
            raise click.UsageError(
                "LightMQ has no topics, retained messages, wills or feedback: a client can "
                f"only send up; write: motemq pub {url} up PAYLOAD"
            )
        return LightmqOutlet(client, timeout_s)
    except BaseException:
        client.close()
        raise


@contextlib.contextmanager
def _accounting(url: str, topic: str, delivery: Delivery) -> Iterator[None]:
    """Print what was published, also of what ended before its time; nothing of what never began."""
    began = time.monotonic()

    def put_account() -> None:
        account = {
            "url": url,
            "topic": topic,
            "messages": delivery.sent,
            "payload_bytes": delivery.sent_bytes,
            "processed": delivery.processed,
            "duration_s": round(time.monotonic() - began, 6),
        }
        put(json.dumps(account, ensure_ascii=False).encode() + b"\n")

    try:
        yield
    except (BadArgument, click.UsageError):
        raise
    except BaseException:
        put_account()
        raise
    put_account()


@contextlib.contextmanager
def _telling_what_may_be_lost(delivery: Delivery, say: Callable[[str], None]) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if delivery.unconfirmed:
            say(f"messages that may not have arrived: {delivery.unconfirmed}")
        raise
    except ClientError as error:
        if delivery.sent < 2:
            raise  # there is no doubt about which message is meant
        text = f"{error} (messages sent before: {delivery.sent}; the last of them may be lost)"
        raise ClientError(text) from error


def _publish(delivery: Delivery, messages: Iterator[bytes], delay_s: float) -> None:
    next_at = 0.0
    for body in messages:
        if delay_s and next_at:
            delivery.watch(until=next_at)
        delivery.send(body)
        # A steady rate, but no rush after a wait.
        next_at = max(time.monotonic(), (next_at or time.monotonic()) + delay_s)
    delivery.finish()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
