"""The benchmark of the pipeline measures real reads; how fast is never a test's business."""

import re
from contextlib import nullcontext

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from benchmarks.__main__ import main
from benchmarks.pipeline import command, rollup


@pytest.mark.timeout(900)  # a Spark of its own is measured, too
def test_a_short_run_reads_everything_and_prints_its_verdicts(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (command, rollup):  # in the Spark there is; to start two more asks nothing more
        monkeypatch.setattr(module, "spark_session", lambda *_, **__: nullcontext(spark))
    options = ["--messages", "4000", "--rounds", "1", "--seconds", "1.5", "--sizes", "10000"]
    run = CliRunner().invoke(main, ["pipeline", "batch", "live-1k", "rollup", *options])
    assert run.exit_code == 0, run.output
    assert "batch read of 4,000 messages" in run.output
    for shape in ("1", "10", "4,000"):
        for row in ("all | parquet", "four | parquet", "all | tuples"):
            columns, source = row.split(" | ")
            assert re.search(rf"^\| {shape} \| {columns} \| .* \| {source} \| ", run.output, re.M)
    assert "live, 1,000 messages/s, 1,500 in all" in run.output
    assert "| 10,000 |" in run.output
    assert "cost of a message at 10,000 over that at 10,000: 1.00" in run.output
