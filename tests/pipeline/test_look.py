"""Looking at tables: SQL, exports, compaction, as commands and within Spark."""

import csv
import gc
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from py4j.protocol import Py4JError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from motemq_pipeline.cli import command
from motemq_pipeline.cli_look import _print
from motemq_pipeline.delta import Table
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.failures import JSON_LOGGERS, in_one_line, in_words, spark_log, why_java_ended
from motemq_pipeline.parquet_files import Target, written_by
from motemq_pipeline.schemas import DATE, TABLES, arrow_schema, columns
from motemq_pipeline.sql import Answer, by_duckdb, by_spark
from motemq_pipeline.storage import Storage
from tests.pipeline.conftest import Tables, rows_of

_END_S = 240.0


def _ask(by: str, spark: SparkSession) -> Callable[[str, Storage, int], Answer]:
    return by_duckdb if by == "duckdb" else partial(by_spark, spark)


@pytest.mark.parametrize("by", ["duckdb", "spark"])
def test_every_table_is_a_view(spark: SparkSession, desk: Tables, by: str) -> None:
    answer = _ask(by, spark)
    sql = "select board, complete from gold_board_health where board like 'vpico%' order by board"
    names, rows = answer(sql, desk.place, 0)
    assert (names, list(rows)) == (
        ["board", "complete"],
        [("vpico-1", True), ("vpico-2", True)],
    )
    for table in TABLES:
        _, counted = answer(f"select count(*) from {table}", desk.place, 10)
        assert list(counted) == [(len(desk.rows(table)),)]


def test_names_are_taken_in_any_case_as_duckdb_does(desk: Tables) -> None:
    _, rows = by_duckdb('SELECT COUNT(*) FROM Bronze_Messages, "GOLD_FLEET"', desk.place)
    assert list(rows) == [(len(desk.rows("bronze_messages")) * len(desk.rows("gold_fleet")),)]


@pytest.mark.parametrize("name", ["it's", "site=lab", "date=2020-01-01", "a[1]*?"])
def test_folders_of_any_name_are_asked(tmp_path: Path, name: str) -> None:
    place = Storage.at(tmp_path / name)
    hot = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    alerts = [{"alert": "known", "raised_at": hot}, {"alert": "of no day"}]
    schema = arrow_schema("alerts")
    table, target = Table(place, "alerts"), Target("alerts")
    table.create()
    batch = pa.RecordBatch.from_pylist(alerts, schema=schema.remove(schema.get_field_index(DATE)))
    table.add(written_by(place, target, iter([batch])), "test", 0)
    names, rows = by_duckdb("select * from alerts order by alert", place)
    assert names == columns("alerts")
    known, other = (dict(zip(names, row, strict=True)) for row in rows)
    assert (known["alert"], known["raised_at"], known["date"]) == ("known", hot, hot.date())
    assert (other["alert"], other["raised_at"], other["date"]) == ("of no day", None, None)
    _, counted = by_duckdb("select count(*) from alerts where date = '2026-01-02'", place)
    assert list(counted) == [(1,)]


@pytest.mark.parametrize("by", ["duckdb", "spark"])
def test_one_row_more_than_the_limit_tells_that_there_are_more(
    spark: SparkSession, desk: Tables, by: str
) -> None:
    _, rows = _ask(by, spark)("select seq from bronze_messages", desk.place, 5)
    assert len(list(rows)) == 6


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("selct 1", "syntax error"),
        ("select x from gold_fleet", 'column "x" not found'),
        ("select * from gold_flet", "Table with name gold_flet does not exist! There are bronze"),
    ],
)
def test_a_mistake_is_one_line_of_duckdbs(desk: Tables, sql: str, told: str) -> None:
    with pytest.raises(PipelineError, match=told) as caught:
        by_duckdb(sql, desk.place)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("sql", ["show tables", "select name from (show all tables)"])
