"""A run on a real cluster: machines with addresses of their own, an object store, and faults.

Master, workers, brokers, store and driver are in network namespaces. The executors' Python has what
docs/pipeline.md says and nothing else.
"""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from benchmarks.faults.count import journalled
from host_broker.client import connect
from motemq_pipeline.delta import Table
from motemq_pipeline.sql import by_duckdb
from motemq_pipeline.storage import Storage
from pyspark_motemq.journal import PARTITIONS
from tests.host_broker.net.broker_process import line_of, spawn
from tests.pipeline.cluster import SHORT, SPARK_SUBMIT, Cluster, clean_python, environment
from tests.pipeline.desk import reading
from tests.pipeline.lan import Machine, lan
from tests.pipeline.object_store import ObjectStore, object_store

_END_S = 500.0
pytestmark = [pytest.mark.timeout(1800), pytest.mark.alone]  # six Java processes
_OURS = ":".join(entry for entry in sys.path if entry)  # of the driver's machine
_TOKEN = "not-so-secret"
_BROKERS = ("broker1", "broker2")
_NAMES = ("driver", "master", "worker1", "worker2", *_BROKERS, "store")
_STEP = 200  # messages that a broker is sent at a time


@dataclass
class Network:
    """All machines, what runs on them, and what was published and acknowledged."""

    machines: dict[str, Machine]
    cluster: Cluster
    store: ObjectStore
    folder: Path
    running: ExitStack
    sent: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_BROKERS, 0))
    brokers: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def start_broker(self, name: str) -> None:
        digest = hashlib.sha256(_TOKEN.encode()).hexdigest()
        machine = self.machines[name]
        argv = [*machine.prefix, sys.executable, "-m", "motemq", "broker"]
        argv += ["--data", str(self.folder / name), "--listen", f"auto://{machine.address}:8765"]
        argv += [
            "--insecure-bind",
            "--set",
            f"http.token=sha256:{digest}",
            "--set",
            "journal.partitions=2",
        ]
        self.brokers[name] = process = spawn(argv)
        self.running.callback(process.communicate)
        self.running.callback(process.kill)
        assert line_of(process, _END_S).startswith("listening auto")

    def kill_broker(self, name: str) -> None:
        self.machines[name].kill()
        self.brokers[name].communicate(timeout=_END_S)

    def publish(self, name: str) -> None:
        """Publish some more, and wait until the broker has them in its journal."""
        first = self.sent[name]
        with connect(f"fmqp://{self.machines[name].address}:8765") as client:
            for number in range(first, first + _STEP):
                path = f"telemetry/{name}/temperature"
                client.publish(path, reading(name, number, "temperature", number))
            client.sync()
        self.sent[name] += _STEP

    def journalled(self) -> dict[tuple[int, int], tuple[str, bytes]]:
        """Return all messages of both journals, as tables number them."""
        return {
            (at * PARTITIONS + partition, number): message
            for at, name in enumerate(_BROKERS)
            for (partition, number), message in journalled(self.folder / name / "journal").items()
        }

    def config(self, folder: Path, tables: str) -> Path:
        (folder / "token").write_text(_TOKEN)
        urls = [f"http://{self.machines[name].address}:8765" for name in _BROKERS]
        file = folder / "run.toml"
        file.write_text(
            f'[source]\nbrokers = {urls}\ntoken_file = "token"\nmax_rows = 1000\n'
            f'[tables]\nfolder = "{tables}"\ncheckpoint = "checkpoint"\n'
            f'[run]\ngold_every = "1h"\n'
            f'[spark]\nexecutor.memory = "512m"\nexecutor.extraJavaOptions = "{SHORT}"\n'
            "sql.shuffle.partitions = 2\ntask.maxFailures = 100\n"
        )
        return file

    def environment(self, scratch: Path) -> dict[str, str]:
        hidden = {"SPARK_LOCAL_IP", "SPARK_CONF_DIR"}
        kept = {key: value for key, value in os.environ.items() if key not in hidden}
        python = clean_python(scratch / "python", "pyspark[sql]", "deltalake")
        ours = {"PYTHONPATH": _OURS, "PYSPARK_PYTHON": python}
        return {**kept, **self.store.environment, **ours}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    folder = tmp_path_factory.mktemp("network")
    with lan(*_NAMES) as machines, ExitStack() as running:
        place = machines["store"]
        store = object_store(folder / "store", place.address, place.prefix)
        cluster = Cluster(
            machines["master"], [machines["worker1"], machines["worker2"]], folder / "spark"
        )
        made = Network(machines, cluster, running.enter_context(store), folder, running)
        cluster.start(running)
        for name in _BROKERS:
            made.start_broker(name)
        yield made


