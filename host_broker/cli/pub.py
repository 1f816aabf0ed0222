"""``motemq pub``: publish messages. Why so long: half of it says what its options mean."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from host_broker.cli.completion import complete_topic
from host_broker.cli.failure import OutOfTime, failing_clearly
from host_broker.cli.interest import Interest
from host_broker.cli.options import (
    Seconds,
    connected,
    dialect_option,
    quiet_option,
    reconnect_option,
    require_topics,
    speaker,
    timeout_option,
    url_argument,
)
from host_broker.cli.outages import Outages
from host_broker.cli.property_option import property_option
from host_broker.cli.source import Source, content
from host_broker.cli.standard_input import StandardInput
from host_broker.cli.standard_output import put
from host_broker.client import BadArgument, Client, ClientError
from host_broker.client_session import PropertyValue
from host_broker.printable import json_text


@click.command()
@url_argument
@click.argument("topic", shell_complete=complete_topic)
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
@property_option
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
    type=Seconds(min=0.0),
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
    type=Seconds(min=0.0, min_open=True),
    metavar="SECONDS",
    help="With --wanted: wait no longer than this for a subscriber.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="At the end print one JSON object: what was published."
)
@dialect_option
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
    properties: dict[str, PropertyValue],
    will: bool,
    will_payload: str | None,
    will_topic: str | None,
    will_retain: bool | None,
    repeat: int,
    delay_s: float,
    wanted: bool,
    wait_s: float | None,
    as_json: bool,
    dialect: str | None,
    reconnect: bool,
    quiet: bool,
    timeout_s: float,
) -> None:
    """Publish PAYLOAD (text), a file or stdin under TOPIC at the broker URL.

    Ends when the broker has processed everything. URL is fmqp://host:port, or
    lightmq://host:port/client-id, where TOPIC is 'up' and the broker carries the message as
    lightmq/CLIENT-ID/up. Or micromsg2://host:port, where TOPIC is 'topic/a/b', or the name of a
    queue.

    LightMQ's dialect gbaranski is for brokers that never answer a SEND: none is waited for, and a
    PING at the end shows that they were taken.

    With --will or --will-payload the connection is held until stdin ends (Ctrl-D), so that the
    will is published then, or whenever this program dies. FMQP brokers do not deliver empty
    messages, and discard those above their limit (bus.max_body, 1 MiB) without a word.

    With --reconnect every message reaches a broker, and a few may do so twice: after a loss, what
    the broker has not shown to have processed is sent again, and the last will is left there anew.

    --json prints url, topic, messages, payload_bytes, processed (whether the broker has processed
    them all) and duration_s, whatever ended the command.

    A broker on this machine that is just starting is waited for, up to 3 s.

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
    require_topics(url, topics=[topic, last_topic], properties=properties or None)
    body = _bytes(payload or text or "") if file is None else content(file)
    source = Source(body, whole, lines, repeat)
    say = speaker("pub", quiet)
    outages = Outages(say, lambda: say("connected again")) if reconnect else None
    with failing_clearly("pub", ClientError), contextlib.ExitStack() as stack:
        outlet = _Outlet(topic, retain, will, properties or None, wait_s, reconnect, say)
        stack.enter_context(_telling_what_may_be_lost(outlet))
        if as_json:
            stack.enter_context(_accounting(url, outlet))
        client = stack.enter_context(
            connected(url, timeout_s, outages=outages, unseen=True, dialect=dialect)
        )
        outlet.begin(client, wanted)
        if will_payload is not None:
            kept = retain if will_retain is None else will_retain
            client.publish(last_topic, _bytes(will_payload), retain=kept, will=True)
            outlet.repeats_last = last_topic.strip("/") == topic.strip("/")
        stdin = StandardInput(lambda: client.wait(0.0))
        _publish(outlet, source.messages(stdin), delay_s)
        if (will or will_payload is not None) and not (whole or lines):
            say("holding the connection until stdin ends (Ctrl-D)")
            stdin.until_end()


