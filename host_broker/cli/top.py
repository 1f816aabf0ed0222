"""``motemq top``: what goes over a broker, live."""

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType

import click
from rich.console import Console
from rich.live import Live

from host_broker.cli import top_view
from host_broker.cli.failure import failing_clearly
from host_broker.cli.listening import Listening
from host_broker.cli.options import connected, timeout_option, url_argument
from host_broker.cli.standard_output import put, writing
from host_broker.cli.traffic import Traffic
from host_broker.client import ClientError, FmqpClient

_DEEPEST = 128  # levels that fit into a topic's 255 bytes
_ROWS_WITHOUT_TERMINAL = 20
_FIRST_S = 0.3  # nobody likes to look at nothing for a whole interval
_INFO = ("$/info/clients", "$/info/messages/second")

Show = Callable[[Traffic, float], None]


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
@click.option("--once", is_flag=True, help="Sum up one interval and stop.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per interval.")
@timeout_option
def command(
    url: str,
    topics: tuple[str, ...],
    depth: int,
    interval_s: float,
    rows: int | None,
    once: bool,
    as_json: bool,
    timeout_s: float,
) -> None:
    """Show the busiest topics at the broker URL (fmqp://host:port), their rates and last payloads.

    On a terminal a live table, otherwise lines. Clients and messages/s of the whole broker are the
    broker's own words ($/info/...). Publishers are not told that somebody listens. Everything
    published comes here to be counted, so on a busy broker this is one more busy subscriber.

    Exit codes: 0 done (--once), 1 no connection or it was lost, 2 wrong arguments, 130 Ctrl-C,
    141 the reader of the output went away.
    """
    wildcards = topics or tuple("/".join("*" * levels) for levels in range(1, depth + 1))
    with failing_clearly("top", ClientError), connected(url, timeout_s) as client:
        if not isinstance(client, FmqpClient):
            raise click.UsageError("LightMQ clients see no topics; give the broker's fmqp:// URL")
        listening = Listening(client, (*_INFO, *wildcards), debug=True, answer_within_s=timeout_s)
        with _view(url, rows, as_json, once) as show:
            _watch(listening, interval_s, once, show)


def _watch(listening: Listening, interval_s: float, once: bool, show: Show) -> None:
    traffic = Traffic()
    while not listening.active:
        heard = listening.next(interval_s)
        if heard is not None:
            traffic.heard(heard)
    traffic.report(1.0, rows=0)  # what came until now is of no interval
    began = time.monotonic()
    window_s = interval_s if once else min(interval_s, _FIRST_S)
    while True:
        heard = listening.next(max(0.0, began + window_s - time.monotonic()))
        if heard is not None:
            traffic.heard(heard)
        now = time.monotonic()
        if now - began >= window_s:
            show(traffic, now - began)
            if once:
                return
            began, window_s = now, interval_s


@contextlib.contextmanager
def _view(url: str, rows: int | None, as_json: bool, once: bool) -> Iterator[Show]:
    console = Console()
    terminal = sys.stdout is not None and sys.stdout.isatty() and not console.is_dumb_terminal
    if as_json or once or not terminal:
        text = top_view.as_json if as_json else top_view.lines

        def show(traffic: Traffic, seconds: float) -> None:
            report = traffic.report(seconds, rows or _ROWS_WITHOUT_TERMINAL)
            put(text(url, report).encode())

        yield show
        return
    with _ended_by_sigterm(), Live(console=console, screen=True, auto_refresh=False) as screen:

        def show_live(traffic: Traffic, seconds: float) -> None:
            fits = console.size.height - top_view.LINES_AROUND_ROWS
            report = traffic.report(seconds, min(rows or fits, fits))
            with writing():
                screen.update(top_view.table(url, report), refresh=True)

        yield show_live


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
