"""Spark Connect: a client without Java reads journals and asks tables of a server."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    scratch = tmp_path_factory.mktemp("connect")
    with connect_server(scratch, write_package(scratch / "motemq.zip")) as address:
        yield address


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


def test_query_by_a_server(server: str, desk: Tables) -> None:
    sql = "select check, outcome from gold_checks where board_id = 'vpico-2' order by 1"
    argv = [sys.executable, "-m", "motemq", "pipeline", "query", sql]
    done = subprocess.run(
        [*argv, "--tables", str(desk.folder), "--master", server, "--json"],
        capture_output=True,
        text=True,
        timeout=_END_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"check": "ping", "outcome": "passed"},
        {"check": "will_abrupt", "outcome": "failed"},
    ]


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
