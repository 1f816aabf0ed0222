"""The benchmark of fq's disk queues: what it prints."""

import re
import subprocess
import sys


def test_it_measures_and_judges() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "fq-disk", "--short"],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\| ([^|]*) \| ([\d,]+) \|", done.stdout, re.M)
    assert [name for name, _ in rows] == [
        "many a commit",
        "one a commit",
        "the store alone, 1,000 a commit",
        "the store alone, 1,000 a commit, each on the disk",
        "the store alone, 1 a commit",
        "the store alone, 1 a commit, each on the disk",
    ]
    assert all(int(rate.replace(",", "")) > 0 for _, rate in rows)
    assert len(re.findall(r"^- msg/s.*: (not )?reached$", done.stdout, re.M)) == 1