def test_the_tables_there_are_can_be_asked_for(desk: Tables, sql: str) -> None:
    assert {name for (name,) in by_duckdb(sql, desk.place)[1]} == set(TABLES)


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("drop table gold_fleet", "a query reads the tables, and DROP reads none; write select"),
        ("insert into gold_fleet from gold_fleet", "and INSERT reads none"),
        ("update gold_fleet set board = 'x'", "and UPDATE reads none"),
        ("create table mine as from gold_fleet", "and CREATE reads none"),
        ("select 1; select 2", "one statement of SQL, not 2"),
        (" ", "one statement of SQL, not 0"),
    ],
)
def test_what_asks_nothing_is_told(desk: Tables, sql: str, told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        by_duckdb(sql, desk.place)


def test_what_does_not_fit_into_memory_is_gone_once_the_answer_is(
    desk: Tables, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is among temporary files, for nobody else to read, and not where somebody asks."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    _, rows = by_duckdb("select current_setting('temp_directory')", desk.place)
    (made,) = tmp_path.iterdir()
    assert made.stat().st_mode & 0o777 == 0o700
    assert list(rows) == [(str(made),)]
    assert not made.exists()
    _, rows = by_duckdb("select 1", desk.place)  # and nobody asks for its rows
    assert list(tmp_path.iterdir())
    del rows
    assert not list(tmp_path.iterdir())
    with pytest.raises(PipelineError):
        by_duckdb("select nothing", desk.place)
    gc.collect()
    assert not list(tmp_path.iterdir())

    def out_of_threads(**_: object) -> None:
        assert list(tmp_path.iterdir())
        raise duckdb.IOException("no more threads")

    monkeypatch.setattr(duckdb, "connect", out_of_threads)
    with pytest.raises(duckdb.IOException):
        by_duckdb("select 1", desk.place)
    assert not list(tmp_path.iterdir())


def test_rows_come_as_they_are_asked_for(desk: Tables) -> None:
    """An answer of any length takes the memory of a few batches."""
    last = 50_000_000
    late = f"case when i = {last} then error('too late') else i end"
    _, rows = by_duckdb(f"select {late} from range({last} + 1) t(i)", desk.place)
    assert next(rows) == (0,)
    with pytest.raises(PipelineError, match="too late"):  # in what is read at once
        by_duckdb(f"select {late} from range({last - 9}, {last} + 1) t(i)", desk.place)


@pytest.mark.parametrize(
    "sql",
    [
        "copy (select 1) to 'FILE' (MORE)",
        "copy (pivot gold_fleet on board using count(*)) to 'FILE' (MORE)",
        "explain analyze copy (select 1) to 'FILE' (MORE)",
        "with x as (copy (select 1) to 'FILE' (MORE)) select * from x, gold_fleet",
        "WITH x AS MATERIALIZED (COPY gold_fleet TO 'FILE' (MORE)) FROM x",
    ],
)
def test_a_question_to_duckdb_overwrites_no_file(desk: Tables, tmp_path: Path, sql: str) -> None:
    """DuckDB takes some of these for questions."""
    place = tmp_path / "tables"
    shutil.copytree(desk.folder, place)
    file = next(place.glob("gold_fleet/*.parquet"))
    before = file.read_bytes()
    asked = sql.replace("FILE", str(file)).replace("MORE", "format csv, use_tmp_file false")
    with pytest.raises(PipelineError, match=r"COPY reads none|Cannot access file .*disabled"):
        list(by_duckdb(asked, Storage.at(place))[1])
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    "sql",
    [
        "from json_execute_serialized_sql('HIDDEN')",
        "from gold_fleet, json_execute_serialized_sql('HIDDEN')",
        "from \"Query\"('from \"Json_execute_serialized_sql\"(''HIDDEN'')'), gold_fleet",
    ],
)
def test_a_question_that_duckdb_takes_from_a_text_writes_no_file(
    desk: Tables, tmp_path: Path, sql: str
) -> None:
    file = tmp_path / "file"
    copy = f"with x as (copy (select 1) to '{file}' (format csv)) from x"
    ((plan,),) = duckdb.execute("select json_serialize_sql(?)", [copy]).fetchall()
    hidden = plan.replace("COPY", "\\u0043OPY")  # JSON's other way to write it
    with pytest.raises(PipelineError, match=r"Cannot access file .*disabled"):
        list(by_duckdb(sql.replace("HIDDEN", hidden), desk.place)[1])
    assert not file.exists()


@pytest.mark.parametrize(
    "sql",
    [
        "from enable_logging(storage = 'file', storage_path = 'PLACE')",
        "from gold_fleet, enable_logging(storage = 'file', storage_path = 'PLACE')",
        "explain analyze from enable_logging(storage = 'file', storage_path = 'PLACE')",
        "from enable_profiling(format = 'json', save_location = 'PLACE')",
        "from query('from enable_logging(storage = ''file'', storage_path = ''PLACE'')')",
    ],
)
def test_a_question_to_duckdb_sets_no_file_to_write(desk: Tables, tmp_path: Path, sql: str) -> None:
    with pytest.raises(PipelineError, match="the configuration has been locked"):
        list(by_duckdb(sql.replace("PLACE", str(tmp_path / "log.json")), desk.place)[1])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "sql",
    [
        "pivot gold_fleet on board using count(*)",
        "from query('from gold_fleet')",
        "explain analyze from gold_fleet",
        "select 'COPY' from gold_fleet",
        "with x as (from gold_fleet) from x",
    ],
)
def test_questions_of_every_kind_are_answered(desk: Tables, sql: str) -> None:
    assert list(by_duckdb(sql, desk.place)[1])


