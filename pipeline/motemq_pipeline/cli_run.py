"""``motemq pipeline run`` and ``status``: the continuous run, and how it is doing."""

import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from motemq_pipeline.cli_errors import interruptible, need, refusals
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.status import (
    BRONZE,
    QueryStatus,
    RunStatus,
    behind,
    only_run,
    position,
    read_status,
)

if TYPE_CHECKING:  # what costs half a second to import, commands import when they are called
    from motemq_pipeline.config import RunConfig

_LINE_EVERY_S = 10.0  # where the output is no terminal
_NOT_RUNNING = 1
_CONNECT = "sc://"
# By what is in these, it is known how far a query is.
_TABLE_OF = {BRONZE: "bronze_messages", "silver": "silver_telemetry", "alerts": "alerts"}
_CONFIG = click.argument(
    "config", type=click.Path(path_type=Path, dir_okay=False), metavar="CONFIG"
)


@click.command(short_help="Keep the tables up to date, until Ctrl-C.")
@_CONFIG
@click.option("--once", is_flag=True, help="End when everything that is there now is in tables.")
@click.option(
    "--master",
    metavar="URL",
    help="Where Spark runs: local[*], or a cluster's spark://HOST:PORT.  [default: local[*], or "
    "what CONFIG says]",
)
@click.option("--quiet", "-q", is_flag=True, help="No progress, only errors.")
def run(config: Path, once: bool, master: str | None, quiet: bool) -> None:
    """Keep the tables of the TOML file CONFIG up to date, until Ctrl-C.

    Whatever is killed, at any moment, loses and doubles nothing: the next run goes on.

    Ctrl-C and SIGTERM end it in order, with exit code 0.
    """
    from motemq_pipeline.config import load_config

    need(config)
    with refusals(), interruptible():
        read = load_config(config)
        if master:
            read = replace(read, spark={**read.spark, "spark.master": master})
        _run(read, once, Progress(quiet))


def _run(config: "RunConfig", once: bool, progress: "Progress") -> None:
    from motemq_pipeline.spark_release import check_release

    check_release()
    from motemq_pipeline.failures import in_words, spark_log
    from motemq_pipeline.registry import load_registry
    from motemq_pipeline.run import run as keep_up
    from motemq_pipeline.sessions import any_session
    from motemq_pipeline.source_options import check_source

    load_registry(config.registry)  # mistakes are told before Spark starts
    master = config.spark.get("spark.master", "")
    if master.startswith(_CONNECT):
        raise PipelineError(
            f"{master} is a Spark Connect server, and a run needs a Spark of its own: its batches "
            "end beside the checkpoint, in this process; give it a cluster, spark://HOST:PORT, or "
            "local[*]"
        )
    check_source(config, once)
    config.place.prove()
    with only_run(config.checkpoint):
        pass  # it can be written, and nobody else goes on with it
    progress.say("starting Spark")
    with (
        _ended_by_signals() as ended,
        spark_log() as log,
        any_session(log, brief=once, settings=config.spark) as spark,
        in_words(log),
    ):
        progress.say(f"running, tables in {config.place.uri}")
        keep_up(spark, config, once, progress.show, ended)
    progress.end()


@contextmanager
def _ended_by_signals() -> Iterator[Callable[[], bool]]:
    """Give what says whether Ctrl-C or SIGTERM came."""
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda got, _: came.append(got)) for number in numbers]
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


