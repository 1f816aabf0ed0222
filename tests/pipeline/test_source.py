"""The data source in a real Spark."""

import datetime
import threading
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from motemq_pipeline import streams
from motemq_pipeline.streams import know_source
from pyspark_motemq.source import DefaultSource
from tests.journal_segment import Segment, Sender, packet
from tests.pipeline.test_records import VECTORS, expected_rows, write_vectors


def _read(spark: SparkSession, journal: Path) -> DataFrame:
    return spark.read.format("motemq").option("path", str(journal)).load()


def test_spark_finds_the_source_and_reads_the_vectors(spark: SparkSession, tmp_path: Path) -> None:
    whole = [segment for segment in VECTORS["segments"] if not segment["corrupt"]]
    write_vectors(tmp_path, whole)
    rows = _read(spark, tmp_path).sort("partition", "seq").collect()
    found = [row.asDict() for row in rows]
    times = [row.pop("time") for row in found]
    assert [{**row, "payload": bytes(row["payload"])} for row in found] == expected_rows(whole)
    for time, row in zip(times, found, strict=True):
        microseconds = round(time.astimezone(datetime.UTC).timestamp() * 1_000_000)
        assert microseconds == row["time_ns"] // 1000


def test_a_run_sees_to_it_that_spark_knows_the_source(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's own search for it may have failed, on a busy machine; then it is not there."""
    (tmp_path / "p0000").mkdir()
    for _ in range(2):
        know_source(spark)
    assert spark.read.format("motemq").option("path", str(tmp_path)).load().count() == 0

    class NotFound(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "motemq_not_found"

    monkeypatch.setattr(streams, "DefaultSource", NotFound)
    know_source(spark)
    assert spark.read.format("motemq_not_found").option("path", str(tmp_path)).load().count() == 0


def test_an_empty_journal_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    assert _read(spark, tmp_path).collect() == []


@pytest.mark.parametrize("missing", [True, False])
def test_a_missing_folder_or_option_is_told(
    spark: SparkSession, tmp_path: Path, missing: bool
) -> None:
    reader = spark.read.format("motemq")
    if missing:
        reader = reader.option("path", str(tmp_path / "nowhere"))
    with pytest.raises(PySparkException, match=r"no journal folder|needs the journal folder"):
        reader.load().collect()


def test_corruption_reaches_the_user_with_file_and_offset(
    spark: SparkSession, tmp_path: Path
) -> None:
    corrupt = next(segment for segment in VECTORS["segments"] if segment["corrupt"])
    write_vectors(tmp_path, [corrupt])
    offset = corrupt["corrupt"]["offset"]
    with pytest.raises(PySparkException, match=rf"{corrupt['name']}, offset {offset}"):
        _read(spark, tmp_path).collect()


def test_a_read_is_a_snapshot_while_the_broker_appends(spark: SparkSession, tmp_path: Path) -> None:
    """What was appended before the read is there; never a part of a block, never a hole."""
    segment = Segment()
    path = segment.write(tmp_path)
    sender, counts = Sender(2, 1), [0]
    first, stop = threading.Event(), threading.Event()

    def append() -> None:
        with path.open("ab", buffering=0) as file:
            while not stop.is_set() and counts[0] < 1_000_000:
                packets = [packet("a", b"x" * 50)] * 20
                data = segment.record(sender, packets)
                segment.data = b""  # it is in the file
                file.write(data[:500])  # torn for as long as the second write takes
                file.write(data[500:])
                counts[0] += len(packets)
                first.set()

    broker = threading.Thread(target=append)
    broker.start()
    try:
        assert first.wait(30)
        for _ in range(3):
            before = counts[0]
            rows, distinct, highest = _counted(_read(spark, tmp_path))
            assert rows == distinct == highest + 1 >= max(before, 1)
    finally:
        stop.set()
        broker.join(60)
    assert _counted(_read(spark, tmp_path))[0] == counts[0]


def _counted(rows: DataFrame) -> tuple[int, int, int]:
    found = rows.agg(
        F.count("*").alias("rows"),
        F.count_distinct("seq").alias("distinct"),
        F.coalesce(F.max("seq"), F.lit(-1)).alias("highest"),
    ).collect()[0]
    return found.rows, found.distinct, found.highest
