"""``motemq top``: what goes over a broker, live."""

import contextlib
import functools
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

import click
from rich.console import Console

from host_broker.cli import top_view
from host_broker.cli.completion import complete_topic
from host_broker.cli.failure import failing_clearly
from host_broker.cli.keyboard import keyboard
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
from host_broker.cli.screen import Quit, Screen, Text, View
from host_broker.cli.traffic import INFO, Order, Report, Traffic
from host_broker.client import ECHO_TOPICS, Client, ClientError, Message, Subscribing, Timeout

_ROWS_WITHOUT_TERMINAL = 20
_FIRST_S = 0.3  # nobody likes to look at nothing for a whole interval

_LOOK_S = 0.1  # keys are looked at this often

Write = Callable[[str, Report], str]
Say = Callable[[str], None]


@click.command()
@url_argument
@click.argument("topics", nargs=-1, metavar="[TOPIC]...", shell_complete=complete_topic)
@click.option(
    "--depth",
    type=click.IntRange(min=1),
    metavar="N",
    help="Without TOPIC: watch all topics of up to N levels; default: all.",
)
@click.option(
    "--interval",
    "interval_s",
    type=Seconds(min=0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to sum up.",
)
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Topics to show; default: what fits, {_ROWS_WITHOUT_TERMINAL} without a terminal.",
)
@click.option(
    "--sort",
    "order",
    type=click.Choice(["rate", "bytes", "messages", "topic"]),
    default="rate",
    show_default=True,
    help="What comes first: most messages/s, most bytes/s, most messages, or by name.",
)
@click.option("--once", is_flag=True, help="Sum up one interval and stop.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per interval.")
@reconnect_option
@quiet_option
@timeout_option
def command(
    url: str,
    topics: tuple[str, ...],
    depth: int | None,
    interval_s: float,
    rows: int | None,
    order: Order,
    once: bool,
    as_json: bool,
    reconnect: bool,
    quiet: bool,
    timeout_s: float,
) -> None:
    """Show the busiest topics at the broker URL (fmqp://host:port), their rates and last payloads.

    On a terminal a live table; lines with --once, and for programs. Keys: q quits, r b m t sort by
    messages/s, bytes/s, messages or topic, p pauses. Clients (this is one, too), messages/s of the
    whole broker and what it dropped are the broker's own words ($/info/...; UMQ has the first one
    only). Publishers are not told that somebody listens. Everything published comes here to be
    counted, so on a busy broker this is one more busy subscriber.
    A broker on this machine that is just starting is waited for, up to 3 s.

    Exit codes: 0 done (--once, q), 1 no connection or it was lost, 2 wrong arguments, 130 Ctrl-C,
    141 the reader of the output went away.
    """
    require_topics(url, patterns=topics)
    write = top_view.as_json if as_json else top_view.lines if once else None
    traffic = Traffic()

    def outages(view: View) -> Outages | None:
        return Outages(view.say, lambda: view.say("")) if reconnect else None

    # With --reconnect it need not be there: keys work while it is not.
    most_wait_s = 0.0 if reconnect else math.inf
    with (
        failing_clearly("top", ClientError),
        _view(traffic, url, rows, order, write, speaker("top", quiet)) as view,
        connected(url, timeout_s, outages=outages(view), most_wait_s=most_wait_s) as client,
    ):
        # First of all: who cannot do this shall hear why.
        wildcards = client.everything(depth)
        for odd in filter(None, map(client.misread, topics)):
            view.say(odd)
        # The broker's words last, and the long patterns first: what it counts since then as sent to
        # it are else these hundred subscriptions.
        wanted = topics or wildcards[::-1]
        subscription = client.begin_subscribing(*wanted, *INFO, uncounted=True)
        timing = _Timing(interval_s, once, bool(topics), timeout_s)
        first = True
        while _watch(client, subscription, traffic, view, timing, first):
            first = False
            traffic.broker_lost()


@dataclass(frozen=True, slots=True)
class _Timing:
    interval_s: float
    once: bool
    echoes: bool  # count the messages clients send to themselves to see that the broker is there
    answer_within_s: float


def _watch(
    client: Client,
    subscription: Subscribing,
    traffic: Traffic,
    view: View,
    timing: _Timing,
    first: bool,
) -> bool:
    """Count while the subscription is active; True if it was interrupted, False if it is enough.

    ``first``: a broker that was never heard has to answer in time. One that was is waited for.
    """

    def lost() -> bool:
        return not subscription.active

    def take(message: Message | None) -> None:
        if message is not None and (timing.echoes or not message.topic.startswith(ECHO_TOPICS)):
            traffic.heard(message)

    answer_by = time.monotonic() + timing.answer_within_s
    while not subscription.active:
        message = subscription.receive(_LOOK_S)
        if message is not None:
            take(message)
        elif (
            first
            and client.connections <= 1
            and time.monotonic() >= answer_by
            and not subscription.active
        ):
            raise Timeout(
                f"the broker did not answer within {timing.answer_within_s:g} s of subscribing"
                f"{client.doubt}"
            )
        view.look()
    traffic.next_interval(1.0)  # what came until now is of no interval
    began = time.monotonic()
    window_s = timing.interval_s if timing.once else min(timing.interval_s, _FIRST_S)
    while True:
        remaining_s = began + window_s - time.monotonic()
        message = subscription.receive(max(0.001, min(_LOOK_S, remaining_s)))
        if lost():
            return True
        take(message)
        now = time.monotonic()
        if now - began >= window_s:
            traffic.next_interval(now - began)
            view.show()
            if timing.once:
                return False
            began, window_s = now, timing.interval_s
        view.look()


@contextlib.contextmanager
def _view(
    traffic: Traffic, url: str, rows: int | None, order: Order, write: Write | None, say: Say
) -> Iterator[View]:
    terminal = sys.stdout is not None and sys.stdout.isatty() and not Console().is_dumb_terminal
    if write is not None or not terminal:
        if write is top_view.lines and terminal:
            write = functools.partial(top_view.lines, width=Console().width)
        text = functools.partial(write or top_view.lines, url)
        yield Text(traffic, text, rows or _ROWS_WITHOUT_TERMINAL, order, say)
        return
    with _ended_by_sigterm(), keyboard() as keys:
        screen = Screen(traffic, url, rows, order, keys)
        with screen.live, contextlib.suppress(Quit):
            yield screen


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end us through the stack, so that the terminal is given back as it was."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
