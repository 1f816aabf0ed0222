"""``motemq pipeline``: journals and rig results to tables and a report."""

import os
import time
from pathlib import Path

import click

from motemq_pipeline.cli_errors import (
    FOLDER,
    NEW_TABLES,
    TABLES,
    interruptible,
    need,
    refusals,
)
from motemq_pipeline.cli_look import compact, live, package, query
from motemq_pipeline.cli_run import run, status
from motemq_pipeline.storage import Storage


@click.group(name="pipeline", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Turn a broker's journal and a rig's results into tables and a report.

    'run' does it all the time, 'backfill' once; the others need neither to be running.

    Exit codes: 0 done, 2 wrong usage or a folder that does not exist, 3 it could not be done
    (the reason is the last line), 130 interrupted.
    """
    # What fails is told in a line of ours; delta-rs would log pages before it.
    os.environ.setdefault("RUST_LOG", "error")


@command.command(short_help="Write all tables once, from a journal and rig results.")
@click.option("--journal", type=FOLDER, required=True, help="The broker's DATA/journal.")
@click.option("--rig", type=FOLDER, required=True, help="The rig's OUT/rig.")
@NEW_TABLES
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the HTML report too.",
)
@click.option(
    "--registry",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML rules: which paths carry telemetry.  [default: the built-in rules]",
)
def backfill(
    journal: Path, rig: Path, place: Storage, report: Path | None, registry: Path | None
) -> None:
    """Write all tables from a journal and rig results, with Spark on this machine.

    The same input gives the same tables. The broker may be running: what it has journalled at
    the start is read.
    """
    started = time.monotonic()
    need(journal, rig, *([registry] if registry else []))
    with refusals(), interruptible():
        _backfill(journal.absolute(), rig.absolute(), place, registry)
    if report is not None:
        _write_report(place, report)
    click.echo(f"pipeline: done in {time.monotonic() - started:.1f} s, tables in {place.uri}")


def _backfill(journal: Path, rig: Path, place: Storage, registry: Path | None) -> None:
    # Spark costs a second to import, pydantic half of one: only those who need them pay.
    from motemq_pipeline.spark_release import check_release

    check_release()
    from motemq_pipeline.failures import in_words, spark_log
    from motemq_pipeline.job import Sources, Written, write_tables
    from motemq_pipeline.registry import BUILT_IN, load_registry
    from motemq_pipeline.sessions import spark_session

    def progress(written: Written) -> None:
        click.echo(f"  {written.table:<20} {written.rows:>9} rows  {written.seconds:6.1f} s")

    sources = Sources(journal, rig, load_registry(registry or BUILT_IN))
    place.prove()
    click.echo("pipeline: starting Spark")
    with spark_log() as log, spark_session(log) as spark, in_words(log):
        write_tables(spark, sources, place, progress)


@command.command(short_help="Write one HTML file, or a file a table.")
@TABLES
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The HTML file to write.",
)
@click.option(
    "--export",
    type=(click.Choice(["parquet", "csv"]), click.Path(path_type=Path, file_okay=False)),
    default=None,
    metavar="parquet|csv DIR",
    help="Write every table as one file, DIR/NAME.parquet or DIR/NAME.csv.",
)
def report(place: Storage, out: Path | None, export: tuple[str, Path] | None) -> None:
    """Write the tables as one self-contained HTML file, or as files; needs no Spark."""
    if out is None and export is None:
        raise click.UsageError("give --out FILE.html, --export parquet|csv DIR, or both")
    if out is not None:
        _write_report(place, out)
    if export is not None:
        from motemq_pipeline.report.export import export_tables

        with refusals(), interruptible():
            for table, rows in export_tables(place, *export):
                click.echo(f"  {table:<20} {rows:>9} rows")


def _write_report(place: Storage, out: Path) -> None:
    from motemq_pipeline.report import write_report

    started = time.monotonic()
    with refusals():
        write_report(place, out)
    click.echo(f"  {'report':<20} {out}  {time.monotonic() - started:.1f} s")


@command.command("tables", short_help="Print every table with its number of rows.")
@TABLES
def show_tables(place: Storage) -> None:
    """Print every table with its number of rows; needs no Spark."""
    from motemq_pipeline.delta import Table, present

    with refusals():
        for name in present(place) or ["bronze_messages"]:
            click.echo(f"{name:<20} {Table(place, name).count():>9}")


for _more in (run, status, query, live, compact, package):
    command.add_command(_more)
