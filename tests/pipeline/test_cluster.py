"""A run on a real cluster: machines with addresses of their own, an object store, and faults.

It is the short form of ``python -m benchmarks pipeline-faults cluster``.
"""

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.cluster import campaign
from benchmarks.cluster.network import BROKERS, Network, network, rows
from benchmarks.cluster.spark import SHORT, SPARK_SUBMIT, environment
from host_broker.client import connect
from motemq_pipeline.sql import by_duckdb
from motemq_pipeline.storage import Storage
from tests.pipeline.desk import reading

_END_S = 500.0
# One of each, each in the middle of work.
_FAULTS = ("worker", "broker", "cut-broker", "cut-worker", "driver")
pytestmark = [pytest.mark.timeout(1800), pytest.mark.alone]  # six Java processes


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with network(tmp_path_factory.mktemp("network")) as made:
        yield made


def test_whatever_dies_or_is_cut_off_each_message_is_there_once(
    machines: Network, tmp_path: Path
) -> None:
    told: list[str] = []
    found = campaign.run(
        machines, tmp_path, _FAULTS, 200.0, random.Random(7), told.append, longest_s=3.0
    )
    assert found.exact, (found, told)
    assert found.ended == ()
    assert len(told) == len(_FAULTS)
    assert found.acknowledged >= 1000


def test_spark_submit_with_the_package(machines: Network, tmp_path: Path) -> None:
    for name in BROKERS:
        with connect(machines.url(name)) as client:
            client.publish(f"telemetry/{name}/temperature", reading(name, 0, "temperature", 20.5))
            client.sync()
    argv = [sys.executable, "-m", "motemq", "pipeline", "package", str(tmp_path / "dist")]
    made = subprocess.run(argv, capture_output=True, text=True, timeout=_END_S)
    assert (made.returncode, made.stderr) == (0, "")
    package, program = made.stdout.split()
    config = machines.config(tmp_path, str(tmp_path / "tables"))
    driver = machines.machines["driver"]
    submit = [*driver.prefix, str(SPARK_SUBMIT), "--master", machines.cluster.address]
    submit += ["--py-files", package, "--driver-java-options", SHORT]
    # Of two values, that of the command line holds.
    submit += ["--conf", "spark.sql.shuffle.partitions=3"]
    env = environment(tmp_path / "spark", SPARK_LOCAL_IP=driver.address)
    done = subprocess.run(
        [*submit, program, "run", str(config), "--once"],
        capture_output=True,
        text=True,
        timeout=_END_S,
        env={**env, **machines.environment(tmp_path)} | {"SPARK_LOCAL_IP": driver.address},
    )
    assert done.returncode == 0, done.stderr
    journalled = machines.journalled()
    assert f"pipeline: ended; messages in this run: bronze {len(journalled)}" in done.stdout
    place = Storage.at(tmp_path / "tables")
    assert dict(rows(place)) == journalled
    ((boards, readings),) = by_duckdb(
        "select count(*), sum(messages) from gold_board_health", place
    )[1]
    assert (boards, readings) == (len(BROKERS), len(journalled))
