"""``python -m benchmarks pipeline``."""

import tempfile
from pathlib import Path

import click

from benchmarks.broker.report import machine
from benchmarks.pipeline import batch, live, refresh, rollup
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.sessions import spark_session

_RATES = {"live-1k": 1_000, "live-20k": 20_000, "live-100k": 100_000}
_NAMES = ("batch", *_RATES, "rollup", "refresh")
_MUST_OF = {
    (batch.PARQUET, batch.ALL): 0.6,
    (batch.PARQUET, batch.FOUR): 0.9,
    (batch.TUPLES, batch.ALL): 3.0,
}
_MUST_MS = 400.0
_MUST_BE_LINEAR = 1.3  # cost of a message at the largest size over that at the smallest
# A third of what ten million messages took before (docs/benchmarks.md, 2026-11-22, 229.5 s).
_ROLLED_UP, _MUST_S = 10_000_000, 76.5
_MUST_BE_FLAT = 1.3  # a refresh on top of the most old readings over one on top of the fewest
_MUST_QUERY_S = 1.0
_NEW_IN_HOUR = 100_000


@click.command()
@click.argument("names", nargs=-1, metavar="[MEASURE]...", type=click.Choice(_NAMES))
@click.option("--messages", default=1_000_000, show_default=True, type=click.IntRange(1000))
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1, 50))
@click.option("--seconds", default=90.0, show_default=True, type=click.FloatRange(1.0, 600.0))
@click.option(
    "--sizes",
    default=rollup.SIZES,
    show_default=True,
    multiple=True,
    type=click.IntRange(10_000),
    help="Messages of a roll-up; may be given again.",
)
@click.option(
    "--old",
    default=refresh.OLD,
    show_default=True,
    multiple=True,
    type=click.IntRange(10_000),
    help="Readings that gold was made from before a refresh; may be given again.",
)
@click.option(
    "--hour",
    default=refresh.HOUR,
    show_default=True,
    multiple=True,
    type=click.IntRange(10_000),
    help="Readings that came in the hour before a refresh; may be given again.",
)
def command(
    names: tuple[str, ...],
    messages: int,
    rounds: int,
    seconds: float,
    sizes: tuple[int, ...],
    old: tuple[int, ...],
    hour: tuple[int, ...],
) -> None:
    """Read journals with Spark: in batches against Parquet and tuples, and live from a broker.

    Without a MEASURE all are taken: batch, of three shapes of journal; live-1k, live-20k and
    live-100k, messages per second into the tables of a run, --seconds each, of which the second
    half counts; rollup, journal to gold at several --sizes in a driver of 4 GB; and refresh,
    --messages new readings into gold on top of --old ones, a query of them all, and 100,000 new
    readings into an hour that has --hour already. Exit codes: 0 measured (reached or not), 1 Spark
    did not start, 2 wrong usage.
    """
    chosen = names or _NAMES
    try:
        with tempfile.TemporaryDirectory(prefix="motemq-bench-") as folder:
            place = Path(folder)
            click.echo(machine())
            if "batch" in chosen:
                with spark_session(place / "spark.log", brief=False) as spark:
                    _batch(list(batch.measure(spark, place, messages, rounds, _tell)))
            for name in chosen:
                if name in _RATES:
                    _tell(f"{name}: {seconds:g} s")
                    _live(live.measure(place / name, _RATES[name], seconds))
            if "rollup" in chosen:
                _rollup(list(rollup.measure(place, sizes, _tell)))
            if "refresh" in chosen:
                _refresh(list(refresh.measure(place, old, messages, _tell)))
                _hour(list(refresh.measure_hour(place, hour, _NEW_IN_HOUR, _tell)))
    except PipelineError as error:
        click.echo(f"pipeline benchmark: {error}", err=True)
        raise SystemExit(1) from None


