"""Streams of the journal in a real Spark, from its folder and from a broker that runs."""

import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from host_broker.client import connect
from tests.host_broker.net.broker_process import BrokerProcess, broker
from tests.journal_segment import START_NS, Segment, Sender, packet

_BROKER = ("--listen", "auto://127.0.0.1:0", "--set", "journal.flush_s=0.001")


def _append(journal: Path, partition: int, first: int, count: int) -> int:
    """Add a segment of ``count`` messages, 50 a block; returns the next number."""
    segment = Segment(partition, first)
    for at in range(first, first + count, 50):
        packets = [packet(f"t/{n % 2}", b"%d" % n) for n in range(at, min(at + 50, first + count))]
        segment.record(Sender(1 + partition, 1), packets, START_NS + at)
    segment.write(journal)
    return first + count


def _source(spark: SparkSession, **options: str) -> DataFrame:
    reader = spark.readStream.format("motemq")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def _to_table(rows: DataFrame, folder: Path) -> StreamingQuery:
    """Run a query over what is there now, to its end."""
    query = (
        rows.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "table"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return query


def _found(spark: SparkSession, folder: Path) -> list[tuple[int, int]]:
    rows = spark.read.parquet(str(folder / "table")).select("partition", "seq")
    return sorted((row.partition, row.seq) for row in rows.collect())


def test_every_message_once_over_restarts_in_bounded_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    following = [0, 0]
    batches = []
    for more in (530, 0, 120):
        for partition in (0, 1):
            if more:
                following[partition] = _append(
                    journal, partition, following[partition], more * (1 + partition)
                )
        rows = _source(
            spark, path=str(journal), startingOffsets="earliest", maxRowsPerTrigger="400"
        )
        query = _to_table(rows, tmp_path)
        batches += [progress.numInputRows for progress in query.recentProgress]
    expected = [(partition, n) for partition in (0, 1) for n in range(following[partition])]
    assert _found(spark, tmp_path) == expected
    assert max(batches) <= 400
    assert sum(batches) == len(expected)


def test_messages_that_went_are_named_or_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    following = _append(journal, 0, 0, 100)
    _to_table(_source(spark, path=str(journal), startingOffsets="earliest"), tmp_path)
    following = _append(journal, 0, following, 100)
    following = _append(journal, 0, following, 100)
    Segment(0, 0).path(journal).unlink()
    Segment(0, 100).path(journal).unlink()
    with pytest.raises(
        StreamingQueryException, match=r"messages 100 to 199 of partition 0 of .* are not in"
    ):
        _to_table(_source(spark, path=str(journal)), tmp_path)
    _to_table(_source(spark, path=str(journal), failOnDataLoss="false"), tmp_path)
    assert _found(spark, tmp_path) == [(0, n) for n in (*range(100), *range(200, following))]


def test_a_journal_that_was_begun_anew_is_not_read_as_the_old_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    _append(journal, 0, 0, 100)
    _to_table(_source(spark, path=str(journal), startingOffsets="earliest"), tmp_path)
    Segment(0, 0).path(journal).unlink()
    _append(journal, 0, 0, 30)
    with pytest.raises(StreamingQueryException, match="rewound"):
        _to_table(_source(spark, path=str(journal)), tmp_path)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker("--data", str(tmp_path / "data"), *_BROKER) as process:
        yield process


def _publish(port: int, topic: str, numbers: range) -> None:
    client = connect(f"fmqp://127.0.0.1:{port}")
    with client:
        for number in numbers:
            client.publish(topic, b"%d" % number)
        client.sync()


def _overview(port: int) -> dict[str, object]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/journal")
    found: dict[str, object] = json.loads(connection.getresponse().read())
    connection.close()
    return found


def test_a_broker_is_read_live_and_told_what_the_group_has_read(
    spark: SparkSession, tmp_path: Path, running: BrokerProcess
) -> None:
    port = running.ports["auto"]
    _publish(port, "lab/0", range(100))
    rows = _source(
        spark,
        brokers=f"127.0.0.1:{port}",
        startingOffsets="earliest",
        topics="lab/*",
        group="tables",
    )
    query = (
        rows.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("path", str(tmp_path / "table"))
        .start()
    )
    try:
        for number in range(1, 4):
            _publish(port, f"lab/{number}", range(100))
        deadline = time.monotonic() + 60
        while True:
            query.processAllAvailable()
            if spark.read.parquet(str(tmp_path / "table")).count() >= 400:
                break
            assert time.monotonic() < deadline
        # Spark says that a batch is in the tables when it begins the next one.
        _publish(port, "elsewhere", range(1))
        query.processAllAvailable()
    finally:
        query.stop()
    table = spark.read.parquet(str(tmp_path / "table"))
    bodies = table.select("path", F.col("payload").cast("string").alias("body")).collect()
    assert sorted((row.path, int(row.body)) for row in bodies) == [
        (f"lab/{number}", n) for number in range(4) for n in range(100)
    ]
    groups = _overview(port)["groups"]
    assert isinstance(groups, dict)
    assert sum(groups["tables"]["positions"].values()) >= 400


def test_a_batch_read_of_a_broker_by_number(spark: SparkSession, running: BrokerProcess) -> None:
    port = running.ports["auto"]
    _publish(port, "lab/lamp", range(50))
    read = spark.read.format("motemq").option("brokers", f"http://127.0.0.1:{port}")
    everything = read.option("topics", "lab/lamp").load()
    found = {row.seq: int(row.payload) for row in everything.collect()}
    assert sorted(found.values()) == list(range(50))
    first = min(found)
    some = read.option("startingOffsets", f'{{"0": {first + 10}, "1": {first + 10}}}').option(
        "endingOffsets", f'{{"0": {first + 20}, "1": {first + 20}}}'
    )
    assert sorted(row.seq for row in some.load().collect()) == list(range(first + 10, first + 20))
