"""``motemq pipeline query``, ``live``, ``compact`` and ``package``."""

import csv
import json
import math
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import click

from host_broker.printable import printable, spreadsheet_cell
from motemq_pipeline.cli_errors import TABLES, interruptible, refusals
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.storage import Storage

_SHOWN = 80  # characters of a cell on a terminal
_LAST_PORT = 65_535


@click.command(short_help="Ask the tables in SQL.")
@click.argument("sql")
@TABLES
@click.option("--json", "form", flag_value="json", help="A JSON object a line; null for NaN.")
@click.option("--csv", "form", flag_value="csv", help="CSV with a header.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=1000,
    show_default=True,
    help="At most so many rows; 0: all.",
)
@click.option("--spark", "by_spark", is_flag=True, help="Ask Spark, in its SQL.")
@click.option("--master", metavar="URL", help="Where Spark runs; sc://HOST:PORT: a Connect server.")
def query(
    sql: str, place: Storage, form: str | None, limit: int, by_spark: bool, master: str | None
) -> None:
    """Ask the tables in SQL: motemq pipeline query "select …" --tables DIR.

    DuckDB answers at once; with --spark or --master Spark does, in its own SQL. Every table is a
    view of its name (docs/tables.md). Times are UTC. Rows that --limit leaves out are said on
    stderr.
    """
    with refusals(), interruptible():
        if by_spark or master:
            _ask_spark(sql, place, limit, form or "table", master)
            return
        from motemq_pipeline.sql import by_duckdb

        names, rows = by_duckdb(sql, place, limit)
        _show(names, rows, limit, form or "table")


def _ask_spark(sql: str, place: Storage, limit: int, form: str, master: str | None) -> None:
    from motemq_pipeline.spark_release import check_release

    check_release()
    from motemq_pipeline.failures import in_words, spark_log
    from motemq_pipeline.sessions import any_session
    from motemq_pipeline.sql import by_spark

    settings = {"spark.master": master} if master else None
    with (
        spark_log() as log,
        any_session(log, settings=settings) as spark,
        in_words(log),
    ):
        names, rows = by_spark(spark, sql, place, limit)
        _show(names, rows, limit, form)


def _show(names: list[str], rows: Iterator[tuple[Any, ...]], limit: int, form: str) -> None:
    _print(names, islice(rows, limit or None), form)
    if next(rows, None) is not None:
        click.echo(f"pipeline: only the first {limit} rows; see --limit", err=True)


def _print(names: list[str], rows: Iterator[tuple[Any, ...]], form: str) -> None:
    if form == "json":
        keys = _apart(names)
        for row in rows:
            click.echo(json.dumps(dict(zip(keys, map(_of_json, map(_plain, row)), strict=True))))
    elif form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(map(spreadsheet_cell, names))
        for row in rows:
            writer.writerow([_csv(value) for value in row])
        sys.stdout.flush()  # what cannot be written is told here
    else:
        _table(names, [[_cell(value) for value in row] for row in rows])


def _apart(names: list[str]) -> list[str]:
    """Return names that differ: the second ``board`` of a join is ``board_1``, as DuckDB has it."""
    found: list[str] = []
    for name in names:
        number, fresh = 0, name
        while fresh in found:
            number += 1
            fresh = f"{name}_{number}"
        found.append(fresh)
    return found


def _of_json(value: Any) -> Any:
    """Return a plain value with null for NaN and infinities, for which JSON has no word."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _of_json(one) for key, one in value.items()}
    return [_of_json(one) for one in value] if isinstance(value, list) else value


def _table(names: list[str], rows: list[list[str]]) -> None:
    if not names:  # the answer to a statement that has none
        return
    widths = [max(len(text) for text in column) for column in zip(names, *rows, strict=True)]
    for row in (names, ["-" * width for width in widths], *rows):
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _cell(value: Any) -> str:
    plain = _plain(value)
    text = "" if plain is None else plain if isinstance(plain, str) else json.dumps(plain)
    text = printable(text)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _csv(value: Any) -> Any:
    """Return a value as a spreadsheet shows it, and does not calculate."""
    plain = _plain(value)
    if isinstance(plain, dict | list):
        plain = json.dumps(plain)
    return spreadsheet_cell(plain) if isinstance(plain, str) else plain


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


@click.command(short_help="Show any board over any time on a page.")
@TABLES
@click.option(
    "--listen",
    default="127.0.0.1:8770",
    show_default=True,
    metavar="HOST:PORT",
    help="Where the page is; port 0: any that is free.",
)
@click.option(
    "--insecure-bind",
    is_flag=True,
    help="Allow addresses other machines can reach: whoever reaches it sees the tables.",
)
def live(place: Storage, listen: str, insecure_bind: bool) -> None:
    """Show any board over any time on a page that goes on as readings come; needs no Spark.

    The page asks the tables again every two seconds; Ctrl-C ends it.
    """
    import asyncio

    from motemq_pipeline.live.site import is_loopback, serve

    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > _LAST_PORT:
        raise click.BadParameter(f"write it as 127.0.0.1:8770, not {listen}", param_hint="--listen")
    if not is_loopback(host) and not insecure_bind:
        raise click.UsageError(
            f"other machines can reach {host}, and the page asks for no password; use 127.0.0.1, "
            "or add --insecure-bind"
        )
    with refusals():
        asyncio.run(serve(place, host, int(port), lambda url: click.echo(f"pipeline: {url}")))


@click.command(short_help="Put small files together.")
@TABLES
def compact(place: Storage) -> None:
    """Put many small files together to few large ones; needs no Spark.

    Runs beside 'run' and readers, which are not disturbed: files that are no longer needed stay
    for an hour. 'run' does it by itself.
    """
    from motemq_pipeline.delta import Table, present

    with refusals(), interruptible():
        found = present(place)
        if not found:
            raise PipelineError(f"there are no tables in {place.uri}")
        for name in found:
            before, after = Table(place, name).compact()
            click.echo(f"  {name:<20} {before:>6} files -> {after}")


@click.command(short_help="Write what spark-submit takes.")
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
