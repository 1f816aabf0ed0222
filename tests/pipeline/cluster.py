"""A real Spark cluster and a real Connect server on loopback, from the pip package."""

import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyspark

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


def _said(log: Path, pattern: str, times: int = 1) -> str:
    deadline = time.monotonic() + START_S
    while len(found := re.findall(pattern, log.read_text())) < times:
        assert time.monotonic() < deadline, f"{log}: no '{pattern}' in\n{log.read_text()}"
        time.sleep(0.05)
    return str(found[0])


def foreign_python(scratch: Path) -> str:
    """Return a Python for executors that has what is installed, but not motemq.

    Without ``site`` it does not read the .pth file by which this repository is installed.
    """
    program = scratch / "python-without-motemq"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    return str(program)


@contextmanager
def cluster(scratch: Path, workers: int = 2) -> Iterator[str]:
    """Run a master and workers of one core and 600 MB each; gives the address, spark://…"""
    site_packages = str(Path(pyspark.__file__).parents[1])
    env = environment(scratch, PYTHONPATH=site_packages)
    here = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    log = scratch / "master.log"
    with ExitStack() as running:
        argv = [str(_SPARK_CLASS), _MASTER, *here]
        running.enter_context(_process(argv, log, env))
        address = _said(log, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            argv = [str(_SPARK_CLASS), _WORKER, *here, "--cores", "1", "--memory", "600m"]
            argv += ["--work-dir", str(scratch / f"work{number}"), address]
            running.enter_context(_process(argv, scratch / f"worker{number}.log", env))
        _said(log, "Registering worker", times=workers)
        yield address


@contextmanager
def connect_server(scratch: Path, package: Path) -> Iterator[str]:
    """Run a Spark Connect server whose Python knows ``package``; gives its address, sc://…"""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": SHORT,
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    argv = [str(SPARK_SUBMIT), "--class", _CONNECT]
    argv += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    log = scratch / "connect.log"
    # It takes its memory from there, like a master.
    env = environment(scratch, PYTHONPATH=str(package), SPARK_DAEMON_MEMORY="800m")
    with _process([*argv, "spark-internal"], log, env):
        _said(log, "Spark Connect server started")
        yield f"sc://127.0.0.1:{port}"
