"""A driver and a broker that are killed in the middle of a commit of the sink: no row twice."""

import contextlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.faults.count import journalled
from benchmarks.faults.processes import Broker, kill_all, spawn
from tests.pipeline.desk import Sender, write_segment

_END_S = 400.0
_ROWS, _EACH_BYTES, _TASKS = 12, 900_000, 2
_REQUESTS = 3  # of four rows: a request has at most 4 MiB
_DRIVER = """
import sys
from pathlib import Path
from motemq_pipeline.sessions import spark_session

journal, broker, folder = sys.argv[1:]
with spark_session(Path(folder) / "spark.log") as spark:
    rows = spark.readStream.format("motemq").option("path", journal)
    rows = rows.option("startingOffsets", "earliest").load().select("path", "payload")
    query = (
        rows.writeStream.format("motemq")
        .option("brokers", broker)
        .option("checkpointLocation", folder + "/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
"""


@dataclass(frozen=True)
class Plan:
    """At which request, and when, something happens: "before" the broker has it, "at" once when it
    was sent, "after" the broker has answered. The sink gets no answer then."""

    request: int
    moment: str
    happens: Callable[[], None]


class Gate:
    """Stands between the sink and its broker."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.requests = 0
        self._plan: Plan | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def expect(self, plan: Plan | None) -> None:
        """Count requests from here on, and do this."""
        self.requests, self._plan = 0, plan

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                with client, contextlib.suppress(OSError):
                    self._serve_one(client)

    def _serve_one(self, client: socket.socket) -> None:
        request = _whole(client)
        self.requests += 1
        plan, moment = self._plan, ""
        if plan is not None and self.requests == plan.request:
            moment = plan.moment
        if moment != "before":
            with socket.create_connection(("127.0.0.1", self._port), timeout=_END_S) as broker:
                broker.sendall(request)
                if moment != "at":
                    answer = _whole(broker)
        if moment and plan is not None:
            plan.happens()
        else:
            client.sendall(answer)


def _whole(peer: socket.socket) -> bytes:
    """Read a request, or an answer, with its body."""
    peer.settimeout(_END_S)
    data = bytearray()
    while b"\r\n\r\n" not in data:
        data += _some(peer)
    head, _, _ = bytes(data).partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    size = len(head) + 4 + int(fields.get(b"content-length", b"0"))
    while len(data) < size:
        data += _some(peer)
    return bytes(data)


def _some(peer: socket.socket) -> bytes:
    data = peer.recv(1 << 20)
    if not data:
        raise ConnectionResetError
    return data


@pytest.fixture
def gate_and_broker(tmp_path: Path) -> Iterator[tuple[Gate, Broker]]:
    broker = Broker(tmp_path / "data", "--set", "bus.max_body=2000000")
    gate = Gate(broker.port)
    yield gate, broker
    gate.close()
    broker.end()


@contextlib.contextmanager
def _driver(journal: Path, gate: Gate, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    folder.mkdir(exist_ok=True)
    address = f"http://127.0.0.1:{gate.port}"
    process = spawn([sys.executable, "-c", _DRIVER, str(journal), address, str(folder)])
    try:
        yield process
    finally:
        kill_all(process)


@pytest.mark.timeout(1500)  # two starts of Spark, on a machine that may be busy
def test_a_commit_that_is_cut_off_publishes_everything_once(
    tmp_path: Path, gate_and_broker: tuple[Gate, Broker]
) -> None:
    gate, broker = gate_and_broker
    each = _ROWS // _TASKS
    for partition in range(_TASKS):  # a task for each
        rows = [(partition * each + number) for number in range(each)]
        messages = [(f"out/{row}", b"%03d" % row + bytes(_EACH_BYTES)) for row in rows]
        write_segment(tmp_path / "journal", partition, [(Sender(1, 1), messages)])
    gate.expect(Plan(2, "after", lambda: kill_all(driver)))
    with _driver(tmp_path / "journal", gate, tmp_path / "query") as driver:
        driver.communicate(timeout=_END_S)
        assert driver.returncode == -signal.SIGKILL
    assert gate.requests == 2  # some is published, some is not, and Spark noted nothing
    assert not list((tmp_path / "query" / "checkpoint" / "commits").glob("[0-9]*"))
    gate.expect(Plan(_REQUESTS, "at", broker.kill))
    with _driver(tmp_path / "journal", gate, tmp_path / "query") as driver:
        _, words = driver.communicate(timeout=_END_S)
        assert driver.returncode == 0, words.decode()
    assert gate.requests > _REQUESTS
    found = journalled(tmp_path / "data" / "journal").values()
    assert sorted((path, int(body[:3])) for path, body in found) == sorted(
        (f"out/{row}", row) for row in range(_ROWS)
    )
