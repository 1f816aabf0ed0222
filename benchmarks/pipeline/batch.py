"""Batch reads: the journal through our source, the same rows from Parquet and as tuples."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.pipeline import journals
from benchmarks.pipeline.tuples import TupleSource

SOURCES = ("motemq", "parquet", "tuples")


@dataclass(frozen=True)
class Result:
    """Seconds of each read, by source, one per round."""

    messages: int
    seconds: dict[str, list[float]]

    def rate(self, source: str) -> float:
        """Return the median rows per second."""
        return self.messages / statistics.median(self.seconds[source])

    def ratio(self, source: str) -> float:
        """Return our rate over that of ``source``: the median of the rounds."""
        pairs = zip(self.seconds["motemq"], self.seconds[source], strict=True)
        return statistics.median(theirs / ours for ours, theirs in pairs)


def measure(
    spark: SparkSession, folder: Path, messages: int, rounds: int, told: Callable[[str], None]
) -> Result:
    """Read everything ``rounds`` times with each source, in turn, after once for warming up."""
    journal, parquet = folder / "journal", folder / "parquet"
    journals.write(journal, messages)
    spark.dataSource.register(TupleSource)

    def rows(source: str) -> DataFrame:
        if source == "parquet":
            return spark.read.parquet(str(parquet))
        name = "motemq" if source == "motemq" else TupleSource.name()
        return spark.read.format(name).option("path", str(journal)).load()

    rows("motemq").write.parquet(str(parquet))
    counted = {source: rows(source).count() for source in SOURCES}
    expected = messages // journals.PARTITIONS * journals.PARTITIONS
    if set(counted.values()) != {expected}:
        raise AssertionError(f"rows: {counted}, expected {expected}")
    seconds: dict[str, list[float]] = {source: [] for source in SOURCES}
    for number in range(rounds + 1):
        for source in SOURCES[number % 3 :] + SOURCES[: number % 3]:
            began = time.perf_counter()
            rows(source).write.format("noop").mode("overwrite").save()
            if number:
                seconds[source].append(time.perf_counter() - began)
        if number:
            line = ", ".join(f"{source} {all_[-1]:.2f} s" for source, all_ in seconds.items())
            told(f"batch {number}/{rounds}: {line}")
    return Result(expected, seconds)
