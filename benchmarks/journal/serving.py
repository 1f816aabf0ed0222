"""How soon a broker serves its journal after a start, and how fast; beside it ``http.server``."""

import contextlib
import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_START_S = 120.0
_FETCH_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from the start of the process to the first byte of a message in the middle."""

    listening_s: float
    first_byte_s: float
    by_time_s: float  # a question for a time, then


@dataclass(frozen=True, slots=True)
class Rate:
    """Bytes and messages that a reader took in so many seconds."""

    bytes: int
    seconds: float

    @property
    def mb_per_s(self) -> float:
        """Megabytes a second."""
        return self.bytes / self.seconds / 1e6


@contextlib.contextmanager
def broker(data: Path) -> Iterator[int]:
    """Run a broker while the block lasts; gives its port."""
    argv = [sys.executable, "-m", "motemq", "broker", "--data", str(data)]
    argv += ["--listen", "auto://127.0.0.1:0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line:
                raise AssertionError("the broker did not start")
            yield int(line.rpartition(":")[2])
        finally:
            process.terminate()


def start(data: Path) -> Start:
    """Start a broker and ask at once for a message in the middle of its first partition."""
    began = time.perf_counter()
    with broker(data) as port:
        listening_s = time.perf_counter() - began
        middle = _overview(port)["partitions"][0]["next"] // 2
        with _get(port, f"/journal/0?from={middle}&max_bytes=1") as answer:
            if answer.status != 200 or not answer.read(1):
                raise AssertionError(f"answered {answer.status}")
            first_byte_s = time.perf_counter() - began
        asked = time.perf_counter()
        _overview(port, "?at_ns=1767225700000000000")
        return Start(listening_s, first_byte_s, time.perf_counter() - asked)


def read(port: int, messages: int, topics: str = "") -> Rate:
    """Read a partition from its first message to its last, as the pipeline does."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    size = at = 0
    began = time.perf_counter()
    while at < messages:
        query = f"&topics={topics}" if topics else ""
        connection.request("GET", f"/journal/0?from={at}&max_bytes={_FETCH_BYTES}{query}")
        answer = connection.getresponse()
        if answer.status != 200:
            raise AssertionError(f"answered {answer.status}")
        size += len(answer.read())
        at = int(answer.headers["Journal-Next"])
    seconds = time.perf_counter() - began
    connection.close()
    return Rate(size, seconds)


def read_files(folder: Path) -> Rate:
    """Read the same files from ``python -m http.server``."""
    argv = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"]
    argv += ["--directory", str(folder)]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            port = int(line.split(" port ")[1].split()[0])
            size = 0
            began = time.perf_counter()
            for path in sorted(folder.glob("*.mjl")):
                with _get(port, f"/{path.name}") as answer:
                    size += len(answer.read())
            return Rate(size, time.perf_counter() - began)
        finally:
            process.terminate()


@contextlib.contextmanager
def _get(port: int, path: str) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_START_S)
    with contextlib.closing(connection):
        connection.request("GET", path)
        yield connection.getresponse()


def _overview(port: int, query: str = "") -> dict[str, list[dict[str, int]]]:
    with _get(port, f"/journal{query}") as answer:
        found: dict[str, list[dict[str, int]]] = json.loads(answer.read())
    return found
