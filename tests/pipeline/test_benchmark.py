"""The benchmark of the pipeline measures real reads; how fast is never a test's business."""

import re
import subprocess
import sys
from contextlib import nullcontext

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from benchmarks.__main__ import main
from benchmarks.pipeline import command, refresh, rollup

_END_S = 600.0


def test_a_short_run_reads_everything_and_prints_its_verdicts(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In the Spark there is; to start three more asks nothing more.
    for module in (command, refresh, rollup):
        monkeypatch.setattr(module, "spark_session", lambda *_, **__: nullcontext(spark))
    # Several of one hour, as are reported; that a machine does something else is no matter here.
    monkeypatch.setattr(refresh, "_IN_HOUR", 2)
    options = ["--messages", "4000", "--rounds", "1", "--sizes", "10000", "--old", "10000"]
    options += ["--hour", "10000", "--hour", "20000"]
    run = CliRunner().invoke(main, ["pipeline", "batch", "rollup", "refresh", *options])
    assert run.exit_code == 0, run.output
    assert "batch read of 4,000 messages" in run.output
    for shape in ("1", "10", "4,000"):
        for row in ("all | parquet", "four | parquet", "all | tuples"):
            columns, source = row.split(" | ")
            assert re.search(rf"^\| {shape} \| {columns} \| .* \| {source} \| ", run.output, re.M)
        for columns in ("all", "four"):
            assert re.search(
                rf"^\| {shape} \| {columns} \| [\d,]+ \| \d+\.\d\d \|$", run.output, re.M
            )
    assert "| 10,000 |" in run.output
    assert "cost of a message at 10,000 over that at 10,000: 1.00" in run.output
    assert re.search(r"^\| 4,000 \| 10,000 \| \d+\.\d \| \d+\.\d\d \| 1: ", run.output, re.M)
    assert re.search(
        r"^\| 100,000 \| 20,000 \| \d+\.\d \|( \d+\.\d,){1} \d+\.\d \|$", run.output, re.M
    )
    assert "a refresh late in an hour of 20,000 over an early one" in run.output


@pytest.mark.timeout(900)  # a run of its own, with a Spark, on a machine that may be busy
def test_by_its_command_line_it_measures_a_live_run() -> None:
    argv = [sys.executable, "-m", "benchmarks", "pipeline", "live-1k", "--seconds", "1.5"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_END_S)
    assert done.returncode == 0, done.stderr
    assert "live, 1,000 messages/s, 1,500 in all: published to queryable p50" in done.stdout
