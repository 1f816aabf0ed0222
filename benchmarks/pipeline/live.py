"""A run, from a broker to tables: how long a message takes until it can be queried.

A message carries the time it was published. What a micro-batch added can be queried when the log of
the table has it; that moment is the log entry's.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.pipeline.publisher import TOPIC
from motemq_pipeline.delta import Table
from motemq_pipeline.delta_log import new_files
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.status import read_status
from motemq_pipeline.storage import Storage

_START_S = 120.0
_END_S = 120.0
_TABLE = "bronze_messages"


@dataclass(frozen=True)
class Result:
    """Milliseconds from publication to table, percentiles, and rows of a median micro-batch."""

    rate: int
    messages: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    batch_rows: float


def measure(folder: Path, rate: int, seconds: float, settings: str = "") -> Result:
    """Publish ``rate`` messages a second; the first half of the time is for warming up.

    Java compiles what it runs often, for most of a minute on two cores.

    ``settings``: more lines of the run's TOML file.
    """
    folder.mkdir()
    tables = folder / "tables"
    with _broker(folder / "data") as port:
        config = folder / "run.toml"
        config.write_text(
            f'[source]\nbrokers = "127.0.0.1:{port}"\n[tables]\nfolder = "tables"\n{settings}'
        )
        with _run(config, tables):
            published = _publish(port, rate, seconds)
            deadline = time.monotonic() + _END_S
            table = Table(Storage.at(tables), _TABLE)
            while (rows := table.count()) < published:
                if time.monotonic() > deadline:
                    raise AssertionError(f"{rows} of {published} messages in the table")
                time.sleep(0.2)
        found = _latencies(tables)
    if len(found.number) != published or len(np.unique(found.number)) != published:
        raise AssertionError(
            f"{len(found.number)} rows, {len(np.unique(found.number))} different ones, of "
            f"{published} messages"
        )
    steady = found.after_s > seconds / 2
    p50, p90, p99 = np.percentile(found.latency_ms[steady], (50, 90, 99)).tolist()
    _, rows_of_batches = np.unique(found.batch[steady], return_counts=True)
    return Result(rate, published, p50, p90, p99, float(np.median(rows_of_batches)))


@dataclass(frozen=True, slots=True)
class _Latencies:
    """By message: its number, when it was published, until it was there, the commit it came by."""

    number: npt.NDArray[np.uint64]
    after_s: npt.NDArray[np.float64]
    latency_ms: npt.NDArray[np.float64]
    batch: npt.NDArray[np.int64]


def _latencies(tables: Path) -> _Latencies:
    numbers, published_ns, there_ns, batches = [], [], [], []
    folder = tables / _TABLE
    for entry in sorted((folder / "_delta_log").glob("*.json")):
        for file in new_files(entry.read_bytes()):
            rows = pq.ParquetFile(folder / file.path).read(["path", "payload"])
            ours = rows.filter(pc.equal(rows.column("path"), TOPIC)).column("payload")
            messages = np.frombuffer(b"".join(ours.to_pylist()), "<u8").reshape(-1, 2)
            numbers.append(messages[:, 0])
            published_ns.append(messages[:, 1].astype(np.int64))
            there_ns.append(np.full(len(messages), entry.stat().st_mtime_ns))
            batches.append(np.full(len(messages), int(entry.stem)))
    if not numbers:
        raise AssertionError("there is no message in the table")
    at_ns = np.concatenate(published_ns)
    return _Latencies(
        np.concatenate(numbers),
        (at_ns - at_ns.min()) / 1e9,
        (np.concatenate(there_ns) - at_ns) / 1e6,
        np.concatenate(batches),
    )


@contextmanager
def _run(config: Path, tables: Path) -> Iterator[None]:
    """Run the pipeline while the block lasts; enters it when the queries run."""
    argv = [sys.executable, "-m", "motemq", "pipeline", "run", str(config), "--quiet"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        try:
            deadline = time.monotonic() + _START_S
            while not _is_running(tables):
                if process.poll() is not None or time.monotonic() > deadline:
                    process.kill()
                    said = process.communicate()[1]
                    raise AssertionError(f"the run did not start: {said}")
                time.sleep(0.1)
            yield
        finally:
            process.terminate()
            process.wait(_START_S)


def _is_running(tables: Path) -> bool:
    try:
        return bool(read_status(tables / ".checkpoint").queries)
    except PipelineError:
        return False


def _publish(port: int, rate: int, seconds: float) -> int:
    argv = [sys.executable, "-m", "benchmarks.pipeline.publisher", str(port), str(rate)]
    run = subprocess.run([*argv, str(seconds)], check=True, capture_output=True, text=True)
    return int(run.stdout)


@contextmanager
def _broker(data: Path) -> Iterator[int]:
    argv = [sys.executable, "-m", "motemq", "broker", "--data", str(data)]
    with subprocess.Popen(
        [*argv, "--listen", "auto://127.0.0.1:0", "--set", "journal.flush_s=0.01"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None  # noqa: S101 - for mypy; it is a pipe
            line = process.stdout.readline()
            yield int(line.rpartition(":")[2])
        finally:
            process.terminate()
            process.wait(_START_S)