class _Outlet:
    """Publishes messages under one topic, and counts them."""

    def __init__(
        self,
        topic: str,
        retain: bool,
        will: bool,
        properties: dict[str, PropertyValue] | None,
        wait_s: float | None,
        reconnect: bool,
        say: Callable[[str], None],
    ) -> None:
        """``wait_s``: the longest wait for a subscriber, if messages must be wanted."""
        self.topic = topic
        self.sent = 0  # messages, each counted once
        self.sent_bytes = 0  # of their payloads
        self.processed = False  # all of it, by the broker
        self.repeats_last = False  # on each new connection, because a will has replaced it
        self.client: Client | None = None
        self._retain = retain
        self._will = will
        self._properties = properties
        self._wait_s = wait_s
        self._limit_s = math.inf if reconnect else None
        self._say = say
        self._interest: Interest | None = None
        self._last: bytes | None = None

    def begin(self, client: Client, wanted: bool) -> None:
        """Publish by this client; ``wanted``: only while somebody subscribes."""
        self.client = client
        client.on_restored(self._restate)
        client.ignore_others()
        if wanted:
            self._interest = Interest(client, self.topic)

    def publish(self, client: Client, payload: bytes) -> None:
        """Publish. Raises ``ClientError``, and ``OutOfTime`` if nobody wants it."""
        if self._interest is not None:
            until = None if self._wait_s is None else time.monotonic() + self._wait_s
            if not self._interest.wait(until, self._say_waiting):
                raise OutOfTime(f"nobody subscribed to {self.topic} within {self._wait_s:g} s")
        self.processed = False
        self._last = payload
        client.publish(
            self.topic,
            payload,
            retain=self._retain,
            will=self._will,
            properties=self._properties,
            timeout_s=self._limit_s,
        )
        self.sent += 1
        self.sent_bytes += len(payload)

    def finish(self, client: Client) -> None:
        """Return when the broker has processed everything."""
        client.sync(self._limit_s)
        self.processed = True

    def _restate(self) -> None:
        client = self.client
        if client is not None and self.repeats_last and not client.unconfirmed:
            client.publish(
                self.topic, self._last or b"", retain=self._retain, properties=self._properties
            )

    def _say_waiting(self) -> None:
        self._say(f"nobody subscribes to {self.topic} yet; waiting")

    def say_unconfirmed(self) -> None:
        """Tell how many messages may not have arrived."""
        if self.client is not None and self.client.unconfirmed:
            self._say(f"messages that may not have arrived: {self.client.unconfirmed}")


@contextlib.contextmanager
def _accounting(url: str, outlet: _Outlet) -> Iterator[None]:
    """Print what was published, also of what ended before its time; nothing of what never began."""
    began = time.monotonic()

    def put_account() -> None:
        account = {
            "url": url,
            "topic": outlet.topic,
            "messages": outlet.sent,
            "payload_bytes": outlet.sent_bytes,
            "processed": outlet.processed,
            "duration_s": round(time.monotonic() - began, 6),
        }
        put(json_text(account).encode() + b"\n")

    try:
        yield
    except (BadArgument, click.UsageError):
        raise
    except BaseException:
        put_account()
        raise
    put_account()


@contextlib.contextmanager
def _telling_what_may_be_lost(outlet: _Outlet) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        outlet.say_unconfirmed()
        raise
    except ClientError as error:
        if outlet.sent < 2:
            raise  # there is no doubt about which message is meant
        text = f"{error} (messages sent before: {outlet.sent}; the last of them may be lost)"
        raise ClientError(text) from error


def _publish(outlet: _Outlet, messages: Iterator[bytes], delay_s: float) -> None:
    client = outlet.client
    if client is None:
        raise ValueError("an outlet publishes after it began")
    next_at = 0.0
    for body in messages:
        if delay_s and next_at:
            client.wait(max(0.0, next_at - time.monotonic()))
        outlet.publish(client, body)
        # A steady rate, but no rush after a wait.
        next_at = max(time.monotonic(), (next_at or time.monotonic()) + delay_s)
    outlet.finish(client)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
