"""A pipeline on eight machines: driver, master, two workers, two brokers, the store, the boards.

The executors' Python has what docs/pipeline.md says and nothing else. The checkpoint is on the disk
that all of them share; tables are in the object store.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.cluster.lan import Machine, lan
from benchmarks.cluster.object_store import ObjectStore, object_store
from benchmarks.cluster.spark import EXECUTORS, SHORT, Cluster, clean_python
from benchmarks.faults.count import Message, journalled
from benchmarks.faults.processes import Failed, line, spawn
from motemq_pipeline.sql import by_duckdb
from motemq_pipeline.storage import Storage
from pyspark_motemq.journal import PARTITIONS

BROKERS = ("broker1", "broker2")
WORKERS = ("worker1", "worker2")
_NAMES = ("driver", "master", *WORKERS, *BROKERS, "store")
_PORT = 8765
_TOKEN = "not-so-secret"
_START_S = 300.0
_END_S = 300.0
_OURS = ":".join(entry for entry in sys.path if entry)  # of the driver's machine


@dataclass
class Network:
    """All machines, and what runs on them."""

    machines: dict[str, Machine]
    cluster: Cluster
    store: ObjectStore
    folder: Path
    running: ExitStack
    _brokers: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def url(self, broker: str) -> str:
        """Return where boards publish."""
        return f"fmqp://{self.machines[broker].address}:{_PORT}"

    def start_broker(self, name: str) -> None:
        """Start a broker, the first time or after it was killed."""
        digest = hashlib.sha256(_TOKEN.encode()).hexdigest()
        machine = self.machines[name]
        argv = [*machine.prefix, sys.executable, "-m", "motemq", "broker", "--insecure-bind"]
        argv += ["--data", str(self.folder / name), "--listen", f"auto://{machine.address}:{_PORT}"]
        argv += ["--set", f"http.token=sha256:{digest}", "--set", "journal.partitions=2"]
        process = self._brokers[name] = spawn(argv)
        self.running.callback(process.communicate)
        self.running.callback(process.kill)
        line(process, b"listening auto", _START_S)

    def kill_broker(self, name: str) -> None:
        """Kill (-9) a broker."""
        self.machines[name].kill()
        self._brokers[name].communicate(timeout=_END_S)

    def kill_worker(self, name: str) -> None:
        """Kill (-9) a worker and its executors."""
        self.machines[name].kill()

    def start_worker(self, name: str) -> None:
        """Start a worker that was killed."""
        self.cluster.start_worker(self.running, self.machines[name])

    def journalled(self) -> dict[tuple[int, int], Message]:
        """Return all messages of both journals, as tables number them."""
        return {
            (at * PARTITIONS + partition, number): message
            for at, name in enumerate(BROKERS)
            for (partition, number), message in journalled(self.folder / name / "journal").items()
        }

    def place(self, tables: str) -> Storage:
        """Return where the tables called ``tables`` are, for this process to look at them."""
        options = {name.lower(): value for name, value in self.store.environment.items()}
        return Storage.at(f"s3://tables/{tables}", options)

    def config(self, folder: Path, tables: str, gold_every: str = "1h") -> Path:
        """Write the TOML file of a run into ``folder``; return it."""
        (folder / "token").write_text(_TOKEN)
        urls = [f"http://{self.machines[name].address}:{_PORT}" for name in BROKERS]
        file = folder / "run.toml"
        file.write_text(
            f'[source]\nbrokers = {urls}\ntoken_file = "token"\nmax_rows = 20000\n'
            f'[tables]\nfolder = "{tables}"\ncheckpoint = "checkpoint"\n'
            f'[run]\ngold_every = "{gold_every}"\n'
            f'[spark]\nexecutor.memory = "512m"\nexecutor.extraJavaOptions = "{SHORT}"\n'
            'sql.shuffle.partitions = 2\nnetwork.timeout = "20s"\nnetwork.timeoutInterval = "5s"\n'
            'executor.heartbeatInterval = "5s"\n'
        )
        return file

    def environment(self, scratch: Path) -> dict[str, str]:
        """Return the driver's environment; ``scratch``: a new folder for the executors' Python."""
        hidden = {"SPARK_LOCAL_IP", "SPARK_CONF_DIR"}
        kept = {key: value for key, value in os.environ.items() if key not in hidden}
        python = clean_python(scratch / "python", *EXECUTORS, "deltalake")
        ours = {"PYTHONPATH": _OURS, "PYSPARK_PYTHON": python}
        return {**kept, **self.store.environment, **ours}


@contextmanager
def network(folder: Path) -> Iterator[Network]:
    """Run all but the driver while the block lasts. It takes root, for the namespaces."""
    with lan(*_NAMES) as machines, ExitStack() as running:
        place = machines["store"]
        store = running.enter_context(object_store(folder / "store", place.address, place.prefix))
        cluster = Cluster(
            machines["master"], [machines[name] for name in WORKERS], folder / "spark"
        )
        made = Network(machines, cluster, store, folder, running)
        cluster.start(running)
        for name in BROKERS:
            made.start_broker(name)
        yield made


class Driver:
    """``motemq pipeline run`` on the driver's machine; who ends by itself is started again."""

    def __init__(self, network: Network, config: Path) -> None:
        self._network = network
        self._machine = network.machines["driver"]
        self._log = config.parent / "driver.log"
        self._argv = [*self._machine.prefix, sys.executable, "-m", "motemq", "pipeline", "run"]
        self._argv += [str(config), "--master", network.cluster.address, "--quiet"]
        self._env = network.environment(config.parent)
        self._process: subprocess.Popen[bytes] | None = None
        self.ended: list[str] = []  # last words of those that ended by themselves

    def start(self) -> None:
        """Start it."""
        with self._log.open("ab") as words:
            process = subprocess.Popen(self._argv, stdout=words, stderr=words, env=self._env)
        self._network.running.callback(process.wait)
        self._network.running.callback(process.kill)
        self._process = process

    def look(self) -> None:
        """Start it again if it has ended, as systemd does."""
        if self._process is not None and self._process.poll() is not None:
            words = self._log.read_text().strip().rpartition("\n")[2]
            self.ended.append(f"exit code {self._process.returncode}: {words}")
            self.start()

    def kill(self) -> None:
        """Kill (-9) all that runs on its machine, and start it again."""
        self._machine.kill()
        if self._process is not None:
            self._process.wait(_END_S)
        self.start()

    def end(self) -> None:
        """End it in order. Raises ``Failed``."""
        if self._process is None:
            return
        self._process.terminate()
        code = self._process.wait(_END_S)
        if code:
            raise Failed(f"the driver's exit code is {code}: {self._log.read_text()[-2000:]}")


def rows(place: Storage) -> list[tuple[tuple[int, int], Message]]:
    """Return all messages of ``bronze_messages``, by partition and number."""
    sql = "select partition, seq, path, payload from bronze_messages"
    return [((row[0], row[1]), (row[2], row[3])) for row in by_duckdb(sql, place)[1]]


def keys(place: Storage) -> list[tuple[int, int]]:
    """Return partition and number of the message of each row of ``silver_telemetry``."""
    sql = "select partition, message_seq from silver_telemetry"
    return [(row[0], row[1]) for row in by_duckdb(sql, place)[1]]
