"""A table as a stream of what it gets: each row once, whatever compaction and clearing do."""

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from motemq_pipeline import table_source
from motemq_pipeline.delta import Backlog, Table
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.parquet_files import Target, written_by
from motemq_pipeline.schemas import DATE, arrow_schema
from motemq_pipeline.storage import Storage
from motemq_pipeline.table_source import TableStream

_TABLE = "gold_rollup_hour"
_DAY_US = 86_400 * 10**6


class _Grows:
    """A table to which rows are added; ``count`` is their number."""

    def __init__(self, folder: Path) -> None:
        self.place = Storage.at(folder)
        self.table = Table(self.place, _TABLE)
        self.table.create()
        self.storage = self.place.within(_TABLE)
        self._batch = self.count = 0

    def add(self, rows: int) -> None:
        whole = arrow_schema(_TABLE)
        schema = whole.remove(whole.get_field_index(DATE))
        said = [
            {"count": self.count + at, "window_start": (at % 2) * _DAY_US} for at in range(rows)
        ]
        batches = iter([pa.RecordBatch.from_pylist(said, schema=schema)])
        self.table.add(written_by(self.place, Target(_TABLE), batches), "q", self._batch)
        self._batch, self.count = self._batch + 1, self.count + rows


class _Query:
    """What Spark does with a stream, batch after batch, without Spark."""

    def __init__(self, table: _Grows, max_rows: int, fail_on_data_loss: bool = True) -> None:
        self._table, self._max_rows = table, max_rows
        self._fail_on_data_loss = fail_on_data_loss
        self._ends: list[dict[str, int]] = []  # of batches that are finished
        self._planned: dict[str, int] | None = None
        self.rows: list[int] = []
        self.start_again()

    def start_again(self) -> None:
        self._stream = TableStream(
            self._table.storage, _TABLE, self._max_rows, self._fail_on_data_loss
        )
        # Spark notes where batches end; where the first one begins it asks again.
        self.at = self._ends[-1] if self._ends else self._stream.initialOffset()

    def plan(self) -> dict[str, int]:
        """Note how far the next batch goes; it is repeated until it is finished."""
        if self._planned is None:
            limit = ReadMaxRows(self._max_rows) if self._max_rows else ReadAllAvailable()
            self._planned = self._stream.latestOffset(self.at, limit)
        return self._planned

    def batch(self) -> int:
        """Run one; returns its rows."""
        end = self.plan()
        came = [
            row
            for partition in self._stream.partitions(self.at, end)
            for batch in self._stream.read(partition)
            for row in batch.to_pydict()["count"]
        ]
        self._stream.commit(end)
        self.at = end
        self._ends.append(end)
        self._planned = None
        self.rows += came
        return len(came)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32), max_rows=st.sampled_from([0, 5, 40]))
def test_every_row_comes_once(
    tmp_path_factory: pytest.TempPathFactory, seed: int, max_rows: int
) -> None:
    chance = random.Random(seed)
    table = _Grows(tmp_path_factory.mktemp("stream"))
    for _ in range(chance.randrange(3)):
        table.add(chance.randint(1, 20))
    query = _Query(table, max_rows)
    for _ in range(12):
        what = chance.random()
        if what < 0.4:
            table.add(chance.randint(1, 20))
        elif what < 0.55:
            table.table.compact()
        elif what < 0.65:
            table.table.own(str(what))  # a version without rows
        elif what < 0.75:
            query.start_again()
        elif what < 0.85:
            query.plan()
            query.start_again()
        else:
            query.batch()
        assert Backlog(table.table).rows(query.at) == table.count - len(query.rows)
    query.batch()  # what was planned before the last rows came
    while query.batch():
        pass
    assert sorted(query.rows) == list(range(table.count))


def test_a_batch_is_about_as_large_as_was_said(tmp_path: Path) -> None:
    table = _Grows(tmp_path)
    query = _Query(table, max_rows=25)
    assert query.batch() == 0
    for _ in range(10):
        table.add(10)
    sizes = []
    while size := query.batch():
        sizes.append(size)
    assert sizes == [30, 30, 30, 10]
    assert sorted(query.rows) == list(range(100))


