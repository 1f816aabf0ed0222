"""Files that executors write: all rows once, whatever attempts fail, to one table or to two."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from motemq_pipeline.errors import PipelineError
from motemq_pipeline.parquet_files import File, Target, collected, sharing, writing
from motemq_pipeline.schemas import TABLES, arrow_schema
from motemq_pipeline.storage import Storage

_TABLE = "gold_board_health"  # without days


def _rows(spark: SparkSession, count: int, tasks: int, reason: str = "NULL") -> DataFrame:
    """Return rows of the table, with a reason more; ``streams`` is their number."""
    kinds = dict(each.split(" ") for each in TABLES[_TABLE].split(", "))
    said = {"streams": "CAST(id AS INT)"}  # an int, where the table has a bigint
    rows = spark.range(0, count, 1, tasks).selectExpr(
        f"{reason} AS reason",
        *(
            f"{said.get(name, f'CAST(NULL AS {kinds[name]})')} AS {name}"
            for name in reversed(kinds)
        ),
    )
    return rows


def _numbers(place: Storage, files: list[File]) -> list[int]:
    found = [pq.read_table(f"{place.uri}/{_TABLE}/{file.path}")["streams"] for file in files]
    return sorted(number for column in found for number in column.to_pylist())


def test_rows_go_where_they_belong_and_are_cut_into_groups(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = Storage.at(tmp_path)
    rows = _rows(spark, 300_000, 1, "IF(id % 3 = 0, 'bad', NULL)")
    targets = [Target(_TABLE, lacks="reason"), Target(_TABLE, has="reason")]
    good, bad = collected(writing(rows, place, targets), place, targets)
    assert _numbers(place, good) == [number for number in range(300_000) if number % 3]
    assert _numbers(place, bad) == list(range(0, 300_000, 3))
    (file,) = good
    assert (file.rows, file.low["streams"], file.high["streams"]) == (200_000, 1, 299_999)
    assert file.nulls is not None
    assert (file.nulls["streams"], file.nulls["messages"]) == (0, 200_000)
    written = pq.ParquetFile(f"{place.uri}/{_TABLE}/{file.path}")
    assert written.num_row_groups == 2  # bounded memory, and no group a batch
    assert written.schema_arrow == arrow_schema(_TABLE)


def test_a_file_gets_no_more_than_was_said_and_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    place = Storage.at(tmp_path)
    rows = spark.range(0, 50_000, 1, 1).selectExpr("id AS streams")
    most = 100_000

    def made(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in batches:
            columns = {"streams": batch.column(0)}
            none = pa.nulls(batch.num_rows)
            arrays = [columns.get(name, none) for name in arrow_schema(_TABLE).names]
            whole = pa.table(arrays, arrow_schema(_TABLE).names).cast(arrow_schema(_TABLE))
            for piece in whole.to_batches(max_chunksize=100):
                yield piece.column("streams")[0].as_py() // 100 % 2, piece

    targets = [Target(_TABLE, file_bytes=most), Target(_TABLE)]
    small, (large,) = collected(sharing(rows, place, targets, made), place, targets)
    assert _numbers(place, [*small, large]) == list(range(50_000))
    sizes = [pq.read_table(f"{place.uri}/{_TABLE}/{file.path}").nbytes for file in small]
    assert len(sizes) > 3
    assert all(size < 1.5 * most for size in sizes)


def test_what_an_attempt_that_failed_has_written_is_not_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A task writes its file and is lost before it says so; Spark runs it again elsewhere."""

    def lost_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        yield from batches
        if task.attemptNumber() == 0 and task.partitionId() == 1:
            raise RuntimeError("the executor is lost")

    place, targets = Storage.at(tmp_path), [Target(_TABLE)]
    rows = writing(_rows(spark, 100, 4), place, targets)
    (files,) = collected(rows.mapInArrow(lost_once, rows.schema), place, targets)
    assert _numbers(place, files) == list(range(100))
    assert len(list((tmp_path / _TABLE).iterdir())) == 5  # the fifth is nobody's


def test_executors_with_disks_of_their_own_are_told(spark: SparkSession, tmp_path: Path) -> None:
    place, targets = Storage.at(tmp_path), [Target(_TABLE)]
    written = writing(_rows(spark, 10, 1), place, targets)
    elsewhere = Storage.at(tmp_path / "elsewhere")
    with pytest.raises(PipelineError, match=r"executors write into .* of machines of their own"):
        collected(written, elsewhere, targets)