def test_a_question_to_spark_changes_no_table(
    spark: SparkSession, desk: Tables, tmp_path: Path
) -> None:
    """Spark takes a view of one file for a place to write to, and deletes what was there."""
    shutil.copytree(desk.folder / "gold_flakes", tmp_path / "gold_flakes")
    place = Storage.at(tmp_path)
    before = rows_of(tmp_path, "gold_flakes")
    assert len(before) > 0
    assert len(Table(place, "gold_flakes").files()) == 1
    nothing = ", ".join("null" for _ in columns("gold_flakes"))
    with pytest.raises(PipelineError), spark_log() as log, in_words(log):
        by_spark(spark, f"insert overwrite gold_flakes select {nothing}", place, 5)
    log.unlink(missing_ok=True)
    assert rows_of(tmp_path, "gold_flakes") == before


@pytest.mark.parametrize(
    "sql",
    [
        "insert overwrite directory '{}' using parquet select 1 as one",
        "with a as (select 1 as one) insert overwrite directory '{}' using csv select * from a",
        "from gold_fleet insert overwrite directory '{}' using csv select board",
        "create table more using parquet location '{}' as select 1 as one",
        "create or replace temporary view gold_fleet as select 1 as one",
        "drop view gold_fleet",
        "set spark.sql.shuffle.partitions = 3",
        "add jar '{}'",
        "execute immediate \"insert overwrite directory '{}' using csv select 1\"",
        "explain execute immediate \"insert overwrite directory '{}' using csv select 1\"",
        "call system.nothing()",
        "select transform(board) using 'tee {}' as (board string) from gold_fleet",
    ],
)
def test_spark_is_asked_and_told_nothing(
    spark: SparkSession, desk: Tables, tmp_path: Path, sql: str
) -> None:
    place = tmp_path / "place"
    with pytest.raises(PipelineError, match="write select"):
        by_spark(spark, sql.format(place), desk.place, 5)
    assert not place.exists()


@pytest.mark.parametrize(
    "sql",
    [
        "show tables",
        "describe gold_fleet",
        "explain select board from gold_fleet",
        "with a as (select board from gold_fleet) select count(*) from a where board in (table a)",
        "values (1), (2)",
    ],
)
def test_spark_is_asked_in_many_ways(spark: SparkSession, desk: Tables, sql: str) -> None:
    _, rows = by_spark(spark, sql, desk.place, 5)
    assert len(list(rows)) > 0


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("select nothing from nowhere", "nowhere"),
        ("selct 1", "Syntax error at or near 'selct'"),
        ("select nothing from gold_fleet", "`nothing` cannot be resolved"),
    ],
)
def test_a_mistake_in_sql_is_one_line(
    spark: SparkSession, desk: Tables, monkeypatch: pytest.MonkeyPatch, sql: str, told: str
) -> None:
    loggers = [PySparkLogger.getLogger(name) for name in JSON_LOGGERS]
    pages: list[logging.LogRecord] = []
    for logger in loggers:
        monkeypatch.setattr(logger, "handle", pages.append)  # what it would write to stderr
    with pytest.raises(PipelineError) as caught, spark_log() as log, in_words(log):
        by_spark(spark, sql, desk.place, 5)
    assert "\n" not in str(caught.value)
    assert told in str(caught.value)
    assert pages == []
    assert not log.exists() or str(log) in str(caught.value)
    log.unlink(missing_ok=True)


def test_what_java_says_is_one_line_also_where_pyspark_does_not_translate_it() -> None:
    words = (
        "An error occurred while calling o59.load.\n"
        ": org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to find it"
        "\n\tat org.apache.spark.x(y.scala:1)\n"
    )
    with pytest.raises(PipelineError) as caught, spark_log() as log, in_words(log):
        raise Py4JError(words)
    assert str(caught.value) == (
        f"Spark failed: [DATA_SOURCE_NOT_FOUND] Failed to find it; its log is {log}"
    )
    log.unlink()


def test_what_a_python_of_sparks_lacks_is_found_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    lacks = "ImportError: cannot import name 'descriptor' from 'google'"
    log.write_text(f"ERROR x\n  File y\n{lacks}\n")
    assert in_one_line("TransformWithState worker exited unexpectedly (crashed)\n at x", log) == (
        "Spark failed: TransformWithState worker exited unexpectedly (crashed): "
        f"{lacks}; its log is {log}"
    )


