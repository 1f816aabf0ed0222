"""Batch reads: the journal through our source, the same rows from Parquet and as tuples.

Three shapes of journal: 1, 10 and 4,000 messages a record, that is a read of a connection. Each is
read with all columns, and with four. A source that has our batches ready, and only hands them over,
shows how fast any source in Python can be.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from benchmarks.pipeline import journals, ready
from benchmarks.pipeline.ready import ReadySource
from benchmarks.pipeline.tuples import TupleSource

SHAPES = (1, 10, 4000)  # messages a record
MOTEMQ, PARQUET, TUPLES, READY = "motemq", "parquet", "tuples", "ready"
ALL, FOUR = "all", "four"
_FOUR = ("time", "path", "payload", "seq")


@dataclass(frozen=True)
class Result:
    """Seconds of each read of one shape, by source and columns, one per round."""

    shape: int
    messages: int
    seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def rate(self, source: str, columns: str) -> float:
        """Return the median rows per second."""
        return self.messages / statistics.median(self.seconds[source, columns])

    def ratio(self, source: str, columns: str, of: str = MOTEMQ) -> float:
        """Return our rate, or that ``of`` another, over that of ``source``: the rounds' median."""
        pairs = zip(self.seconds[of, columns], self.seconds[source, columns], strict=True)
        return statistics.median(theirs / ours for ours, theirs in pairs)


def measure(
    spark: SparkSession, folder: Path, messages: int, rounds: int, told: Callable[[str], None]
) -> Iterator[Result]:
    """Read everything of each shape ``rounds`` times with each source, after once to warm up."""
    spark.dataSource.register(TupleSource)
    spark.dataSource.register(ReadySource)
    for shape in SHAPES:
        yield _measured(spark, folder / str(shape), shape, messages, rounds, told)


def _measured(
    spark: SparkSession,
    folder: Path,
    shape: int,
    messages: int,
    rounds: int,
    told: Callable[[str], None],
) -> Result:
    journal, parquet = folder / "journal", folder / "parquet"
    journals.write(journal, messages, shape)
    chosen: dict[str, dict[str, str]] = {ALL: {}, FOUR: {"columns": ",".join(_FOUR)}}

    def rows(source: str, columns: str) -> DataFrame:
        if source == PARQUET:
            found = spark.read.parquet(str(parquet))
            return found if columns == ALL else found.select(*_FOUR)
        name = {TUPLES: TupleSource.name(), READY: ReadySource.name()}.get(source, MOTEMQ)
        options = {"path": str(folder / columns if source == READY else journal), **chosen[columns]}
        return spark.read.format(name).options(**options).load()

    rows(MOTEMQ, ALL).write.parquet(str(parquet))
    for columns, options in chosen.items():
        ready.write(folder / columns, {"path": str(journal), **options})
    reads = [(source, columns) for columns in (ALL, FOUR) for source in (MOTEMQ, PARQUET, READY)]
    reads.append((TUPLES, ALL))
    counted = {read: _warmed_up(rows(*read)) for read in reads}
    expected = messages // journals.PARTITIONS * journals.PARTITIONS
    if set(counted.values()) != {expected}:
        raise AssertionError(f"rows: {counted}, expected {expected}")
    result = Result(shape, expected, {read: [] for read in reads})
    for number in range(1, rounds + 1):
        first = number % len(reads)
        for read in reads[first:] + reads[:first]:
            began = time.perf_counter()
            _read(rows(*read))
            result.seconds[read].append(time.perf_counter() - began)
        line = ", ".join(
            f"{source} ({columns}) {all_[-1]:.2f} s"
            for (source, columns), all_ in result.seconds.items()
        )
        told(f"batch, {shape} a record, {number}/{rounds}: {line}")
    return result


def _read(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _warmed_up(rows: DataFrame) -> int:
    """Read all, as it is measured later; return how many rows there were."""
    counted = Observation()
    _read(rows.observe(counted, F.count(F.lit(1)).alias("rows")))
    return int(counted.get["rows"])
