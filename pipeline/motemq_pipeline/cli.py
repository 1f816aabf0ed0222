"""``motemq pipeline``: journals and rig results to tables and a report."""

import re
import tempfile
import time
from pathlib import Path

import click

from motemq_pipeline import store
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.registry import BUILT_IN, load_registry
from motemq_pipeline.schemas import TABLES

_CANNOT = 3
_INTERRUPTED = 130
_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


class _Refused(click.ClickException):
    exit_code = _CANNOT

    def show(self, file: object = None) -> None:
        click.secho(f"pipeline: error: {self.message}", fg="red", err=True)


@click.group(name="pipeline", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Turn a broker's journal and a rig's results into tables and a report.

    Exit codes: 0 done, 2 wrong usage or a folder that does not exist, 3 it could not be done
    (the reason is the last line), 130 interrupted.
    """


@command.command()
@click.option("--journal", type=_FOLDER, required=True, help="The broker's DATA/journal.")
@click.option("--rig", type=_FOLDER, required=True, help="The rig's OUT/rig.")
@click.option(
    "--tables",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder for the Parquet tables; made if missing, tables in it are replaced.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the HTML report too.",
)
@click.option(
    "--registry",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    default=BUILT_IN,
    help="TOML rules: which paths carry telemetry.  [default: the built-in rules]",
)
def run(journal: Path, rig: Path, tables: Path, report: Path | None, registry: Path) -> None:
    """Write all tables from a journal and rig results, with Spark on this machine.

    The same input gives the same tables. The broker may be running: what it has journalled at
    the start is read.
    """
    started = time.monotonic()
    # Spark's own words; kept only when an error sends a person there.
    with tempfile.NamedTemporaryFile(prefix="motemq-spark-", suffix=".log", delete=False) as file:
        log = Path(file.name)
    try:
        _run(journal.absolute(), rig.absolute(), tables.absolute(), registry, log)
    except PipelineError as error:
        if str(log) not in str(error):
            log.unlink(missing_ok=True)
        raise _Refused(str(error)) from None
    except KeyboardInterrupt:
        log.unlink(missing_ok=True)
        click.secho("pipeline: interrupted; Spark is stopped", fg="red", err=True)
        raise SystemExit(_INTERRUPTED) from None
    log.unlink(missing_ok=True)
    if report is not None:
        _write_report(tables, report)
    click.echo(f"pipeline: done in {time.monotonic() - started:.1f} s, tables in {tables}")


def _run(journal: Path, rig: Path, tables: Path, registry: Path, log: Path) -> None:
    # Spark costs a second to import: only those who run it pay.
    from pyspark.errors import PySparkException

    from motemq_pipeline.job import Sources, Written, write_tables
    from motemq_pipeline.session import spark_session

    def progress(written: Written) -> None:
        click.echo(f"  {written.table:<20} {written.rows:>9} rows  {written.seconds:6.1f} s")

    sources = Sources(journal, rig, load_registry(registry))
    click.echo("pipeline: starting Spark")
    with spark_session(log) as spark:
        try:
            write_tables(spark, sources, tables, progress)
        except PySparkException as error:
            text = str(error)
            log.open("a").write(text)
            raise PipelineError(_in_one_line(text, log)) from error


def _in_one_line(text: str, log: Path) -> str:
    """Return our own error out of Spark's Java and Python traces, else their first line."""
    ours = re.search(r"^(?:\S*\.)?JournalError: (.+)$", text, re.MULTILINE)
    return ours[1] if ours else f"Spark failed: {text.splitlines()[0]}; its log is {log}"


@command.command()
@click.option("--tables", type=_FOLDER, required=True, help="What 'run' wrote.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The HTML file to write.",
)
def report(tables: Path, out: Path) -> None:
    """Write the tables as one self-contained HTML file; needs no Spark."""
    _write_report(tables, out)


def _write_report(tables: Path, out: Path) -> None:
    from motemq_pipeline.report import write_report

    started = time.monotonic()
    try:
        write_report(tables, out)
    except PipelineError as error:
        raise _Refused(str(error)) from None
    click.echo(f"  {'report':<20} {out}  {time.monotonic() - started:.1f} s")


@command.command("tables")
@click.option("--tables", type=_FOLDER, required=True, help="What 'run' wrote.")
def show_tables(tables: Path) -> None:
    """Print every table with its number of rows; needs no Spark."""
    try:
        for table in TABLES:
            click.echo(f"{table:<20} {store.count(table, tables):>9}")
    except PipelineError as error:
        raise _Refused(str(error)) from None
