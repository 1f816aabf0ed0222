"""The benchmark of the pipeline measures real reads; how fast is never a test's business."""

import re
import subprocess
import sys

import pytest


@pytest.mark.timeout(900)  # three Sparks, one after the other
def test_a_short_run_reads_everything_and_prints_its_verdicts() -> None:
    argv = [sys.executable, "-m", "benchmarks", "pipeline", "batch", "live-1k", "rollup"]
    options = ["--messages", "4000", "--rounds", "1", "--seconds", "1.5", "--sizes", "10000"]
    run = subprocess.run([*argv, *options], capture_output=True, text=True, timeout=500)
    assert run.returncode == 0, run.stderr
    assert "batch read of 4,000 messages" in run.stdout
    for shape in ("1", "10", "4,000"):
        for row in ("all | parquet", "four | parquet", "all | tuples"):
            columns, source = row.split(" | ")
            assert re.search(rf"^\| {shape} \| {columns} \| .* \| {source} \| ", run.stdout, re.M)
    assert "live, 1,000 messages/s, 1,500 in all" in run.stdout
    assert "| 10,000 |" in run.stdout
    assert "cost of a message at 10,000 over that at 10,000: 1.00" in run.stdout
