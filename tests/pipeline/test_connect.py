"""Spark Connect: a client without Java reads journals and asks tables of a server."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cluster.spark import connect_server
from motemq_pipeline.packaging import write_package
from tests.pipeline.conftest import Tables

_END_S = 400.0
pytestmark = pytest.mark.timeout(900)
_CLIENT = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from motemq_pipeline import silver
from motemq_pipeline.registry import BUILT_IN, load_registry

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
bronze = spark.read.format("motemq").option("path", sys.argv[2]).load()
print(bronze.count())
readings = silver.telemetry(silver.decoded(bronze, load_registry(BUILT_IN)))
for row in readings.groupBy("board").count().sort("board").collect():
    print(row["board"], row["count"])
stream = spark.readStream.format("motemq").option("path", sys.argv[2])
stream = stream.option("startingOffsets", "earliest").load()
query = (
    stream.writeStream.format("parquet")
    .option("path", sys.argv[3] + "/table")
    .option("checkpointLocation", sys.argv[3] + "/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination(200)
print(spark.read.parquet(sys.argv[3] + "/table").count())
"""

_ASKING = """
import json
import sys
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.sql import by_spark
from motemq_pipeline.storage import Storage

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
for sql in json.loads(sys.argv[3]):
    try:
        names, rows = by_spark(spark, sql, Storage.at(sys.argv[2]), 50)
        print(json.dumps([list(map(str, row)) for row in rows]))
    except (PipelineError, PySparkException) as error:
        print(json.dumps(f"{type(error).__name__}: {error}"))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    scratch = tmp_path_factory.mktemp("connect")
    with connect_server(scratch, write_package(scratch / "motemq.zip")) as address:
        yield address
    assert list(scratch.glob("artifacts-*"))  # which stay when it is killed, and not in /tmp


def test_a_client_reads_a_journal_in_batch_and_as_a_stream(
    server: str, desk: Tables, tmp_path: Path
) -> None:
    argv = [sys.executable, "-W", "ignore", "-c", _CLIENT, server]
    done = subprocess.run(
        [*argv, str(desk.sources.journal), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=_END_S,
    )
    assert done.returncode == 0, done.stderr
    first, *boards, streamed = done.stdout.splitlines()
    assert int(first) == int(streamed) == len(desk.rows("bronze_messages"))
    counted: dict[str, int] = {}
    for row in desk.rows("silver_telemetry"):
        counted[row["board"]] = counted.get(row["board"], 0) + 1
    assert boards == [f"{board} {count}" for board, count in sorted(counted.items())]


def _query(server: str, desk: Tables, sql: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "motemq", "pipeline", "query", sql]
    return subprocess.run(
        [*argv, "--tables", str(desk.folder), "--master", server, "--json"],
        capture_output=True,
        text=True,
        timeout=_END_S,
    )


def test_query_by_a_server(server: str, desk: Tables) -> None:
    sql = "select check, outcome from gold_checks where board_id = 'vpico-2' order by 1"
    done = _query(server, desk, sql)
    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"check": "ping", "outcome": "passed"},
        {"check": "will_abrupt", "outcome": "failed"},
    ]


def _answers(server: str, desk: Tables, questions: list[str]) -> list[Any]:
    """Return what ``by_spark`` answers to each: rows, or why there are none."""
    argv = [sys.executable, "-W", "ignore", "-c", _ASKING, server, str(desk.folder)]
    argv.append(json.dumps(questions))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_END_S)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_server_is_asked_and_told_nothing(server: str, desk: Tables, tmp_path: Path) -> None:
    place = tmp_path / "place"
    insert = f"insert overwrite directory '{place}' using csv select 1 as one"
    commands = [
        insert,
        f"with a as (select 1 as one) {insert}",
        f"from gold_fleet insert overwrite directory '{place}' using csv select board",
        f"create table more using parquet location '{place}' as select 1 as one",
        "create or replace temporary view gold_fleet as select 1 as one",
        "drop view gold_fleet",
        "set spark.sql.shuffle.partitions = 3",
        "clear cache",
        "reset",
        f'execute immediate "{insert}"',
        f'explain execute immediate "{insert}"',
        f"begin {insert}; select 1; end",
        f"select 1) t; {insert}; select * from (select 1",
    ]
    for sql, refused in zip(commands, _answers(server, desk, commands), strict=True):
        assert isinstance(refused, str), sql
    assert not place.exists()


def test_a_server_is_asked_in_many_ways(server: str, desk: Tables) -> None:
    boards = sorted({row["board"] for row in desk.rows("gold_fleet")})
    in_order = [[board] for board in boards]
    questions = {
        "select board from gold_fleet order by board;\n": in_order,
        "select board from gold_fleet order by board desc -- the last one first": in_order[::-1],
        "with a as (table gold_fleet) select board from a order by 1": in_order,
        "from gold_fleet |> select board |> order by board": in_order,
        "(select 1 as one, 2 as one) union all values (3, 4)": [["1", "2"], ["3", "4"]],
    }
    assert _answers(server, desk, list(questions)) == list(questions.values())
    shown = ["show views", "Describe gold_fleet", "\nexplain select board from gold_fleet"]
    for sql, rows in zip(shown, _answers(server, desk, shown), strict=True):
        assert isinstance(rows, list), (sql, rows)
        assert rows, sql


def test_a_mistake_in_a_question_to_a_server_is_one_line(server: str, desk: Tables) -> None:
    done = _query(server, desk, "selct 1")
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert "write select …: [PARSE_SYNTAX_ERROR] Syntax error" in line


def test_a_run_by_a_server_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text('[source]\njournal = "journal"\n[tables]\nfolder = "tables"\n')
    argv = [sys.executable, "-m", "motemq", "pipeline", "run", str(config)]
    done = subprocess.run(
        [*argv, "--master", "sc://127.0.0.1:15002"],
        capture_output=True,
        text=True,
        timeout=_END_S,
    )
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert "sc://127.0.0.1:15002 is a Spark Connect server" in line
    assert not (tmp_path / "tables").exists()


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "motemq", "pipeline", "query", "select 1"]
    done = subprocess.run(
        [*argv, "--tables", str(tmp_path), "--master", "sc://127.0.0.1:1"],
        capture_output=True,
        text=True,
        timeout=_END_S,
    )
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert "no Spark Connect server answers at sc://127.0.0.1:1" in line
