"""The benchmark of fq: what it prints."""

import re
import subprocess
import sys


def test_it_measures_and_judges() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "fq", "--short"],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\| ([^|]*) \| ([^|]*) \| ([\d,]+) \|", done.stdout, re.M)
    assert [load for load, broker, _ in rows if broker == "motemq"] == [
        "1 to 1, 16 routes",
        "1 to 1, 2,000 routes",
        "1 to 1, one route",
        "1 to 8 that compete",
        "10 bindings",
        "1,000 bindings",
        "10,000 bindings",
    ]
    assert len(rows) > 7  # another broker, too
    assert all(int(rate.replace(",", "")) > 0 for _, _, rate in rows)
    assert len(re.findall(r"^- .*: (?:not )?reached$", done.stdout, re.M)) == 2
