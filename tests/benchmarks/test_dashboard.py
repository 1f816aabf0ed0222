"""The benchmark of the dashboard: it measures a real page at a real broker, and judges."""

import itertools
import re
import subprocess
import sys

from benchmarks.dashboard.traffic import _spread


def test_it_measures_and_judges() -> None:
    few = ("--topics", "50", "--rate", "2", "--seconds", "1", "--rounds", "1")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "dashboard", *few],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\| (\S+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", done.stdout, re.M)
    assert [name for name, *_ in rows] == [
        *("overview", "topics", "topics/load%2F0%2F7%2Freading", "boards")
    ]
    # The browser is more than its page, and neither is nothing.
    assert all(0 < float(page) <= float(whole) for _, page, whole, _ in rows), done.stdout
    assert len(re.findall(r"^- .*: (not )?reached$", done.stdout, re.M)) == 2


def test_each_topic_comes_as_often_as_it_should() -> None:
    steps = b"".join(itertools.islice(_spread(1000, 10.0), 100))  # a second
    found = re.findall(rb"load/\d+/(\d+)/reading", steps)
    assert len(found) == 10_000
    assert {found.count(each) for each in set(found)} == {10}
    assert len(set(found)) == 1000
