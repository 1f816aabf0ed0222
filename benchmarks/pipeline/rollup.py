"""The whole way of a backfill, journal to roll-up, at several sizes in one small Spark."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.pipeline import journals
from motemq_pipeline import adding, job, store
from motemq_pipeline.registry import BUILT_IN, load_registry
from motemq_pipeline.session import spark_session

DRIVER_MEMORY = "4g"
SIZES = (1_000_000, 3_000_000, 10_000_000)
_WARM_UP = 20_000
_WHOLE = ("bronze_messages", "silver_telemetry")  # as many rows as messages
_STEPS = {*_WHOLE, *job.FROM_SILVER}


@dataclass(frozen=True)
class Result:
    """Seconds of every table of one size; the most memory Java had so far, in bytes."""

    messages: int
    seconds: dict[str, float]
    peak_bytes: int

    @property
    def total_s(self) -> float:
        """Return the seconds of all tables."""
        return sum(self.seconds.values())


def measure(folder: Path, sizes: tuple[int, ...], told: Callable[[str], None]) -> Iterator[Result]:
    """Make the tables of every size, smallest first, after a small one for warming up.

    Raises ``AssertionError`` if a row is missing.
    """
    with _spark(folder) as (spark, java):
        for messages in (_WARM_UP, *sorted(sizes)):
            place = folder / str(messages)
            sent = journals.write_telemetry(place / "journal", messages)
            (place / "rig").mkdir()
            sources = job.Sources(place / "journal", place / "rig", load_registry(BUILT_IN))
            for name in store.TABLES:  # a rig's are empty, but there
                store.create(name, place / "tables")
            seconds = {}
            for targets, rows in job.jobs(spark, sources, place / "tables"):
                name = targets[0].table
                if name not in _STEPS:
                    continue
                began = time.perf_counter()
                count, *_ = adding.write_each(targets, rows(), place / "tables")
                seconds[name] = time.perf_counter() - began
                if name in _WHOLE and count != sent:
                    raise AssertionError(f"{name}: {count} rows of {sent} messages")
                told(f"{messages:,}: {name} {count:,} rows in {seconds[name]:.1f} s")
            if messages != _WARM_UP:
                yield Result(sent, seconds, _peak_bytes(java))


@contextmanager
def _spark(folder: Path) -> Iterator[tuple[SparkSession, int]]:
    settings = {"spark.driver.memory": DRIVER_MEMORY}
    with spark_session(folder / "rollup.log", brief=False, settings=settings) as spark:
        gateway = spark.sparkContext._gateway
        yield spark, int(gateway.proc.pid)  # type: ignore[union-attr]


def _peak_bytes(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024