def test_a_log_that_was_cleared_before_it_was_read_is_told(tmp_path: Path) -> None:
    table = _Grows(tmp_path)
    query = _Query(table, 0)
    for _ in range(3):
        table.add(1)
    query.batch()
    table.add(1)
    table.add(1)
    table.table.handle().create_checkpoint()
    for version in range(5):
        (tmp_path / _TABLE / "_delta_log" / f"{version:020d}.json").unlink()
    query.start_again()
    with pytest.raises(PipelineError, match=r"what version 4 of .* added is no longer known"):
        query.batch()


def test_what_was_cleared_before_it_was_read_may_be_left_out(tmp_path: Path) -> None:
    table = _Grows(tmp_path)
    query = _Query(table, 1, fail_on_data_loss=False)
    for _ in range(4):
        table.add(1)
    assert query.batch() == 1  # of the four that were there at first
    folder = tmp_path / _TABLE
    for file in sorted(folder.rglob("*.parquet")):
        file.unlink()
    for _ in range(2):
        table.add(1)
    query.start_again()
    while query.batch() or query.at["version"] < table.table.handle().version():
        pass
    assert len(query.rows) == 3  # that, and those which came then
    table.add(1)
    table.add(1)
    table.table.handle().create_checkpoint()
    for version in range(8):
        (folder / "_delta_log" / f"{version:020d}.json").unlink()
    query.start_again()
    while query.batch() or query.at["version"] < table.table.handle().version():
        pass
    assert query.rows[-1:] == [table.count - 1]


@pytest.mark.parametrize("fails", [True, False])
def test_a_beginning_that_was_cleared_is_told_or_left_out(tmp_path: Path, fails: bool) -> None:
    """As when a stream has a long way to go through what there was when it began."""
    table = _Grows(tmp_path)
    for _ in range(4):
        table.add(1)
    query = _Query(table, 1, fails)
    assert query.batch() == 1
    began = query.at["snapshot"]
    table.add(1)
    table.table.handle().create_checkpoint()
    for version in range(began + 1):
        (tmp_path / _TABLE / "_delta_log" / f"{version:020d}.json").unlink()
    query.start_again()
    if fails:
        with pytest.raises(
            PipelineError, match=rf"when this stream of it began, in version {began}"
        ):
            query.batch()
        return
    while query.batch():
        pass
    assert query.rows[1:] == [table.count - 1]


def test_a_first_batch_that_is_repeated_later_has_the_rows_it_had(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = _Grows(tmp_path / "tables")
    table.add(10)
    found: list[list[int]] = []

    def fall(batch: DataFrame, number: int) -> None:
        raise RuntimeError("killed")

    def take(batch: DataFrame, number: int) -> None:
        found.append([row["count"] for row in batch.collect()])

    def run(each: Callable[[DataFrame, int], None]) -> None:
        rows = table_source.stream(spark, table.storage, _TABLE, 1000)
        writer = rows.writeStream.foreachBatch(each)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination(120)

    with pytest.raises(StreamingQueryException, match="killed"):
        run(fall)
    table.add(10)
    run(take)
    assert [sorted(each) for each in found] == [list(range(10)), list(range(10, 20))]


def test_spark_streams_and_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    table = _Grows(tmp_path / "tables")
    for _ in range(5):
        table.add(10)

    def run() -> list[tuple[int, int]]:
        rows = table_source.stream(spark, table.storage, _TABLE, 20)
        writer = rows.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination(120)
        found = spark.read.parquet(str(tmp_path / "out")).select("count", "date").collect()
        return sorted((row[0], row[1].day) for row in found)

    assert run() == [(number, 1 + number % 10 % 2) for number in range(50)]
    table.add(10)
    table.table.compact()
    assert run() == [(number, 1 + number % 10 % 2) for number in range(60)]
    read = table_source.read_files(spark, table.storage, _TABLE, table.table.files())
    assert sorted(row["count"] for row in read.collect()) == list(range(60))
    assert read.schema == table.table.read(spark).schema