class Progress:
    """One line that changes, on a terminal; elsewhere a line now and then."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._terminal = sys.stdout.isatty()
        self._shown = ""
        self._next = 0.0
        self._last: RunStatus | None = None
        self._unreachable: set[str] = set()
        self._given_up = 0
        self._failures: dict[str, str] = {}  # that were said, by query

    def say(self, text: str) -> None:
        """Print a line of its own."""
        if not self._quiet:
            click.echo(f"pipeline: {text}")

    def show(self, status: RunStatus) -> None:
        """Show how it goes."""
        self._last = status
        if self._quiet or not status.queries:
            return
        for broker in status.unreachable.keys() - self._unreachable:
            self._say_above(f"{status.unreachable[broker]}; it is asked again, others are read on")
        for broker in self._unreachable - status.unreachable.keys():
            self._say_above(f"{broker} answers again")
        self._unreachable = set(status.unreachable)
        for query in status.queries:
            if query.failure and self._failures.get(query.name) != query.failure:
                self._failures[query.name] = query.failure
                self._say_above(f"{query.name} failed, and is started again: {query.failure}")
        for what in status.given_up[self._given_up :]:
            self._say_above(what)
        self._given_up = len(status.given_up)
        text = "; ".join(_in_short(query) for query in status.queries)
        if self._terminal:
            click.echo(f"\r\x1b[K{in_a_line(status, _columns())}", nl=False)
        elif text != self._shown and time.monotonic() >= self._next:
            click.echo(f"pipeline: {text}")
            self._next = time.monotonic() + _LINE_EVERY_S
        self._shown = text

    def _say_above(self, text: str) -> None:
        click.echo(f"\r\x1b[K{text}" if self._terminal else f"pipeline: {text}")

    def end(self) -> None:
        """Say what was done."""
        if self._terminal and not self._quiet and self._shown:
            click.echo("")
        rows = {query.name: query.rows for query in self._last.queries} if self._last else {}
        self.say("ended; messages in this run: " + ", ".join(f"{n} {r}" for n, r in rows.items()))


def _columns() -> int:
    return shutil.get_terminal_size().columns - 1  # a full line wraps on some terminals


def in_a_line(status: RunStatus, columns: int) -> str:
    """Return how it goes in ``columns`` characters: what comes in, and who is how far behind."""
    first, *others = status.queries
    parts = [f"{first.name} {first.rows:,} rows, {first.rows_per_s:,.0f}/s, behind {_lag(first)}"]
    parts += [f"{query.name} behind {_lag(query)}" for query in others]
    pairs = zip(parts, status.queries, strict=True)
    unreachable = [f"{broker} does not answer" for broker in status.unreachable]
    text = "; ".join([*unreachable, *(f"{part}{_again(query)}" for part, query in pairs)])
    return text if len(text) <= columns else text[: columns - 1] + "…"


def _lag(query: QueryStatus) -> str:
    return "?" if query.behind is None else f"{query.behind:,}"


def _in_short(query: QueryStatus) -> str:
    return (
        f"{query.name} {query.rows:,} rows, {query.rows_per_s:,.0f}/s, behind {_lag(query)}, "
        f"batch {max(query.batch, 0)} of {query.batch_rows:,} rows in {query.batch_s:.2f} s"
        + _again(query)
    )


def _again(query: QueryStatus) -> str:
    times = "" if query.restarts == 1 else f" {query.restarts} times"
    return f", failed and started again{times}" if query.restarts else ""


@click.command(short_help="Say how the run is doing: lag, rates, last batch.")
@_CONFIG
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of lines.")
def status(config: Path, as_json: bool) -> None:
    """Say how the run of CONFIG is doing: lag, rates, last batch, gold's time; needs no Spark.

    Works while it runs and afterwards. Exit codes: 0 it is running, 1 it is not, 3 there was
    never one, or the journal cannot be asked.
    """
    from motemq_pipeline.about import read_about
    from motemq_pipeline.config import load_config

    need(config)
    with refusals():
        read = load_config(config)
        found = read_status(read.checkpoint)
        lags, unreachable = _lags(read, found)
        gold_at = read_about(read.place).get("written_at")
    if as_json:
        document = asdict(found) | {"gold_made_at": gold_at}
        for query in document["queries"]:
            query["behind"] = lags[query["name"]]
        click.echo(json.dumps(document))
    else:
        click.echo(f"{found.state}, process {found.pid}, since {found.started_at}")
        for query in found.queries:
            click.echo(
                f"  {query.name:<10} behind {lags[query.name]:,}  {query.rows:,} rows in this run, "
                f"{query.rows_per_s:,.0f}/s  batch {max(query.batch, 0)}: {query.batch_rows:,} "
                f"rows in {query.batch_s:.2f} s, {query.finished_at or 'none yet'}{_again(query)}"
            )
        click.echo(f"  {'gold':<10} last made {gold_at or 'never'}")
        for why in unreachable:
            click.echo(f"  {why}; not counted")
        for what in found.given_up:
            click.echo(f"  {what}")
    if found.state != "running":
        raise SystemExit(_NOT_RUNNING)


def _lags(config: "RunConfig", found: RunStatus) -> tuple[dict[str, int], list[str]]:
    """Return how far each query is behind, and why brokers are left out of that."""
    from motemq_pipeline.source_options import source_options, token_file
    from pyspark_motemq.blocks import JournalError
    from pyspark_motemq.options import Options

    with token_file(config) as token:
        try:
            options = Options.read(source_options(config.source, token))
            journal = options.journal()
            partitions = journal.reachable()
            unreachable = list(journal.unreachable().values())
            if options.brokers and len(unreachable) == len(options.brokers):
                raise JournalError(unreachable[0])
        except JournalError as error:
            raise PipelineError(str(error)) from error
    from motemq_pipeline.delta import Backlog, Table

    def done(query: str) -> dict[str, int] | None:
        table = Table(config.place, _TABLE_OF[query])
        return position(config.checkpoint, query, table.has)

    of_bronze = behind(done(BRONZE) or {}, partitions)
    backlog = Backlog(Table(config.place, "bronze_messages"))
    lags = {
        query.name: of_bronze
        if query.name == BRONZE
        else of_bronze + backlog.rows(done(query.name))
        for query in found.queries
    }
    return lags, unreachable
