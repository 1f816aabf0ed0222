"""A real Spark cluster on machines of its own, and a real Connect server, from the pip package."""

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

import pyspark
from packaging.requirements import Requirement

from benchmarks.cluster.lan import Machine
from benchmarks.faults.processes import Failed
from benchmarks.ports import port_for_later
from motemq_pipeline.java import find_java

START_S = 120.0
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
SPARK_SUBMIT = _SPARK_CLASS.with_name("spark-submit")
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
SHORT = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def environment(scratch: Path, **more: str) -> dict[str, str]:
    """Return the environment of Spark's scripts: our Java and Python, nobody's settings."""
    conf = scratch / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    hidden = {"PYTHONPATH", "SPARK_HOME", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"}
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return {
        **kept,
        "JAVA_HOME": str(find_java(os.environ).home_for_spark(scratch)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(scratch),
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SHORT,
        **more,
    }


@contextmanager
def _process(argv: list[str], log: Path, env: dict[str, str]) -> Iterator[None]:
    """Run a process and its children while the block lasts, and no longer than we live."""
    with log.open("w") as words:
        process = subprocess.Popen(
            argv,
            stdout=words,
            stderr=words,
            stdin=subprocess.DEVNULL,
            env=env,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(START_S)


def die_with_parent() -> None:
    """Let the kernel end a child that was just forked when its parent ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def said(log: Path, pattern: str, times: int = 1) -> str:
    """Wait until a log has something so many times; return the first of it."""
    deadline = time.monotonic() + START_S
    while len(found := re.findall(pattern, log.read_text())) < times:
        if time.monotonic() > deadline:
            raise Failed(f"{log}: no '{pattern}' in\n{log.read_text()}")
        time.sleep(0.05)
    return str(found[0])


# What their Python needs in any case (docs/cluster.md).
EXECUTORS: Final = ("pyspark[sql]", "msgspec", "datasketches")


def clean_python(folder: Path, *requirements: str) -> str:
    """Return a Python for executors that has these distributions and what they need, no more."""
    packages = folder / "packages"
    packages.mkdir(parents=True)
    wanted, seen = [Requirement(each) for each in requirements], set[tuple[str, str]]()
    while wanted:
        asked = wanted.pop()
        found = metadata.distribution(asked.name)
        for extra in ("", *asked.extras):
            if (key := (found.name, extra)) not in seen:
                seen.add(key)
                needed = [Requirement(each) for each in found.requires or ()]
                wanted += [each for each in needed if _applies(each, extra)]
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            with suppress(FileExistsError):
                (packages / top).symlink_to(Path(str(found.locate_file(top))))
    program = folder / "python"
    # Without ``site`` it does not read the .pth file by which this repository is installed.
    program.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="{packages}:$PYTHONPATH"\nexec {sys.executable} -S "$@"\n'
    )
    program.chmod(0o755)
    return str(program)


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


@dataclass
class Cluster:
    """A master and workers of one core and 700 MB each; ``address`` is spark://…"""

    master: Machine
    workers: list[Machine]
    scratch: Path

    @property
    def address(self) -> str:
        return f"spark://{self.master.address}:7077"

    def start(self, running: ExitStack) -> None:
        """Start all, and wait until the workers are known."""
        self._start(running, self.master, _MASTER, "--port", "7077")
        for worker in self.workers:
            self.start_worker(running, worker)
        said(self._log(self.master), "Registering worker", times=len(self.workers))

    def start_worker(self, running: ExitStack, worker: Machine) -> None:
        """Start a worker, the first time or after it was killed."""
        size = ("--cores", "1", "--memory", "700m")
        work = ("--work-dir", str(self.scratch / f"work-{worker.name}"))
        self._start(running, worker, _WORKER, *size, *work, self.address)

    def _start(self, running: ExitStack, machine: Machine, program: str, *more: str) -> None:
        env = environment(self.scratch, SPARK_LOCAL_IP=machine.address)
        env["SPARK_DAEMON_JAVA_OPTS"] = f"{SHORT} -Dspark.worker.timeout=10"
        here = ["--host", machine.address, "--webui-port", "0"]
        argv = [*machine.prefix, str(_SPARK_CLASS), program, *here, *more]
        running.enter_context(_process(argv, self._log(machine), env))

    def _log(self, machine: Machine) -> Path:
        return self.scratch / f"{machine.name}.log"


@contextmanager
def connect_server(scratch: Path, package: Path) -> Iterator[str]:
    """Run a Spark Connect server whose Python knows ``package``; gives its address, sc://…"""
    port = port_for_later()
    settings = {
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # It is killed, and takes away nothing that it has made.
        "spark.driver.extraJavaOptions": f"{SHORT} -Djava.io.tmpdir={scratch}",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    argv = [str(SPARK_SUBMIT), "--class", _CONNECT]
    argv += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    log = scratch / "connect.log"
    # It takes its memory from there, like a master.
    env = environment(scratch, PYTHONPATH=str(package), SPARK_DAEMON_MEMORY="800m")
    with _process([*argv, "spark-internal"], log, env):
        said(log, "Spark Connect server started")
        yield f"sc://127.0.0.1:{port}"
