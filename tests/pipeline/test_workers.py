"""Python processes that Spark keeps: what they have imported costs no task anything."""

import gc
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pyspark_motemq.workers import settle

_TWICE = """
import gc
collections = []
gc.callbacks.append(lambda phase, info: collections.append(info["generation"]))
from pyspark_motemq.workers import settle
gc.disable()
del collections[:]
settle()
settle()
once = len(collections)
import colorsys
settle()
print(once, len(collections), gc.get_freeze_count() > 1000)
"""


# What tasks call, each in a process that has done nothing else.
_JOINED = """
import gc
from datetime import UTC, datetime
import pyarrow as pa
from motemq_pipeline.sequence_numbers import _PARTS_ARROW, _joined
at = datetime(2026, 1, 1, tzinfo=UTC)
part = {"board": "b", "connection": 1, "protocol": "fmqp", "path": "a/b", "messages": 1}
part |= {"numbered": 1, "low": 0, "high": 0, "first_at": at, "last_at": at}
(row,) = _joined([pa.RecordBatch.from_pylist([part], schema=_PARTS_ARROW)])
print(row["expected"][0], gc.get_freeze_count() > 1000)
"""


_FIRST = """
import gc
import pandas as pd
from motemq_pipeline.silver import _first_of_a_board

class State:
    getOption = None
    def update(self, state):
        pass

twice = {"partition": 0, "message_seq": [0, 1], "connection": 1, "sensor": "t", "seq": 7}
(rows,) = _first_of_a_board(("b",), [pd.DataFrame(twice)], State())
print(len(rows), gc.get_freeze_count() > 1000)
"""
_PUBLISHED = """
import gc
import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType, StructType
from pyspark_motemq.source import DefaultSource

schema = StructType().add("path", StringType()).add("payload", BinaryType())
rows = pa.RecordBatch.from_pylist([{"path": "a/b", "payload": b"1"}])
source = DefaultSource({"brokers": "127.0.0.1:1"})
writer = getattr(source, WRITER)(schema, False)
print(len(writer.write(iter([rows])).lengths), gc.get_freeze_count() > 1000)
"""


def _said(program: str, **environment: str) -> list[str]:
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.split()


def test_what_was_imported_is_left_out_of_collections_once() -> None:
    # Of each collection its begin and its end are told.
    assert _said(_TWICE, SPARK_REUSE_WORKER="1") == ["2", "4", "True"]


def test_a_process_that_spark_does_not_keep_is_left_alone() -> None:
    assert _said(_TWICE) == ["0", "0", "False"]
    before = gc.get_freeze_count()
    settle()
    assert gc.get_freeze_count() == before


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(_JOINED, id="streams"),
        pytest.param(_FIRST, id="first arrivals"),
        pytest.param(_PUBLISHED.replace("WRITER", "'writer'"), id="sink"),
        pytest.param(_PUBLISHED.replace("WRITER", "'streamWriter'"), id="sink of a stream"),
    ],
)
def test_whatever_a_task_calls_leaves_it_out_too(program: str) -> None:
    assert _said(program, SPARK_REUSE_WORKER="1") == ["1", "True"]


def test_sparks_own_workers_are_such(spark: SparkSession) -> None:
    def frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"frozen": [gc.get_freeze_count()] * batch.num_rows})

    # Those of pandas, pyarrow and PySpark are some 80,000.
    rows = spark.range(4, numPartitions=2).mapInArrow(frozen, "frozen long").collect()
    assert all(row.frozen > 10_000 for row in rows), rows
