"""Files that executors write: all rows once, whatever attempts fail, to one table or to two."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import SparkSession

from motemq_pipeline import adding, store
from motemq_pipeline.parquet_files import Part, collected, writing
from motemq_pipeline.schemas import version_of

_SCHEMA = pa.schema([("id", pa.int64())])


def _ids(files: tuple[Path, ...]) -> list[int]:
    return sorted(row for file in files for row in pq.read_table(file)["id"].to_pylist())


def test_rows_go_where_they_belong_and_are_cut_into_groups(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.range(300_000).selectExpr("id", "IF(id % 3 = 0, 'bad', NULL) AS reason")
    parts = [Part(tmp_path / "good", _SCHEMA, lacks="reason")]
    parts += [Part(tmp_path / "bad", _SCHEMA, has="reason")]
    for part in parts:
        part.folder.mkdir()
    good, bad = collected(writing(rows.coalesce(1), parts), parts)
    assert (good.rows, bad.rows) == (200_000, 100_000)
    assert _ids(good.files) == [number for number in range(300_000) if number % 3]
    assert _ids(bad.files) == list(range(0, 300_000, 3))
    (file,) = good.files
    assert pq.ParquetFile(file).num_row_groups == 2  # bounded memory, and no group a batch


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

    part = Part(tmp_path, _SCHEMA)
    rows = writing(spark.range(0, 100, 1, 4), [part])
    again = rows.mapInArrow(lost_once, rows.schema)
    (written,) = collected(again, [part])
    assert _ids(written.files) == list(range(100))


def test_files_have_the_types_and_the_version_of_their_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Whatever types Spark came to: an int where the table has a bigint, columns in any order."""
    table = "gold_board_health"
    columns = store.arrow_schema(table).names
    cast = {"streams": "CAST(1 AS INT)", "board": "'b'"}
    rows = spark.sql(
        "SELECT " + ", ".join(f"{cast.get(name, 'NULL')} AS {name}" for name in reversed(columns))
    )
    assert adding.write(table, rows, tmp_path) == 1
    (file,) = store.files(table, tmp_path)
    assert pq.read_schema(file).names == columns
    assert pq.read_schema(file).field("streams").type == pa.int64()
    assert version_of(file) == 1
    found = spark.read.parquet(str(tmp_path / table)).collect()
    assert [(row.board, row.streams, row.last_at) for row in found] == [("b", 1, None)]


def test_a_batch_is_added_once_to_each_of_its_tables(spark: SparkSession, tmp_path: Path) -> None:
    """Killed between two tables: the repeated batch is added to the one that lacks it."""
    tables = ("gold_board_health", "gold_flakes")
    for table in tables:
        store.create(table, tmp_path)
    for repeated in (False, True):
        for table in tables if repeated else tables[:1]:
            part = Part(adding.staging(table, tmp_path), adding.file_schema(table))
            kinds = (each.split(" ") for each in store.TABLES[table].split(", "))
            rows = spark.range(1).selectExpr(*(f"CAST(NULL AS {k}) AS {name}" for name, k in kinds))
            (written,) = collected(writing(rows, [part]), [part])
            adding.add(table, written, tmp_path, 7)
            assert list(part.folder.iterdir()) == []
    assert [store.count(table, tmp_path) for table in tables] == [1, 1]
    assert [len(list((tmp_path / table).glob("*.parquet"))) for table in tables] == [1, 1]
