"""SQL over the tables: by DuckDB, which answers at once, or by Spark."""

import contextlib
import json
import re
import shutil
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from host_broker.scratch_folder import scratch_folder
from motemq_pipeline.delta import Table, present
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.schemas import DATE, DATED_BY, TABLES
from motemq_pipeline.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Answer = tuple[list[str], Iterator[tuple[Any, ...]]]  # names of the columns, and rows
_BATCH_ROWS: Final = 10_000
_PIVOT: Final = "MULTI"
# Spark's nodes of what is to be done, of which some are no commands to it, and how the names of
# those begin that only look.
_COMMAND: Final = "org.apache.spark.sql.catalyst.plans.logical.Command"
_ACTS: Final = ("Insert", "Call", "UnresolvedExecuteImmediate", "ScriptTransformation")
_LOOKS: Final = ("Show", "Describe")
_EXPLAINS: Final = "ExplainCommand"
_SHOWS: Final = re.compile(r"\s*(show|desc|describe)\b", re.IGNORECASE)
_EXPLAIN: Final = re.compile(r"\s*explain\s+((extended|codegen|cost|formatted)\s+)?", re.IGNORECASE)
_BEHIND_SQL: Final = "; \t\r\n"
_QUESTIONS: Final = {"SELECT", "EXPLAIN", _PIVOT}
# DuckDB's functions that take a question as a text, in which a COPY may be.
_ASKS_A_TEXT: Final = re.compile(r'"function_name":"(query|json_execute_serialized_sql)"')
_TAKEN: Final = re.compile(r"[*?\[=]")  # what DuckDB finds in a path: patterns, columns


def by_duckdb(sql: str, place: Storage, limit: int = 0) -> Answer:
    """Answer in DuckDB's SQL, with at most ``limit`` rows (0: all) as they come.

    With a limit, one row more follows if there are more. Raises ``PipelineError`` for what is not
    one question, else with DuckDB's words; what fails at a later row, when that is asked for.
    """
    import duckdb

    with contextlib.ExitStack() as opened:
        # What does not fit into memory; else it would be in the folder that somebody is in.
        spilled = opened.enter_context(scratch_folder("motemq-query-"))
        connection = opened.enter_context(duckdb.connect(config={"temp_directory": str(spilled)}))
        # Also if nobody asks for a row: then both are let go of at once.
        weakref.finalize(connection, shutil.rmtree, spilled, ignore_errors=True)
        connection.execute("SET TimeZone = 'UTC'")
        with _duckdbs_words():
            _refuse_changes([one.type.name for one in connection.extract_statements(sql)])
            reads = _only_reads(connection, sql)
            for name in _named(connection, sql) or present(place):
                _make_view(connection, Table(place, name), from_files=reads)
            if not reads:
                connection.execute("SET enable_external_access = false")
            # A function may set a file for DuckDB's log, or for its profile.
            connection.execute("SET lock_configuration = true")
            found: Any = connection.sql(sql)
            if found is None:
                return [], iter(())
            pool = opened.enter_context(ThreadPoolExecutor(1, "motemq-query"))
            batches = _interruptible(connection, pool, lambda: found.to_arrow_reader(_BATCH_ROWS))
            first = list(islice(batches, 1))  # most of what fails does so at once
        rows = _as_they_come(chain(first, batches), limit, opened.pop_all())
        return list(found.columns), rows


def _interruptible(
    connection: Any, pool: ThreadPoolExecutor, begin: Callable[[], Iterable[Any]]
) -> Iterator[Any]:
    """Yield batches that the pool's thread waits for, so that Ctrl-C ends the wait.

    DuckDB itself hears no signal while it makes an Arrow batch.
    """
    try:
        batches = iter(pool.submit(begin).result())
        while (batch := pool.submit(next, batches, None).result()) is not None:
            yield batch
    except KeyboardInterrupt:
        connection.interrupt()
        raise


@contextlib.contextmanager
def _duckdbs_words() -> Iterator[None]:
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise PipelineError(_in_one_line(str(error))) from None


