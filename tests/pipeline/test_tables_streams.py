"""The same journal as a batch and as a stream: the same rows, whatever clocks and schemas did."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from motemq_pipeline import silver
from motemq_pipeline.registry import load_registry
from motemq_pipeline.rules import Registry
from tests.journal_segment import START_NS, Segment, Sender, packet
from tests.pipeline.payloads import encoded, write_registry

_HOUR_NS = 3600 * 10**9
_SENDER = Sender(2, 1)


def _good(seq: int, **changed: Any) -> dict[str, Any]:
    return {"n": seq, "t": 20.0 + seq, "h": 50, "id": "b-1", **changed}


class _Journal:
    """A journal whose broker's clock goes as we say."""

    def __init__(self, folder: Path) -> None:
        self.now_ns = START_NS
        self._folder = folder
        self._segments = [Segment(0), Segment(1)]

    def add(self, path: str, payload: bytes, partition: int = 0) -> int:
        """Add a message that arrives now; return the number of that message."""
        segment = self._segments[partition]
        number = segment.next
        segment.record(_SENDER, [packet(path, payload)], self.now_ns)
        self.now_ns += 10**9
        return number

    def write(self) -> Path:
        for segment in self._segments:
            segment.write(self._folder)
        return self._folder


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    return load_registry(write_registry(tmp_path_factory.mktemp("registry") / "registry.toml"))


@pytest.fixture(scope="module")
def clocks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, str]]:
    """A journal, and for messages of partition 0 whose clock gives their event time."""
    journal = _Journal(tmp_path_factory.mktemp("journal"))
    clock: dict[int, str] = {}
    for behind_s, whose in (
        (5, "board"), (3599, "board"), (3601, "broker"), (-299, "board"), (-301, "broker"),
        (START_NS // 10**9, "broker"),  # a board whose clock was never set: 1970
    ):  # fmt: skip
        for encoding in ("json", "cbor", "msgpack", "struct"):
            ts = (journal.now_ns - behind_s * 10**9) // 10**6
            fields = _good(len(clock), ts=ts)
            clock[journal.add(f"{encoding}/air", encoded(encoding, fields))] = whose
    clock[journal.add("json/air", encoded("json", _good(90)))] = "broker"
    # The schema changes: a field more, then another type.
    clock[journal.add("json/air", encoded("json", _good(91, volts=3.1)))] = "broker"
    journal.add("json/air", encoded("json", _good(92, t="20.5")))
    # The broker's clock is set back by an hour.
    journal.now_ns -= _HOUR_NS
    for seq in (93, 94, 94, 93):
        for encoding in ("json", "msgpack"):
            journal.add(f"wide/{encoding}/w-1", encoded(encoding, _good(seq)), partition=1)
    ts = (journal.now_ns + _HOUR_NS) // 10**6
    clock[journal.add("json/air", encoded("json", _good(95, ts=ts)))] = "broker"
    return journal.write(), clock


def _everything(messages: DataFrame, registry: Registry) -> DataFrame:
    rows = silver.decoded(messages, registry)
    return rows.select(F.to_json(F.struct("*")).alias("row"))


def _streamed(
    spark: SparkSession, journal: Path, name: str, make: Callable[[DataFrame], DataFrame]
) -> list[str]:
    """Return what a stream of small batches gives."""
    messages = (
        spark.readStream.format("motemq")
        .option("path", str(journal))
        .option("startingOffsets", "earliest")
        .option("maxRowsPerTrigger", 12)
        .load()
    )
    query = make(messages).writeStream.format("memory").queryName(name).outputMode("append")
    running = query.trigger(availableNow=True).start()
    try:
        running.awaitTermination(120)
        assert running.exception() is None
        assert len(running.recentProgress) >= 3
    finally:
        running.stop()
    return sorted(row[0] for row in spark.table(name).collect())


def test_a_stream_and_a_batch_give_the_same_rows(
    spark: SparkSession, registry: Registry, clocks: tuple[Path, dict[int, str]]
) -> None:
    def everything(messages: DataFrame) -> DataFrame:
        return _everything(messages, registry)

    journal, _ = clocks
    batch = spark.read.format("motemq").option("path", str(journal)).load()
    wanted = sorted(row["row"] for row in everything(batch).collect())
    assert len(wanted) == 6 * 4 + 3 + 2 * 8 + 1
    assert _streamed(spark, journal, "everything", everything) == wanted


def test_event_time_is_the_boards_if_that_is_likely(
    spark: SparkSession, registry: Registry, clocks: tuple[Path, dict[int, str]]
) -> None:
    journal, clock = clocks
    messages = spark.read.format("motemq").option("path", str(journal)).load()
    decoded = silver.decoded(messages.where("partition = 0"), registry)
    rows = silver.telemetry(decoded).collect()
    assert {row["message_seq"]: row["clock"] for row in rows} == clock
    for row in rows:
        off_s = (row["event_time"] - row["received_at"]).total_seconds()
        assert -3600 <= off_s <= 300
        assert (off_s != 0) == (row["clock"] == "board")
    (refused,) = decoded.where("reason IS NOT NULL").collect()
    assert refused["reason"] == "the field 't' is missing or not a double"


def test_copies_are_dropped_alike_by_a_stream_and_by_a_batch(
    spark: SparkSession, registry: Registry, tmp_path: Path
) -> None:
    journal = _Journal(tmp_path / "journal")
    for seq in [*range(9), 7, 3, 8, 8, *range(9, 30), 29]:
        if seq == 15:
            journal.now_ns -= 24 * _HOUR_NS  # the broker's clock is set back: nothing is late
        journal.add("wide/json/w-1", encoded("json", _good(seq)), partition=seq % 2)
        journal.add("home/h-1/door", b"1")  # without a number, nothing is a copy

    def once(messages: DataFrame) -> DataFrame:
        readings = silver.telemetry(silver.decoded(messages, registry))
        return silver.distinct(readings).select(F.to_json(F.struct("*")).alias("row"))

    folder = journal.write()
    messages = spark.read.format("motemq").option("path", str(folder)).load()
    wanted = sorted(row["row"] for row in once(messages).collect())
    assert len(wanted) == 2 * 30 + 35
    assert _streamed(spark, folder, "once", once) == wanted
