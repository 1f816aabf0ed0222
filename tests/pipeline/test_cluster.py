"""The same run on a real cluster: by its address."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from motemq_pipeline import store
from tests.pipeline.cluster import cluster, foreign_python
from tests.pipeline.desk import Sender, reading, write_segment

_END_S = 400.0
pytestmark = [pytest.mark.timeout(900), pytest.mark.alone]  # six Java processes
_OURS = ":".join(entry for entry in sys.path if entry)  # of the driver's machine
_PARTITIONS, _EACH = 4, 500


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


def _config(folder: Path) -> Path:
    for partition in range(_PARTITIONS):
        board = f"b{partition}"
        messages = [
            (f"telemetry/{board}/temperature", reading(board, seq, "temperature", seq))
            for seq in range(_EACH)
        ]
        write_segment(folder / "journal", partition, [(Sender(1 + partition, 1), messages)])
    file = folder / "run.toml"
    file.write_text(
        '[source]\njournal = "journal"\n[tables]\nfolder = "tables"\n'
        '[spark]\nexecutor.memory = "512m"\nexecutor.extraJavaOptions = "-XX:+UseSerialGC"\n'
        "sql.shuffle.partitions = 2\n"
    )
    return file


def _check(tables: Path) -> None:
    bronze = store.dataset("bronze_messages", tables).to_table().to_pylist()
    keys = sorted((row["partition"], row["seq"]) for row in bronze)
    assert keys == [(p, n) for p in range(_PARTITIONS) for n in range(_EACH)]
    silver = store.dataset("silver_telemetry", tables).to_table().to_pylist()
    assert sorted((row["partition"], row["message_seq"]) for row in silver) == keys
    health = store.dataset("gold_board_health", tables).to_table().to_pylist()
    assert {row["board"]: row["messages"] for row in health} == {
        f"b{partition}": _EACH for partition in range(_PARTITIONS)
    }


def test_a_run_with_a_clusters_address(master: str, tmp_path: Path) -> None:
    """Its executors have never heard of motemq: the driver sends the code."""
    config = _config(tmp_path)
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