def test_a_master_that_does_not_understand_us_is_told(tmp_path: Path) -> None:
    """What PySpark says is that its context is stopped; this is of a master of Spark 4.1."""
    log = tmp_path / "log"
    log.write_text(
        "01:35:58 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: All "
        "masters are unresponsive! Giving up.\n"
    )
    assert why_java_ended(log) == (
        "All masters are unresponsive; a master must be of Spark 4.3, as the driver is"
    )


def test_our_own_errors_are_found_in_sparks_traces() -> None:
    trace = "Job aborted\n  at java\npyspark_motemq.records.JournalError: it is corrupt\n at x"
    assert in_one_line(trace, Path("log")) == "it is corrupt"
    assert in_one_line("a\nb", Path("log")) == "Spark failed: a; its log is log"
    of_python = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to plan: Traceback (most recent call last):\n"
        '  File "worker.py", line 227, in main\n    read()\n'
        "ModuleNotFoundError: No module named 'msgspec'\n SQLSTATE: 38000\n"
    )
    assert in_one_line(of_python, Path("log")) == (
        "Spark failed: [PYTHON_DATA_SOURCE_ERROR] Failed to plan: ModuleNotFoundError: No module "
        "named 'msgspec'; its log is log"
    )
    of_a_cause = (
        "Error while instantiating 'x.Builder':\n\nJVM stacktrace:\njava.lang.X: Error\n\tat x\n"
        "Caused by: java.lang.Y\n\tat y\n"
        "Caused by: org.apache.spark.Z: [INVALID_CONF_VALUE] The value 'many' is none.\n\tat z\n"
    )
    assert in_one_line(of_a_cause, Path("log")) == (
        "Spark failed: Error while instantiating 'x.Builder': [INVALID_CONF_VALUE] The value "
        "'many' is none.; its log is log"
    )
    unknown = "\n ;\n[PARSE_SYNTAX_ERROR] Syntax error at 'selct'.;\n== SQL ==\n"
    assert in_one_line(unknown, Path("log")) == (
        "Spark failed: [PARSE_SYNTAX_ERROR] Syntax error at 'selct'.; its log is log"
    )


_ROWS = [
    (datetime(2026, 1, 2, 3, 4, 5, 600000, UTC), b"\xff ok", None, 1.5, "a,b\nc", {"k": [1]}),
]
_NAMES = ["at", "payload", "none", "value", "text", "map"]


