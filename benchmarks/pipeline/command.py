"""``python -m benchmarks pipeline``."""

import tempfile
from pathlib import Path

import click

from benchmarks.broker.report import machine
from benchmarks.pipeline import batch, live
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.session import spark_session

_NAMES = ("batch", "live-1k", "live-20k")
_RATES = {"live-1k": 1_000, "live-20k": 20_000}
_MUST_OF_PARQUET, _MUST_OF_TUPLES, _MUST_MS = 0.5, 3.0, 400.0


@click.command()
@click.argument("names", nargs=-1, metavar="[MEASURE]...", type=click.Choice(_NAMES))
@click.option("--messages", default=1_000_000, show_default=True, type=click.IntRange(1000))
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1, 50))
@click.option("--seconds", default=15.0, show_default=True, type=click.FloatRange(1.0, 600.0))
def command(names: tuple[str, ...], messages: int, rounds: int, seconds: float) -> None:
    """Read journals with Spark: in batches against Parquet and tuples, and live from a broker.

    Without a MEASURE all are taken: batch, live-1k and live-20k (messages per second, --seconds
    each). Exit codes: 0 measured (reached or not), 1 Spark did not start, 2 wrong usage.
    """
    chosen = names or _NAMES
    try:
        with tempfile.TemporaryDirectory(prefix="motemq-bench-") as folder:
            place = Path(folder)
            with spark_session(place / "spark.log", brief=False) as spark:
                click.echo(machine())
                if "batch" in chosen:
                    _batch(batch.measure(spark, place, messages, rounds, _tell))
                for name in chosen:
                    if name in _RATES:
                        _tell(f"{name}: {seconds:g} s")
                        _live(live.measure(spark, place / name, _RATES[name], seconds))
    except PipelineError as error:
        click.echo(f"pipeline benchmark: {error}", err=True)
        raise SystemExit(1) from None


def _batch(found: batch.Result) -> None:
    click.echo(f"\nbatch read of {found.messages:,} messages, local[*], median of the rounds\n")
    click.echo("| source | rows/s | ours/theirs | must reach | reached |\n|---|---|---|---|---|")
    musts = {"parquet": _MUST_OF_PARQUET, "tuples": _MUST_OF_TUPLES}
    for source in batch.SOURCES:
        cells = [source, f"{found.rate(source):,.0f}"]
        if source in musts:
            ratio, must = found.ratio(source), musts[source]
            cells += [f"{ratio:.2f}", f"{must:g}", "yes" if ratio >= must else "**no**"]
        else:
            cells += ["", "", ""]
        click.echo("| " + " | ".join(cells) + " |")


def _live(found: live.Result) -> None:
    reached = "yes" if found.p50_ms <= _MUST_MS else "**no**"
    click.echo(
        f"\nlive, {found.rate:,} messages/s, {found.messages:,} in all: published to queryable "
        f"p50 {found.p50_ms:.0f} ms, p90 {found.p90_ms:.0f}, p99 {found.p99_ms:.0f}; "
        f"{found.batch_rows:.0f} rows a micro-batch; p50 at most {_MUST_MS:.0f}: {reached}"
    )


def _tell(line: str) -> None:
    click.echo(line, err=True)
