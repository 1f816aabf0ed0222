"""The commands of docs/cluster.md for YARN and Kubernetes, given to Spark's own spark-submit.

There is neither here. What is asked: that Spark takes every word of them, and what it then asks
Kubernetes for.
"""

import json
import os
import queue
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.cluster.spark import SPARK_SUBMIT, environment
from motemq_pipeline.cli import command
from tests.pipeline.desk import write_journal

_DOCS = Path(__file__).parents[2] / "docs" / "cluster.md"
_END_S = 300.0


def _command(master: str) -> list[str]:
    """Return the command of the docs for a master."""
    text = _DOCS.read_text().replace("\\\n", " ")
    (line,) = re.findall(rf"^spark-submit --master {master}.*$", text, re.MULTILINE)
    words = shlex.split(line)
    words[0] = str(SPARK_SUBMIT)
    return words


@pytest.fixture
def submitted(tmp_path: Path) -> Path:
    """Return a folder with what is submitted."""
    write_journal(tmp_path / "journal")
    (tmp_path / "run.toml").write_text(
        '[source]\njournal = "journal"\n[tables]\nfolder = "tables"\n'
    )
    done = CliRunner().invoke(command, ["package", str(tmp_path / "dist")])
    assert done.exit_code == 0, done.output
    return tmp_path


def _environment(folder: Path, **more: str) -> dict[str, str]:
    found = environment(folder / "spark", **more)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_CONF_DIR"):
        del found[name]
    # "python3" is that of the driver.
    found["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{found['PATH']}"
    return found


@contextmanager
def _api_server() -> Iterator[tuple[str, "queue.Queue[dict[str, Any]]"]]:
    """Answer a Kubernetes client that nothing is there; give what it wants to be made."""
    wanted: queue.Queue[dict[str, Any]] = queue.Queue()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # To be told of what becomes of pods: of nothing, until the end.
            items: dict[str, Any] = {"kind": "PodList", "apiVersion": "v1", "items": []}
            self._answer(200, b"" if "watch" in self.path else json.dumps(items).encode())

        def do_POST(self) -> None:
            asked = self.rfile.read(int(self.headers["Content-Length"]))
            wanted.put(json.loads(asked))
            self._answer(201, asked)

        do_DELETE = do_PATCH = do_GET

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", wanted
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_kubernetes_is_asked_for_executors_as_the_docs_say(submitted: Path) -> None:
    argv = _command("k8s")
    with _api_server() as (url, wanted):
        argv[argv.index("--master") + 1] = f"k8s://{url}"
        argv[argv.index("spark.driver.host=ADDRESS_OF_THE_POD")] = "spark.driver.host=127.0.0.1"
        log = submitted / "log"
        with log.open("w") as words:
            process = subprocess.Popen(
                argv, cwd=submitted, env=_environment(submitted), stdout=words, stderr=words
            )
        try:
            while (pod := wanted.get(timeout=_END_S))["kind"] != "Pod":
                assert process.poll() is None, log.read_text()
        finally:
            process.kill()
            process.wait()
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "REGISTRY/motemq-spark:4.3"
    assert {"mountPath": "/shared", "name": "shared"}.items() <= next(
        mount for mount in container["volumeMounts"] if mount["name"] == "shared"
    ).items()
    (volume,) = (volume for volume in pod["spec"]["volumes"] if volume["name"] == "shared")
    assert volume["persistentVolumeClaim"]["claimName"] == "motemq"
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert "@127.0.0.1:" in str(variables["SPARK_DRIVER_URL"])


def test_yarn_is_asked_for_containers_and_its_absence_is_one_line(submitted: Path) -> None:
    conf = submitted / "hadoop"
    conf.mkdir()
    settings = {
        "yarn.resourcemanager.address": "127.0.0.1:1",
        "yarn.resourcemanager.connect.max-wait.ms": "200",
        "yarn.resourcemanager.connect.retry-interval.ms": "100",
        "ipc.client.connect.max.retries": "0",
    }
    properties = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in settings.items()
    )
    for name in ("core-site.xml", "yarn-site.xml"):
        (conf / name).write_text(f"<configuration>{properties}</configuration>")
    done = subprocess.run(
        _command("yarn"),
        cwd=submitted,
        env=_environment(submitted, HADOOP_CONF_DIR=str(conf)),
        capture_output=True,
        text=True,
        timeout=_END_S,
    )
    assert done.returncode == 3, done.stderr
    words = done.stdout + done.stderr  # spark-submit puts both of Python's into the first
    assert "Traceback" not in words
    (told,) = re.findall(r"^pipeline: error: (.*)$", words, re.MULTILINE)
    assert told.startswith("Spark did not start at yarn: Call From ")
    assert "Connection refused" in told
