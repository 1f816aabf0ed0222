"""``motemq top``: what goes over a broker, live."""

import contextlib
import functools
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

import click
from rich.console import Console

from host_broker.cli import top_view
from host_broker.cli.failure import failing_clearly
from host_broker.cli.keyboard import keyboard
from host_broker.cli.listening import ECHO_TOPICS, Listening
from host_broker.cli.options import (
    connected,
    quiet_option,
    reconnect_option,
    require_topics,
    speaker,
    timeout_option,
    url_argument,
)
from host_broker.cli.reconnecting import Reconnection
from host_broker.cli.screen import Quit, Screen, Text, View
from host_broker.cli.traffic import Order, Report, Traffic
from host_broker.client import ClientError, FmqpClient

_DEEPEST = 128  # levels that fit into a topic's 255 bytes
_ROWS_WITHOUT_TERMINAL = 20
_FIRST_S = 0.3  # nobody likes to look at nothing for a whole interval
_INFO = ("$/info/clients", "$/info/messages/second")

_LOOK_S = 0.1  # keys are looked at this often

Write = Callable[[str, Report], str]
Say = Callable[[str], None]


@click.command()
@url_argument
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option(
    "--depth",
    type=click.IntRange(1, _DEEPEST),
    default=8,
    show_default=True,
    metavar="N",
    help="Without TOPIC: watch all topics of up to N levels.",
)
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.1),
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
    depth: int,
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

    On a terminal a live table, otherwise lines. Keys: q quits, r b m t sort by messages/s, bytes/s,
    messages or topic, p pauses. Clients (this is one, too) and messages/s of the whole broker are
    the broker's own words ($/info/...). Publishers are not told that somebody listens. Everything
    published comes here to be counted, so on a busy broker this is one more busy subscriber.

    Exit codes: 0 done (--once, q), 1 no connection or it was lost, 2 wrong arguments, 130 Ctrl-C,
    141 the reader of the output went away.
    """
    require_topics(topics)
    wildcards = topics or tuple("/".join("*" * levels) for levels in range(1, depth + 1))
    write = top_view.as_json if as_json else top_view.lines if once else None
    traffic = Traffic()
    with (
        failing_clearly("top", ClientError),
        _view(traffic, url, rows, order, write, speaker("top", quiet)) as view,
    ):
        reconnection = Reconnection(again=reconnect, say=view.say, sleep=view.wait)
        timing = _Timing(interval_s, once, bool(topics), reconnection.well)

        def session() -> None:
            traffic.broker_lost()
            with connected(url, timeout_s) as client:
                if not isinstance(client, FmqpClient):
                    raise click.UsageError(
                        "LightMQ clients see no topics; give the broker's fmqp:// URL"
                    )
                listening = Listening(
                    client, (*_INFO, *wildcards), debug=True, answer_within_s=timeout_s
                )
                _watch(listening, traffic, view, timing)

        reconnection.run(session)


@dataclass(frozen=True, slots=True)
class _Timing:
    interval_s: float
    once: bool
    echoes: bool  # count the messages clients send to themselves to see that the broker is there
    well: Callable[[], object]


def _watch(listening: Listening, traffic: Traffic, view: View, timing: _Timing) -> None:
    while not listening.active:
        heard = listening.next(_LOOK_S)
        if heard is not None:
            traffic.heard(heard)
        view.look()
    timing.well()
    view.say("")
    traffic.next_interval(1.0)  # what came until now is of no interval
    began = time.monotonic()
    window_s = timing.interval_s if timing.once else min(timing.interval_s, _FIRST_S)
    while True:
        remaining_s = began + window_s - time.monotonic()
        heard = listening.next(max(0.0, min(_LOOK_S, remaining_s)))
        if heard is not None and (timing.echoes or not heard.topic.startswith(ECHO_TOPICS)):
            traffic.heard(heard)
        now = time.monotonic()
        if now - began >= window_s:
            traffic.next_interval(now - began)
            view.show()
            if timing.once:
                return
            began, window_s = now, timing.interval_s
        view.look()


@contextlib.contextmanager
def _view(
    traffic: Traffic, url: str, rows: int | None, order: Order, write: Write | None, say: Say
) -> Iterator[View]:
    terminal = sys.stdout is not None and sys.stdout.isatty() and not Console().is_dumb_terminal
    if write is not None or not terminal:
        write = write or top_view.lines
        text = functools.partial(write, url)
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
