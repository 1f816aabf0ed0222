"""``python -m benchmarks alerts``."""

import tempfile
from pathlib import Path

import click

from benchmarks.alerts import rules
from benchmarks.broker.report import machine
from benchmarks.faults.processes import Failed
from motemq_pipeline.errors import PipelineError


@click.command()
@click.option("--rate", default=1000.0, show_default=True, type=click.FloatRange(10.0, 50_000.0))
@click.option("--seconds", default=20.0, show_default=True, type=click.FloatRange(3.0, 600.0))
@click.option("--no-spark", is_flag=True, help="The rules alone.")
def command(rate: float, seconds: float, no_spark: bool) -> None:
    """Measure the rules of alerts alone, and a query of them beside a live broker.

    Exit codes: 0 measured, 1 Spark or the broker did not do its part, 2 wrong usage.
    """
    click.echo(machine())
    try:
        with tempfile.TemporaryDirectory(prefix="motemq-bench-") as name:
            folder = Path(name)
            _rules(folder)
            if not no_spark:
                _live(folder, rate, seconds)
    except (Failed, PipelineError) as error:
        click.echo(f"alerts benchmark: {error}", err=True)
        raise SystemExit(1) from None


def _rules(folder: Path) -> None:
    click.echo("\n| boards of a shard | rows to events/s | events/s | state ms | bytes a board |")
    click.echo("|---|---|---|---|---|")
    for boards in (20, 200, 1250):
        found = rules.measure(folder, boards)
        click.echo(
            f"| {boards} | {found.to_events:,.0f} | {found.judged:,.0f} | {found.state_ms:.1f} | "
            f"{found.board_bytes:.0f} |"
        )


def _live(folder: Path, rate: float, seconds: float) -> None:
    from benchmarks.alerts import live
    from motemq_pipeline.sessions import spark_session

    with spark_session(folder / "spark.log", brief=False) as spark:
        found = live.measure(spark, folder / "live", rate, seconds)
    click.echo(
        f"\nlive, {rate:g} readings/s: first batch after {found.start_s:.1f} s; a batch takes "
        f"{found.idle_ms:.0f} ms idle, {found.loaded_ms:.0f} ms with {found.loaded_rows:.0f} rows; "
        f"from a value out of range to its alert p50 {found.heard_p50_ms:.0f} ms, "
        f"max {found.heard_max_ms:.0f} ms"
    )