def _batch(found: list[batch.Result]) -> None:
    messages = found[0].messages
    click.echo(f"\nbatch read of {messages:,} messages, local[*], median of the rounds\n")
    click.echo(
        "| messages a record | columns | motemq, rows/s | against | rows/s | ratio | must be |"
    )
    click.echo("|---|---|---|---|---|---|---|")
    for each in found:
        for (source, columns), must in _MUST_OF.items():
            ratio = each.ratio(source, columns)
            click.echo(
                f"| {each.shape:,} | {columns} | {each.rate(batch.MOTEMQ, columns):,.0f} | "
                f"{source} | {each.rate(source, columns):,.0f} | {ratio:.2f} | "
                f"{must:g}: {_yes(ratio >= must)} |"
            )
    click.echo("\nour batches, ready before, of Parquet's rate: the most that we could reach\n")
    click.echo("| messages a record | columns | ready, rows/s | ratio |")
    click.echo("|---|---|---|---|")
    for each in found:
        for columns in (batch.ALL, batch.FOUR):
            ratio = each.ratio(batch.PARQUET, columns, of=batch.READY)
            rate = each.rate(batch.READY, columns)
            click.echo(f"| {each.shape:,} | {columns} | {rate:,.0f} | {ratio:.2f} |")


def _live(found: live.Result) -> None:
    click.echo(
        f"\nlive, {found.rate:,} messages/s, {found.messages:,} in all: published to queryable "
        f"p50 {found.p50_ms:.0f} ms, p90 {found.p90_ms:.0f}, p99 {found.p99_ms:.0f}; "
        f"{found.batch_rows:.0f} rows a micro-batch; p50 at most {_MUST_MS:.0f}: "
        f"{_yes(found.p50_ms <= _MUST_MS)}"
    )


def _rollup(found: list[rollup.Result]) -> None:
    click.echo(f"\njournal to roll-ups, a driver of {rollup.DRIVER_MEMORY}, local[*]\n")
    click.echo("| messages | s | messages/s | of it roll-ups, s | Java at most, MB |")
    click.echo("|---|---|---|---|---|")
    for each in found:
        gold = sum(each.seconds[name] for name in each.seconds if name.startswith("gold_"))
        click.echo(
            f"| {each.messages:,} | {each.total_s:.1f} | {each.messages / each.total_s:,.0f} | "
            f"{gold:.1f} | {each.peak_bytes / 1e6:,.0f} |"
        )
    first, last = found[0], found[-1]
    growth = (last.total_s / last.messages) / (first.total_s / first.messages)
    click.echo(
        f"\ncost of a message at {last.messages:,} over that at {first.messages:,}: {growth:.2f}, "
        f"at most {_MUST_BE_LINEAR:g}: {_yes(growth <= _MUST_BE_LINEAR)}"
    )

    for each in found:
        if each.messages == _ROLLED_UP:
            click.echo(
                f"\n{each.messages:,} end to end: {each.total_s:.1f} s, at most {_MUST_S:g}: "
                f"{_yes(each.total_s <= _MUST_S)}"
            )


def _refresh(found: list[refresh.Result]) -> None:
    click.echo(f"\ngold's refresh, a driver of {refresh.DRIVER_MEMORY}, local[*]\n")
    click.echo("| new | on top of | s | a query of all, s | at most |")
    click.echo("|---|---|---|---|---|")
    for each in found:
        click.echo(
            f"| {each.new:,} | {each.old:,} | {each.seconds:.1f} | {each.query_s:.2f} | "
            f"{_MUST_QUERY_S:g}: {_yes(each.query_s <= _MUST_QUERY_S)} |"
        )
    growth = found[-1].seconds / found[0].seconds
    click.echo(
        f"\na refresh on top of {found[-1].old:,} over one on top of {found[0].old:,}: "
        f"{growth:.2f}, at most {_MUST_BE_FLAT:g}: {_yes(growth <= _MUST_BE_FLAT)}"
    )


def _hour(found: list[refresh.Result]) -> None:
    click.echo("\n| new | into an hour with | s | one after the other |")
    click.echo("|---|---|---|---|")
    for each in found:
        one_by_one = ", ".join(f"{seconds:.1f}" for seconds in each.each)
        click.echo(f"| {each.new:,} | {each.old:,} | {each.seconds:.1f} | {one_by_one} |")
    growth = found[-1].seconds / found[0].seconds
    click.echo(
        f"\na refresh late in an hour of {found[-1].old:,} over an early one: {growth:.2f}, "
        f"at most {_MUST_BE_FLAT:g}: {_yes(growth <= _MUST_BE_FLAT)}"
    )


def _yes(reached: bool) -> str:
    return "yes" if reached else "**no**"


def _tell(line: str) -> None:
    click.echo(line, err=True)