def _rows(place: Storage) -> list[tuple[tuple[int, int], tuple[str, bytes]]]:
    sql = "select partition, seq, path, payload from bronze_messages order by 1, 2"
    return [((row[0], row[1]), (row[2], row[3])) for row in by_duckdb(sql, place)[1]]


def test_whatever_dies_or_is_cut_off_each_message_is_there_once(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in network.store.environment.items():
        monkeypatch.setenv(name, value)
    place = Storage.at("s3://tables/faults")
    config = network.config(tmp_path, place.uri)
    machines, bronze = network.machines, Table(place, "bronze_messages")
    env = network.environment(tmp_path)
    argv = [*machines["driver"].prefix, sys.executable, "-m", "motemq", "pipeline", "run"]
    argv += [str(config), "--master", network.cluster.address, "--quiet"]
    log = tmp_path / "driver.log"

    def start() -> "subprocess.Popen[bytes]":
        with log.open("ab") as words:
            driver = subprocess.Popen(argv, stdout=words, stderr=words, env=env)
        network.running.callback(driver.wait)
        network.running.callback(driver.kill)
        return driver

    def all_there(driver: "subprocess.Popen[bytes]", *names: str) -> None:
        """Publish some more, and wait until what all brokers have is in the table."""
        for name in names or _BROKERS:
            network.publish(name)
        expected = sum(network.sent.values())
        deadline = time.monotonic() + _END_S
        while not (bronze.exists() and bronze.count() >= expected):
            assert driver.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)

    driver = start()
    all_there(driver)
    # A worker with its executor, in the middle of work.
    network.publish("broker1")
    machines["worker1"].kill()
    all_there(driver)
    network.cluster.start_worker(network.running, machines["worker1"])
    # A broker: what the other one gets is there before it is back.
    network.kill_broker("broker2")
    all_there(driver, "broker1")
    network.start_broker("broker2")
    all_there(driver, "broker2")
    # The cable of a broker.
    network.publish("broker1")
    machines["broker1"].cut()
    all_there_but = sum(network.sent.values())
    network.publish("broker2")
    machines["broker1"].mend()
    all_there(driver)
    assert bronze.count() > all_there_but
    # The driver, in the middle of work.
    network.publish("broker2")
    machines["driver"].kill()
    driver.wait(_END_S)
    driver = start()
    all_there(driver)
    rows = _rows(place)
    assert len({key for key, _ in rows}) == len(rows) == sum(network.sent.values())
    assert dict(rows) == network.journalled()
    driver.terminate()
    assert driver.wait(_END_S) == 0, log.read_text()


def test_spark_submit_with_the_package(network: Network, tmp_path: Path) -> None:
    for name in _BROKERS:
        network.publish(name)
    argv = [sys.executable, "-m", "motemq", "pipeline", "package", str(tmp_path / "dist")]
    made = subprocess.run(argv, capture_output=True, text=True, timeout=_END_S)
    assert (made.returncode, made.stderr) == (0, "")
    package, program = made.stdout.split()
    config = network.config(tmp_path, str(tmp_path / "tables"))
    driver = network.machines["driver"]
    submit = [*driver.prefix, str(SPARK_SUBMIT), "--master", network.cluster.address]
    submit += ["--py-files", package, "--driver-java-options", SHORT]
    # Of two values, that of the command line holds.
    submit += ["--conf", "spark.sql.shuffle.partitions=3"]
    env = environment(tmp_path / "spark", SPARK_LOCAL_IP=driver.address)
    done = subprocess.run(
        [*submit, program, "run", str(config), "--once"],
        capture_output=True,
        text=True,
        timeout=_END_S,
        env={**env, **network.environment(tmp_path)} | {"SPARK_LOCAL_IP": driver.address},
    )
    assert done.returncode == 0, done.stderr
    messages = len(network.journalled())
    assert f"pipeline: ended; messages in this run: bronze {messages}" in done.stdout
    place = Storage.at(tmp_path / "tables")
    assert dict(_rows(place)) == network.journalled()
    ((boards, readings),) = by_duckdb(
        "select count(*), sum(messages) from gold_board_health", place
    )[1]
    assert (boards, readings) == (len(_BROKERS), messages)
