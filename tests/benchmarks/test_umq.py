"""The benchmark of UMQ: what it prints."""

import re
import subprocess
import sys


def test_it_measures_rates_and_latencies() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "umq", "--short"],
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    names = ["motemq, UMQ", "nats-server", "aiohttp broadcast"]
    rows = re.findall(r"^\| (1 to \d) \| ([^|]*) \| ([\d,]+) \|", done.stdout, re.M)
    assert [(load, name) for load, name, _ in rows] == [
        (load, name) for load in ("1 to 1", "1 to 8") for name in names
    ]
    assert all(int(rate.replace(",", "")) > 0 for _, _, rate in rows)
    taken = re.findall(r"^\| ([^|]*) \| ([\d,]+) \| ([\d,]+) \|", done.stdout, re.M)
    assert [name for name, _, _ in taken] == names
    assert all(int(p50.replace(",", "")) <= int(p99.replace(",", "")) for _, p50, p99 in taken)
