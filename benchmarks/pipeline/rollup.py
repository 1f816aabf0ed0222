"""The whole way of a backfill, journal to roll-up, at several sizes in one small Spark."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.pipeline import journals
from motemq_pipeline.job import Sources, Written, write_tables
from motemq_pipeline.refresh import FROM_SILVER
from motemq_pipeline.registry import BUILT_IN, load_registry
from motemq_pipeline.sessions import spark_session
from motemq_pipeline.storage import Storage

DRIVER_MEMORY = "4g"
SIZES = (1_000_000, 3_000_000, 10_000_000)
_WARM_UP = 20_000
_WHOLE = ("bronze_messages", "silver_telemetry")  # as many rows as messages
_STEPS = {*_WHOLE, "silver_quarantine", *FROM_SILVER}  # without a rig's


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
    """Make the tables of every size, smallest first.

    Where sizes are compared, a small one comes before them, for warming up.

    Raises ``AssertionError`` if a row is missing.
    """
    with _spark(folder) as (spark, java):
        for messages in (*([_WARM_UP] if len(sizes) > 1 else []), *sorted(sizes)):
            place = folder / str(messages)
            sent = journals.write_telemetry(place / "journal", messages)
            (place / "rig").mkdir()
            sources = Sources(place / "journal", place / "rig", load_registry(BUILT_IN))
            seconds: dict[str, float] = {}

            def step(made: Written, sent: int = sent, seconds: dict[str, float] = seconds) -> None:
                if made.table in _STEPS:
                    seconds[made.table] = made.seconds
                    told(f"{sent:,}: {made.table} {made.rows:,} rows in {made.seconds:.1f} s")
                if made.table in _WHOLE and made.rows != sent:
                    raise AssertionError(f"{made.table}: {made.rows} rows of {sent} messages")

            write_tables(spark, sources, Storage.at(place / "tables"), step)
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