@pytest.mark.parametrize("form", ["json", "csv", "table"])
def test_values_as_people_and_programs_read_them(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _print(_NAMES, iter(_ROWS), form)
    out = capsys.readouterr().out
    if form == "json":
        assert json.loads(out) == {
            "at": "2026-01-02T03:04:05.600000Z",
            "payload": "\\xff ok",
            "none": None,
            "value": 1.5,
            "text": "a,b\nc",
            "map": {"k": [1]},
        }
    elif form == "csv":
        header, row = csv.reader(out.splitlines(keepends=True))
        assert header == _NAMES
        assert row[:5] == ["2026-01-02T03:04:05.600000Z", "\\xff ok", "", "1.5", "a,b\\nc"]
    else:
        names, line, row_text = out.splitlines()
        assert names.split() == _NAMES
        assert set(line) == {"-", " "}
        assert "2026-01-02T03:04:05.600000Z" in row_text
        assert "a,b\\nc" in row_text


@pytest.mark.parametrize("form", [["--json"], ["--csv"], []])
def test_an_output_that_fails_is_one_clear_line(tmp_path: Path, form: list[str]) -> None:
    Table(Storage.at(tmp_path), "alerts").create()
    words = ["query", "select 1 as n from range(3)", "--tables", str(tmp_path), *form]
    with open("/dev/full", "wb") as full:  # a real device on which every write fails
        done = subprocess.run(
            [sys.executable, "-m", "motemq", "pipeline", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=_END_S,
            env=os.environ | {"PYTHONUNBUFFERED": ""},
        )
    assert done.stderr == "Error: cannot write: No space left on device\n"
    assert done.returncode == 3


def test_json_is_json_and_has_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    row = (1, 2, 3, float("nan"), {"k": [float("inf"), 1.5]})
    _print(["board", "board", "board_1", "x", "y"], iter([row]), "json")

    def refuse(word: str) -> None:
        raise ValueError(f"JSON has no {word}")

    assert json.loads(capsys.readouterr().out, parse_constant=refuse) == {
        "board": 1,
        "board_1": 2,
        "board_1_1": 3,
        "x": None,
        "y": {"k": [None, 1.5]},
    }


def test_an_answer_without_columns_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    _print([], iter(()), "table")
    assert capsys.readouterr().out == ""


@pytest.mark.timeout(600)
def test_a_query_as_a_command(desk: Tables) -> None:
    argv = [sys.executable, "-m", "motemq", "pipeline", "query"]
    sql = "select seq, path from bronze_messages where partition = 0 order by 1"
    done = subprocess.run(
        [*argv, sql, "--tables", str(desk.folder), "--limit", "2", "--csv"],
        capture_output=True,
        text=True,
        timeout=_END_S,
    )
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        ["seq,path", "0,telemetry/vpico-1/temperature", "1,telemetry/vpico-1/humidity"],
    )
    assert done.stderr == "pipeline: only the first 2 rows; see --limit\n"
    assert "py4j" not in done.stdout


def test_what_a_query_that_was_killed_left_goes_with_the_next(
    desk: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    argv = [sys.executable, "-m", "motemq", "pipeline", "query", "--tables", str(desk.folder)]
    until = time.monotonic() + _END_S
    with subprocess.Popen([*argv, "select sum(i) from range(1000000000000) t(i)"]) as endless:
        while not list(tmp_path.glob("motemq-query-*/.owner")):
            assert time.monotonic() < until
            time.sleep(0.05)
        endless.kill()
    assert list(tmp_path.glob("motemq-query-*"))
    subprocess.run([*argv, "select 1"], check=True, stdout=subprocess.DEVNULL, timeout=_END_S)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_a_query_that_duckdb_is_busy_with(
    desk: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    argv = [sys.executable, "-m", "motemq", "pipeline", "query", "--tables", str(desk.folder)]
    endless = "select sum(i) from range(1000000000000000) t(i)"
    until = time.monotonic() + _END_S
    with subprocess.Popen([*argv, endless], stderr=subprocess.PIPE, text=True) as process:
        try:
            while not list(tmp_path.glob("motemq-query-*/.owner")):
                assert time.monotonic() < until
                time.sleep(0.05)
            begun_s = _processor_s(process.pid)
            while _processor_s(process.pid) < begun_s + 2:  # far more than what is before DuckDB
                assert time.monotonic() < until
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, told) == (130, "pipeline: interrupted; Spark is stopped\n")


def _processor_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _command(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(command, [str(argument) for argument in arguments])
    return done.exit_code, done.output


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_an_export_has_every_row(desk: Tables, tmp_path: Path, form: str) -> None:
    code, out = _command("report", "--tables", desk.folder, "--export", form, tmp_path / "out")
    assert code == 0, out
    for written in desk.progress:
        file = tmp_path / "out" / f"{written.table}.{form}"
        expected = Table(desk.place, written.table).dataset().to_table().to_pylist()
        if form == "parquet":
            assert pq.read_table(file).to_pylist() == expected
        else:
            with file.open(newline="") as text:
                rows = list(csv.DictReader(text))
            assert len(rows) == len(expected)
    if form == "csv":
        with (tmp_path / "out" / "silver_quarantine.csv").open(newline="") as text:
            payloads = [row["payload"] for row in csv.DictReader(text)]
        assert "\\xff\\xfe" in payloads
    assert [name for name in (tmp_path / "out").iterdir() if name.name.startswith(".")] == []


def test_a_report_of_nothing_is_wrong_usage(desk: Tables) -> None:
    code, out = _command("report", "--tables", desk.folder)
    assert code == 2
    assert "give --out FILE.html, --export parquet|csv DIR, or both" in out


def test_folders_without_tables_are_told(tmp_path: Path) -> None:
    for arguments in (
        ("compact", "--tables", tmp_path),
        ("report", "--tables", tmp_path, "--export", "csv", tmp_path / "out"),
    ):
        code, out = _command(*arguments)
        assert code == 3
        assert f"there are no tables in {tmp_path}" in out


def test_a_package_has_our_code_only(tmp_path: Path) -> None:
    code, out = _command("package", tmp_path / "dist")
    assert (code, out.splitlines()) == (
        0,
        [str(tmp_path / "dist" / "motemq.zip"), str(tmp_path / "dist" / "motemq_run.py")],
    )
    imported = subprocess.run(
        [sys.executable, "-c", "import pyspark_motemq; print(pyspark_motemq.__file__)"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(tmp_path / "dist" / "motemq.zip")},
        timeout=_END_S,
    )
    assert str(tmp_path / "dist" / "motemq.zip") in imported.stdout, imported.stderr
