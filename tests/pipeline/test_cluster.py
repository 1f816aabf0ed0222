"""The same run on a real cluster: by its address, and by spark-submit."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_broker.client import connect
from tests.host_broker.net.broker_process import broker
from tests.pipeline.cluster import SHORT, SPARK_SUBMIT, cluster, environment, foreign_python
from tests.pipeline.conftest import rows_of
from tests.pipeline.desk import Sender, reading, write_segment

_END_S = 800.0
pytestmark = [pytest.mark.timeout(1800), pytest.mark.alone]  # six Java processes
_OURS = ":".join(entry for entry in sys.path if entry)  # of the driver's machine
_PARTITIONS, _EACH = 4, 500


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


def _messages(partition: int) -> list[tuple[str, bytes]]:
    board = f"b{partition}"
    return [
        (f"telemetry/{board}/temperature", reading(board, seq, "temperature", seq))
        for seq in range(_EACH)
    ]


def _config(folder: Path, source: str) -> Path:
    file = folder / "run.toml"
    file.write_text(
        f'[source]\n{source}\n[tables]\nfolder = "tables"\n'
        f'[spark]\nexecutor.memory = "512m"\nexecutor.extraJavaOptions = "{SHORT}"\n'
        "sql.shuffle.partitions = 2\n"
    )
    return file


def _check(tables: Path) -> None:
    bronze = rows_of(tables, "bronze_messages")
    keys = sorted((row["partition"], row["seq"]) for row in bronze)
    assert len(keys) == len(set(keys)) == _PARTITIONS * _EACH
    sent = sorted(message for partition in range(_PARTITIONS) for message in _messages(partition))
    assert sorted((row["path"], row["payload"]) for row in bronze) == sent
    silver = rows_of(tables, "silver_telemetry")
    assert sorted((row["partition"], row["message_seq"]) for row in silver) == keys
    health = rows_of(tables, "gold_board_health")
    assert {row["board"]: row["messages"] for row in health} == {
        f"b{partition}": _EACH for partition in range(_PARTITIONS)
    }


def test_a_run_with_a_clusters_address(master: str, tmp_path: Path) -> None:
    """Its executors have never heard of motemq: the driver sends the code."""
    for partition in range(_PARTITIONS):
        run = (Sender(1 + partition, 1), _messages(partition))
        write_segment(tmp_path / "journal", partition, [run])
    config = _config(tmp_path, 'journal = "journal"')
    argv = [sys.executable, "-m", "motemq", "pipeline", "run", str(config)]
    done = subprocess.run(
        [*argv, "--once", "--master", master],
        capture_output=True,
        text=True,
        timeout=_END_S,
        env={**os.environ, "PYTHONPATH": _OURS, "PYSPARK_PYTHON": foreign_python(tmp_path)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    _check(tmp_path / "tables")


def test_spark_submit_with_the_package_from_a_broker_to_tables(master: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "motemq", "pipeline", "package", str(tmp_path / "dist")]
    made = subprocess.run(argv, capture_output=True, text=True, timeout=_END_S)
    assert (made.returncode, made.stderr) == (0, "")
    package, program = made.stdout.split()
    options = ["--listen", "auto://127.0.0.1:0", "--set", f"journal.partitions={_PARTITIONS}"]
    with broker("--data", str(tmp_path / "data"), *options) as running:
        port = running.ports["auto"]
        for partition in range(_PARTITIONS):  # a connection each
            client = connect(f"fmqp://127.0.0.1:{port}")
            with client:
                for path, payload in _messages(partition):
                    client.publish(path, payload)
                client.sync()
        source = f'brokers = "http://127.0.0.1:{port}"\ntopics = "telemetry/*/*"'
        config = _config(tmp_path, source)
        submit = [str(SPARK_SUBMIT), "--master", master, "--py-files", package]
        submit += ["--conf", "spark.driver.host=127.0.0.1", "--driver-java-options", SHORT]
        done = subprocess.run(
            [*submit, program, "run", str(config), "--once"],
            capture_output=True,
            text=True,
            timeout=_END_S,
            env=environment(
                tmp_path / "spark",
                PYTHONPATH=_OURS,
                PYSPARK_PYTHON=foreign_python(tmp_path),
            ),
        )
    assert done.returncode == 0, done.stderr
    messages = _PARTITIONS * _EACH
    assert f"pipeline: ended; messages in this run: bronze {messages}" in done.stdout
    _check(tmp_path / "tables")
