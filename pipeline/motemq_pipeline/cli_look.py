"""``motemq pipeline query``, ``compact`` and ``package``."""

import csv
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import click

from motemq_pipeline.cli_errors import FOLDER, interruptible, need, refusals
from motemq_pipeline.errors import PipelineError

_TABLES = click.option(
    "--tables", type=FOLDER, required=True, help="What 'run' or 'backfill' wrote."
)
_SHOWN = 80  # characters of a cell on a terminal


@click.command()
@click.argument("sql")
@_TABLES
@click.option("--json", "form", flag_value="json", help="A JSON object a line.")
@click.option("--csv", "form", flag_value="csv", help="CSV with a header.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=1000,
    show_default=True,
    help="At most so many rows; 0: all.",
)
@click.option("--master", metavar="URL", help="Where Spark runs; sc://HOST:PORT: a Connect server.")
def query(sql: str, tables: Path, form: str | None, limit: int, master: str | None) -> None:
    """Ask the tables in Spark SQL: motemq pipeline query "select …" --tables DIR.

    Every table is a view of its name (docs/tables.md). Times are UTC. Rows that --limit leaves
    out are said on stderr.
    """
    need(tables)
    from motemq_pipeline.elsewhere import any_session
    from motemq_pipeline.failures import in_words, spark_log
    from motemq_pipeline.views import answer

    settings = {"spark.master": master} if master else None
    with (
        refusals(),
        interruptible(),
        spark_log() as log,
        any_session(log, settings=settings) as spark,
        in_words(log),
    ):
        names, rows = answer(spark, sql, tables, limit)
        _print(names, islice(rows, limit or None), form or "table")
        if next(rows, None) is not None:
            click.echo(f"pipeline: only the first {limit} rows; see --limit", err=True)


def _print(names: list[str], rows: Iterator[tuple[Any, ...]], form: str) -> None:
    if form == "json":
        for row in rows:
            click.echo(json.dumps(dict(zip(names, map(_plain, row), strict=True))))
    elif form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        for row in rows:
            writer.writerow([_plain(value) for value in row])
    else:
        _table(names, [[_cell(value) for value in row] for row in rows])


def _table(names: list[str], rows: list[list[str]]) -> None:
    widths = [max(len(text) for text in column) for column in zip(names, *rows, strict=True)]
    for row in (names, ["-" * width for width in widths], *rows):
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _cell(value: Any) -> str:
    plain = _plain(value)
    text = "" if plain is None else plain if isinstance(plain, str) else json.dumps(plain)
    text = text.replace("\n", "\\n")
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: times ISO 8601 UTC, bytes as text with \\xNN escapes."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


@click.command()
@_TABLES
def compact(tables: Path) -> None:
    """Put many small files together to few large ones; needs no Spark.

    Runs beside 'run' and readers, which are not disturbed: files that are no longer needed stay
    for a minute. 'run' does a part of it by itself.
    """
    need(tables)
    from motemq_pipeline.compaction import compact as put_together

    with refusals(), interruptible():
        done = put_together(tables)
        if not done:
            raise PipelineError(f"there are no tables in {tables}")
        for each in done:
            click.echo(f"  {each.table:<20} {each.before:>6} files -> {each.after}")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER")
def package(folder: Path) -> None:
    """Write what spark-submit takes: FOLDER/motemq.zip for executors, FOLDER/motemq_run.py.

    spark-submit --master spark://… --py-files motemq.zip motemq_run.py run CONFIG. Without
    spark-submit, 'run --master spark://…' does it by itself.
    """
    from motemq_pipeline.packaging import write_submission

    try:
        for file in write_submission(folder):
            click.echo(file)
    except OSError as error:
        with refusals():
            raise PipelineError(f"cannot write into {folder}: {error.strerror}") from error
