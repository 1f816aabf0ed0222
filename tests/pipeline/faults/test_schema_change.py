"""A sender that changes its payload in the middle of a stream."""

import json
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from motemq_pipeline import silver
from motemq_pipeline.registry import load_registry
from tests.pipeline.desk import Sender, write_segment

_REGISTRY = """
[[rule]]
path = "lab/{board}/{sensor}"
is = "telemetry"
encoding = "json"
fields = { value = "v", seq = "n", unit = "u?" }
"""


def test_fields_may_come_and_go_and_types_may_not_change(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "registry.toml"
    file.write_text(_REGISTRY)
    said: list[dict[str, object]] = [
        {"n": 0, "v": 20.5},
        {"n": 1, "v": 21, "u": "C"},  # a field more, a number without a fraction
        {"n": 2, "v": 22.0, "u": "C", "firmware": {"major": 2}},  # one that nobody knows
        {"n": 3, "v": "hot", "u": "C"},  # another type
        {"n": "4", "v": 23.0},
        {"n": 5, "v": 24.0},  # as at first
        {"n": 6, "value": 25.0},  # another name
    ]
    runs = [(Sender(1, 1), [("lab/b/temperature", json.dumps(each).encode())]) for each in said]
    write_segment(tmp_path / "journal", 0, runs)
    stream = (
        spark.readStream.format("motemq")
        .option("path", str(tmp_path / "journal"))
        .option("startingOffsets", "earliest")
        .option("maxRowsPerTrigger", "3")  # the changes come between batches and within them
    )
    decoded = silver.decoded(stream.load(), load_registry(file))
    query = (
        decoded.select(F.col("message_seq").alias("message"), "reason", "value", "unit")
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "table"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    assert (failure := query.exception()) is None, failure
    found = spark.read.parquet(str(tmp_path / "table")).sort("message").collect()
    readings = [(row.message, row.value, row.unit) for row in found if row.reason is None]
    assert readings == [(0, 20.5, None), (1, 21.0, "C"), (2, 22.0, "C"), (5, 24.0, None)]
    reasons = {row.message: row.reason for row in found if row.reason is not None}
    assert set(reasons) == {3, 4, 6}
    assert "'v'" in reasons[3]
    assert "'n'" in reasons[4]
    assert "'v'" in reasons[6]
