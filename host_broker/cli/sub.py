"""``motemq sub``: print messages as they arrive."""

import functools
import math
import time

import click

from host_broker.bus.topic_filter import TopicFilter
from host_broker.cli import format_string, message_format
from host_broker.cli.completion import complete_topic
from host_broker.cli.failure import OutOfTime, failing_clearly
from host_broker.cli.options import (
    Seconds,
    connected,
    quiet_option,
    reconnect_option,
    require_topics,
    speaker,
    timeout_option,
    url_argument,
)
from host_broker.cli.outages import Outages
from host_broker.cli.wanted import Wanted
from host_broker.client import Ability, ClientError


@click.command()
@url_argument
@click.argument("topics", nargs=-1, metavar="[TOPIC]...", shell_complete=complete_topic)
@click.option("-v", "--verbose", is_flag=True, help="Print the topic before each message.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per message.")
@click.option("--pretty", is_flag=True, help="With --json: for people, on several lines.")
@click.option("--hex", "hexadecimal", is_flag=True, help="Print payloads as hexadecimal digits.")
@click.option(
    "--output",
    type=click.Choice(["line", "raw"]),
    default="line",
    show_default=True,
    help="A safe line per message, or the bytes of the payloads and nothing else.",
)
@click.option(
    "-F",
    "--format",
    "pattern",
    metavar="FORMAT",
    help="Print each message like this, e.g. '%I %t %p'; see docs/commands.md.",
)
@click.option("-N", "--no-newline", is_flag=True, help="Print no line end after a message.")
@click.option(
    "-C", "--count", type=click.IntRange(min=1), metavar="N", help="Stop after N messages, exit 0."
)
@click.option(
    "-W",
    "--timeout",
    "wait_s",
    type=Seconds(min=0.0, min_open=True),
    metavar="SECONDS",
    help="Stop this long after the start: exit 0 without --count, 124 with.",
)
@click.option(
    "-T",
    "--filter-out",
    "unwanted",
    multiple=True,
    metavar="TOPIC",
    help="Leave out messages of TOPIC, as often as wanted; a level '*' is any level.",
)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="FILTER",
    help="Only messages with such a property, as often as wanted: 'level>N5', 'room=Tkitchen' "
    "(MicroMsg2); for fq a rule: 'payload_prefix(\"x\")'.",
)
@click.option(
    "--retained-only", is_flag=True, help="Print what the broker keeps of TOPIC now, and stop."
)
@click.option(
    "-R", "--no-retained", is_flag=True, help="Leave that out; print only what comes after."
)
@click.option(
    "--remove-retained", is_flag=True, help="Clear what is kept and printed, at the broker."
)
@click.option(
    "--feedback", is_flag=True, help="Print how many subscribe to TOPIC, not what is published."
)
@click.option(
    "--debug-subscription", "debug", is_flag=True, help="Do not be counted in others' feedback."
)
@click.option("--will-topic", metavar="TOPIC", help="Leave a last will for TOPIC with the broker.")
@click.option("--will-payload", metavar="TEXT", help="The text of that will.")
@click.option("--will-retain", is_flag=True, help="The broker shall keep that will.")
@reconnect_option
@quiet_option
@timeout_option
def command(
    url: str,
    topics: tuple[str, ...],
    verbose: bool,
    as_json: bool,
    pretty: bool,
    hexadecimal: bool,
    output: str,
    pattern: str | None,
    no_newline: bool,
    count: int | None,
    wait_s: float | None,
    unwanted: tuple[str, ...],
    filters: tuple[str, ...],
    retained_only: bool,
    no_retained: bool,
    remove_retained: bool,
    feedback: bool,
    debug: bool,
    will_topic: str | None,
    will_payload: str | None,
    will_retain: bool,
    reconnect: bool,
    quiet: bool,
    timeout_s: float,
) -> None:
    """Print the messages of every TOPIC at the broker URL, one a line.

    URL is fmqp://host:port; a level '*' in TOPIC is any level. Or lightmq://host:port/client-id,
    where TOPIC is 'down': what the broker SENDs to this client, i.e. what is published under
    lightmq/CLIENT-ID/down; each is answered with an empty response. 'subscribed' is said on
    stderr when the subscription is active.

    Or micromsg2://host:port, where TOPIC is 'topic/a/b', or the name of a queue, each of whose
    messages goes to one consumer: it is acknowledged when it is printed, and whoever is next gets
    those that were not. A FILTER is a property, one of = != < <= > & ~ and N5, Ttext or D and
    seconds since 1970; of text '<' is 'begins with', '>' 'ends with', '&' 'has in it', '~' 'has
    not in it'. All filters must hold; in a value, write %25 for '%'.

    Or fq://user@host:port/queue/mem:private,drop, where TOPIC is 'EXCHANGE/ROUTE',
    'EXCHANGE/BEGINNING*' or 'EXCHANGE/PROGRAM'; a FILTER is a rule of programs. With
    ?exchange=NAME&program=PROGRAM no TOPIC is needed.

    Without a TOPIC it is everything: all topics of 1 to 128 levels, which is as far as patterns
    reach, but for the broker's own (below '$') and clients' echoes (below 'motemq/echo').
    Publishers are not told of such a listener (by MicroMsg2 they are).

    A broker on this machine that is just starting is waited for, up to 3 s.

    Lines are UTF-8; bytes that are none and control characters are written as \\xNN or \\n. For
    exact bytes take --json, --hex or --output raw. In JSON, 'kept' is true for what the broker
    kept when the subscription began; 'cache' and 'will' are the flags as published.

    With --reconnect, what is published while there is no connection is missed.

    Exit codes: 0 done, 1 no connection or it was lost, 2 wrong arguments, 124 --timeout was over
    before --count messages came, 130 Ctrl-C, 141 the reader of the output went away.
    """
    if retained_only and no_retained:
        raise click.UsageError("--retained-only and --no-retained leave nothing to print")
    if remove_retained and (no_retained or feedback):
        raise click.UsageError("--remove-retained is not for --no-retained or --feedback")
    if (will_topic is None) != (will_payload is None) or (will_retain and will_topic is None):
        raise click.UsageError("a will needs --will-topic and --will-payload")
    wills = [] if will_topic is None else [will_topic]
    # One that is said by itself may have what stands between several.
    conditions = ";".join(each.replace(";", "%3B") for each in filters)
    require_topics(url, topics=wills, patterns=unwanted)
    require_topics(url, patterns=topics, filter=conditions)
    wanted = Wanted(
        count,
        None if wait_s is None else time.monotonic() + wait_s,
        retained_only,
        no_retained,
        remove_retained,
        not topics,
        TopicFilter(unwanted),
        _format(as_json, pretty, output, pattern, verbose, hexadecimal, no_newline),
        timeout_s,
    )
    say = speaker("sub", quiet)

    def subscribed() -> None:
        if not quiet:
            click.echo("subscribed", err=True)

    with failing_clearly("sub", ClientError):
        with connected(
            url,
            timeout_s,
            outages=Outages(say) if reconnect else None,
            most_wait_s=math.inf if wait_s is None else wait_s,
        ) as client:
            if retained_only or no_retained or remove_retained:
                client.require(Ability.RETAIN)
            for odd in filter(None, map(client.misread, topics)):
                say(odd)
            if will_topic is not None and will_payload is not None:
                last = will_payload.encode("utf-8", "surrogateescape")
                client.publish(will_topic, last, retain=will_retain, will=True)
            subscription = client.begin_subscribing(
                *(topics or client.everything()),
                feedback=feedback,
                uncounted=debug or (not (topics or feedback) and Ability.UNCOUNTED in client.can),
                filter=conditions,
            )
            try:
                wanted.print_from(client, subscription, subscribed)
            finally:
                if subscription.dropped:
                    say(f"the broker dropped {subscription.dropped} messages: we were too slow")
        if count is not None and wanted.printed < count and not retained_only:
            raise OutOfTime(f"{wanted.printed} of {count} messages came within {wait_s:g} s")


def _format(
    as_json: bool,
    pretty: bool,
    output: str,
    pattern: str | None,
    verbose: bool,
    hexadecimal: bool,
    no_newline: bool,
) -> message_format.Format:
    forms = sum([as_json, output == "raw", pattern is not None, hexadecimal])
    if forms > 1 or (verbose and (output == "raw" or pattern is not None)):
        raise click.UsageError(
            "choose one of --output raw, --json, --hex, --format; -v is for lines"
        )
    if pretty and not as_json:
        raise click.UsageError("--pretty is for --json")
    chosen: message_format.Format
    if as_json:
        chosen = functools.partial(message_format.as_json, pretty=pretty)
    elif output == "raw":
        return message_format.raw
    elif pattern is not None:
        try:
            chosen = format_string.compiled(pattern)
        except format_string.FormatError as error:
            raise click.UsageError(f"--format: {error}") from error
    else:
        chosen = functools.partial(message_format.line, topic=verbose, hexadecimal=hexadecimal)
    return (lambda heard: chosen(heard)[:-1]) if no_newline else chosen
