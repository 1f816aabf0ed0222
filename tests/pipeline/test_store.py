"""Tables as folders: what is a table now, what a crash leaves, what readers and strangers see."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from motemq_pipeline import adding, store
from motemq_pipeline.compaction import compact, compact_small
from motemq_pipeline.errors import PipelineError

_TABLE = "gold_board_health"


def _piece(tables: Path, low: int, high: int, boards: list[str]) -> None:
    """Write a piece as ``append`` does, without Spark."""
    schema = store.arrow_schema(_TABLE)
    rows = pa.Table.from_pylist([{"board": board} for board in boards], schema)
    folder = store.place(_TABLE, tables, low, high)
    folder.mkdir(parents=True)
    pq.write_table(rows, folder / "part-00000.parquet")


def _boards(tables: Path) -> list[str]:
    """Return the rows as our readers find them."""
    found: list[str] = store.dataset(_TABLE, tables).to_table()["board"].to_pylist()
    return found


def _strangers_boards(tables: Path) -> list[str]:
    found: list[str] = pq.read_table(tables / _TABLE)["board"].to_pylist()
    return found


def test_a_piece_within_another_is_superseded(tmp_path: Path) -> None:
    for number in range(5):
        _piece(tmp_path, number, number, [f"b{number}"])
    _piece(tmp_path, 1, 3, ["b1", "b2", "b3"])
    (tmp_path / _TABLE / ".new.d-000000000005-000000000005").mkdir()  # a batch that was killed
    live, superseded = store.pieces(_TABLE, tmp_path)
    assert [(piece.low, piece.high) for piece in live] == [(0, 0), (1, 3), (4, 4)]
    assert [piece.low for piece in superseded] == [1, 2, 3]
    store.show(_TABLE, tmp_path)
    assert _boards(tmp_path) == _strangers_boards(tmp_path) == ["b0", "b1", "b2", "b3", "b4"]
    assert store.count(_TABLE, tmp_path) == 5


def test_superseded_files_stay_while_somebody_may_read_them(tmp_path: Path) -> None:
    for number in range(3):
        _piece(tmp_path, number, number, [f"b{number}"])
    store.show(_TABLE, tmp_path)
    reader = store.dataset(_TABLE, tmp_path)
    (done,) = compact(tmp_path)
    assert (done.before, done.after) == (3, 1)
    assert reader.to_table()["board"].to_pylist() == ["b0", "b1", "b2"]
    assert len(store.pieces(_TABLE, tmp_path)[1]) == 3
    newest = store.place(_TABLE, tmp_path, 0, 2)
    os.utime(newest, (0, newest.stat().st_mtime - store.KEPT_S))
    store.show(_TABLE, tmp_path)
    assert store.pieces(_TABLE, tmp_path)[1] == []
    assert _boards(tmp_path) == _strangers_boards(tmp_path) == ["b0", "b1", "b2"]


def test_compaction_stops_at_the_file_size_and_repeats_nothing(tmp_path: Path) -> None:
    boards = [f"b{number:03d}" for number in range(40)]
    for number, board in enumerate(boards):
        _piece(tmp_path, number, number, [board])
    size = store.pieces(_TABLE, tmp_path)[0][0].size()
    (done,) = compact(tmp_path, file_bytes=10 * size + 1)
    assert (done.before, done.after) == (40, 4)
    assert _boards(tmp_path) == _strangers_boards(tmp_path) == boards


def test_a_compaction_that_was_killed_leaves_the_table(tmp_path: Path) -> None:
    for number in range(3):
        _piece(tmp_path, number, number, [f"b{number}"])
    half = tmp_path / _TABLE / ".new.d-000000000000-000000000002"
    half.mkdir()
    (half / "part-00000.parquet").write_bytes(b"PAR1")
    assert _boards(tmp_path) == ["b0", "b1", "b2"]
    compact(tmp_path)
    assert _boards(tmp_path) == _strangers_boards(tmp_path) == ["b0", "b1", "b2"]


def test_a_row_is_written_again_only_a_few_times(tmp_path: Path) -> None:
    """2048 batches, compacted as they come: all rows, few files, each in at most two merges."""
    boards = [f"b{number:04d}" for number in range(2048)]
    kinds = set()
    for number, board in enumerate(boards):
        _piece(tmp_path, number, number, [board])
        if number % 64 == 63:
            compact_small(tmp_path)
            live, superseded = store.pieces(_TABLE, tmp_path)
            kinds |= {piece.high - piece.low + 1 for piece in live + superseded}
    assert kinds == {1, 32, 1024}
    compact_small(tmp_path)  # the pass that finds 32 pieces of 32 for the second time
    assert len(store.pieces(_TABLE, tmp_path)[0]) == 2
    assert _boards(tmp_path) == boards


def test_a_table_that_was_never_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="there is no table gold_board_health in"):
        store.count(_TABLE, tmp_path)
    store.create(_TABLE, tmp_path)
    assert store.count(_TABLE, tmp_path) == 0
    assert _boards(tmp_path) == []


def _frame(spark: SparkSession, *boards: str) -> DataFrame:
    text = ", ".join(f"'{board}'" for board in boards)
    empty = store.arrow_schema(_TABLE).names[1:]
    return spark.sql(f"SELECT explode(array({text})) AS board").selectExpr(
        "board", *[f"CAST(NULL AS {_type(name)}) AS {name}" for name in empty]
    )


def _type(name: str) -> str:
    kinds = {"protocol": "string", "first_at": "timestamp", "last_at": "timestamp"}
    return {**kinds, "complete": "boolean", "rate_per_s": "double"}.get(name, "bigint")


def test_a_batch_that_comes_again_adds_nothing(spark: SparkSession, tmp_path: Path) -> None:
    assert adding.append(_TABLE, _frame(spark, "a", "b"), tmp_path, 0) == 2
    assert adding.append(_TABLE, _frame(spark, "nobody").limit(0), tmp_path, 1) == 0
    assert adding.append(_TABLE, _frame(spark, "c"), tmp_path, 2) == 1
    assert adding.append(_TABLE, _frame(spark, "again"), tmp_path, 2) == 0
    compact(tmp_path)
    assert adding.append(_TABLE, _frame(spark, "again"), tmp_path, 1) == 0
    assert sorted(_boards(tmp_path)) == ["a", "b", "c"]
    read = store.read(spark, _TABLE, tmp_path)
    assert sorted(row.board for row in read.collect()) == ["a", "b", "c"]


def test_a_table_is_replaced_as_a_whole(spark: SparkSession, tmp_path: Path) -> None:
    adding.write(_TABLE, _frame(spark, "old"), tmp_path)
    before = store.dataset(_TABLE, tmp_path)
    assert adding.write(_TABLE, _frame(spark, "new", "too"), tmp_path) == 2
    assert sorted(_boards(tmp_path)) == sorted(_strangers_boards(tmp_path)) == ["new", "too"]
    assert before.to_table()["board"].to_pylist() == ["old"]
    assert adding.write(_TABLE, _frame(spark, "none").limit(0), tmp_path) == 0
    assert _boards(tmp_path) == []
