"""A stream from a broker to a table: how long a message takes until it can be queried.

A message carries the time it was published. A micro-batch can be queried when Spark has written its
entry in the table's log, the time of which is that file's.
"""

import json
import statistics
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

_START_S = 30.0
_END_S = 120.0


@dataclass(frozen=True)
class Result:
    """Milliseconds from publication to table, percentiles, and rows of a median micro-batch."""

    rate: int
    messages: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    batch_rows: float


def measure(spark: SparkSession, folder: Path, rate: int, seconds: float) -> Result:
    """Publish ``rate`` messages a second; the first third of the time is for warming up."""
    with _broker(folder / "data") as port:
        rows = (
            spark.readStream.format("motemq")
            .option("brokers", f"http://127.0.0.1:{port}")
            .option("startingOffsets", "earliest")
            .option("topics", "bench/*")
            .load()
            .select(F.col("payload"))
        )
        table = folder / "table"
        query = (
            rows.writeStream.format("parquet")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .option("path", str(table))
            .start()
        )
        try:
            published = _publish(port, rate, seconds)
            deadline = time.monotonic() + _END_S
            while True:
                query.processAllAvailable()
                found = _latencies_ms(table)
                if len(found) >= published:
                    break
                if time.monotonic() > deadline:
                    raise AssertionError(f"{len(found)} of {published} messages in the table")
        finally:
            query.stop()
        if len(found) != published:
            raise AssertionError(f"{len(found)} rows of {published} messages")
    steady = sorted(latency for at, latency in found.values() if at > seconds / 3)
    batches = [each.numInputRows for each in query.recentProgress if each.numInputRows]
    p50, p90, p99 = (steady[int((len(steady) - 1) * share)] for share in (0.5, 0.9, 0.99))
    return Result(rate, published, p50, p90, p99, statistics.median(batches))


def _latencies_ms(table: Path) -> dict[int, tuple[float, float]]:
    """Return, by message, when it was published (s after the first) and how long it took (ms)."""
    found: dict[int, tuple[int, int]] = {}
    for entry in (table / "_spark_metadata").glob("[0-9]*"):
        if "." in entry.name:
            continue
        there_ns = entry.stat().st_mtime_ns
        for line in entry.read_text().splitlines()[1:]:
            path = Path(urllib.parse.unquote(urllib.parse.urlsplit(json.loads(line)["path"]).path))
            for payload in pq.read_table(path).column("payload").to_pylist():
                number, at_ns = payload.split(b" ")
                if int(number) in found:
                    raise AssertionError(f"message {number} is in the table twice")
                found[int(number)] = int(at_ns), there_ns
    if not found:
        return {}
    first_ns = min(at_ns for at_ns, _ in found.values())
    return {
        number: ((at_ns - first_ns) / 1e9, (there_ns - at_ns) / 1e6)
        for number, (at_ns, there_ns) in found.items()
    }


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