def _as_they_come(
    batches: Iterator[Any], limit: int, opened: contextlib.ExitStack
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of batches, with a limit one more than that; then close what is opened."""
    left = limit + 1
    with opened, _duckdbs_words():
        for batch in batches:
            wanted = batch.slice(0, left) if limit else batch
            yield from _rows(wanted)
            left -= wanted.num_rows
            if limit and left <= 0:
                return


def _refuse_changes(statements: list[str]) -> None:
    """Refuse what is not one question; ``statements`` are DuckDB's names for what is asked."""
    if len(statements) != 1:
        raise PipelineError(f"a query is one statement of SQL, not {len(statements)}")
    if statements[0] not in _QUESTIONS:
        raise PipelineError(
            f"a query reads the tables, and {statements[0].replace('_', ' ')} reads none; "
            "write select …; --csv and --json are for files"
        )


def _only_reads(connection: Any, sql: str) -> bool:
    """Whether a question can be seen to write no file.

    ``EXPLAIN ANALYZE``, ``PIVOT`` and ``WITH`` may have a COPY within, which may be to a table's
    file. The first two DuckDB does not show; what it shows of others has the kinds of their parts,
    and the names of the functions that they call.
    """
    ((shown,),) = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    hides = '"COPY' in shown or _ASKS_A_TEXT.search(shown.lower())
    return not json.loads(shown)["error"] and not hides


def _named(connection: Any, sql: str) -> list[str]:
    """Return the tables that a statement names; none if it names none, as SHOW TABLES."""
    if connection.extract_statements(sql)[0].type.name == _PIVOT:
        return []  # DuckDB does not say what it names
    found = {name.lower() for name in connection.get_table_names(sql)}
    return [name for name in TABLES if name in found]


def _make_view(connection: Any, table: Table, from_files: bool) -> None:
    """Make a table a view of its name.

    Files on a disk are read by DuckDB itself, three times as fast as through pyarrow, if it may
    (``from_files``); of an object store it knows nothing without an extension that it would have to
    fetch.
    """
    folder, files = table.storage.folder, table.files()
    if not from_files or folder is None or not files or _TAKEN.search(str(folder)):
        connection.register(table.name, table.dataset())
        return
    paths = ", ".join(literal(str(folder / file.path)) for file in files)
    days = f", hive_types = {{{literal(DATE)}: DATE}}" if table.name in DATED_BY else ""
    connection.execute(
        f"CREATE VIEW {table.name} AS "
        f"FROM read_parquet([{paths}], hive_partitioning = {bool(days)}{days})"
    )


def literal(text: str) -> str:
    """Return a text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def _rows(batch: Any) -> Iterator[tuple[Any, ...]]:
    columns = [_values(column) for column in batch.columns]
    return zip(*columns, strict=True) if columns else iter(())


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column; times not by pyarrow, which imports pandas for them."""
    kind = column.type
    if not pa.types.is_timestamp(kind) or kind.tz not in (None, "UTC") or kind.unit == "ns":
        found: list[Any] = column.to_pylist()
        return found
    zero = datetime(1970, 1, 1, tzinfo=UTC if kind.tz else None)
    microseconds = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).to_pylist()
    return [None if each is None else zero + timedelta(microseconds=each) for each in microseconds]


def _in_one_line(text: str) -> str:
    """Return what DuckDB says, without the picture of where; for tables, those there are."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    message = " ".join(line for line in lines if not line.startswith(("LINE ", "^")))
    unknown = re.search(r"Table with name \S+ does not exist!", message)
    return f"{unknown[0]} There are {', '.join(TABLES)}" if unknown else message


def register(spark: "SparkSession", place: Storage) -> list[str]:
    """Make every table that is in a place a temporary view of its name; return the names.

    A view is the table at this moment, to read: an INSERT into it is refused. Raises
    ``PipelineError`` if there is none.
    """
    found = present(place)
    if not found:
        raise PipelineError(
            f"there are no tables in {place.uri}; 'motemq pipeline run' and "
            "'motemq pipeline backfill' write them"
        )
    for name in found:
        # Spark would write into files that are a view by themselves; not into what it selects.
        Table(place, name).read(spark).select("*").createOrReplaceTempView(name)
    return found


def by_spark(spark: "SparkSession", sql: str, place: Storage, limit: int) -> Answer:
    """Answer in Spark's SQL, otherwise as ``by_duckdb``. Raises what Spark raises."""
    register(spark, place)
    session = getattr(spark, "_jsparkSession", None)
    if session is None:
        found = _asked_of_server(spark, sql)
    else:
        _refuse_commands(spark, session, sql)
        found = spark.sql(sql)
    if limit:
        found = found.limit(limit + 1)
    rows = (tuple(row) for row in found.toLocalIterator())
    return found.columns, rows


def _asked_of_server(spark: "SparkSession", sql: str) -> "DataFrame":
    """Return what a Spark Connect server answers. It has no way to parse a command, and not do it.

    So it gets a question as a part of one: there its grammar has no place for a command. It has
    none for SHOW and DESCRIBE either, and no command begins with these words.
    """
    from pyspark.errors import ParseException

    explain = _EXPLAIN.match(sql)
    before, question = (explain[0], sql[explain.end() :]) if explain else ("", sql)
    if not _SHOWS.match(sql):
        sql = f"{before}SELECT * FROM (\n{question.rstrip(_BEHIND_SQL)}\n)"
    try:
        return spark.sql(sql)
    except ParseException as error:
        raise PipelineError(
            f"a query reads the tables; write select …: {str(error).strip().splitlines()[0]}"
        ) from error


def _refuse_commands(spark: "SparkSession", session: Any, sql: str) -> None:
    """Refuse what does anything but read; ``session``: Java's."""
    gateway: Any = spark.sparkContext._gateway
    command = gateway.jvm.java.lang.Class.forName(_COMMAND)
    unseen = [session.sessionState().sqlParser().parsePlan(sql)]
    while unseen:
        plan = unseen.pop()
        name = plan.getClass().getSimpleName()
        if name == _EXPLAINS:  # to explain EXECUTE IMMEDIATE, Spark does it
            unseen.append(plan.logicalPlan())
            continue
        acts = command.isInstance(plan) or name.startswith(_ACTS)
        if acts and not name.startswith(_LOOKS):
            raise PipelineError(f"a query reads the tables, and {name} does not; write select …")
        children = plan.children()
        unseen += [children.apply(at) for at in range(children.size())]
