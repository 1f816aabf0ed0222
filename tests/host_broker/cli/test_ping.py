"""``motemq ping`` as a process, and how times are summed up."""

import json
import math
import os
import pty
import re
import select
import socket
import subprocess
import time

import pytest

from host_broker.cli.round_trips import figures_us, histogram, summary
from tests.host_broker.cli.processes import END_S, motemq, run
from tests.host_broker.net.broker_process import BrokerProcess


@pytest.mark.parametrize("protocol", ["fmqp", "lightmq"])
def test_it_prints_round_trips(running: BrokerProcess, protocol: str) -> None:
    done = run("ping", running.urls[protocol], "--count", "50")
    assert done.returncode == 0
    figures = re.fullmatch(
        r"50 round trips, 0 lost, min (\d+) us, median (\d+) us, p99 (\d+) us, max (\d+) us\n"
        r"(\d+) us \|[ ▁▂▃▄▅▆▇█]{32}\| (\d+) us \(logarithmic\)\n",
        done.stdout.decode(),
    )
    assert figures is not None
    *times, left, right = [int(figure) for figure in figures.groups()]
    assert times == sorted(times)
    assert times[0] > 0
    assert (left, right) == (times[0], times[3])


def test_json_has_every_time(running: BrokerProcess) -> None:
    done = run("ping", running.urls["fmqp"], "--count", "20", "--json")
    assert done.returncode == 0
    said = json.loads(done.stdout)
    times = said.pop("round_trips_us")
    assert len(times) == 20
    assert said == {
        "url": running.urls["fmqp"],
        "sent": 20,
        "lost": 0,
        "min_us": min(times),
        "median_us": sorted(times)[9],
        "p99_us": max(times),
        "max_us": max(times),
    }


def test_an_interval_is_waited_for(running: BrokerProcess) -> None:
    began = time.monotonic()
    done = run("ping", running.urls["lightmq"], "-c", "3", "-i", "0.2")
    assert done.returncode == 0
    assert time.monotonic() - began >= 0.4
    assert done.stdout.startswith(b"3 round trips, 0 lost")


def test_it_fails_when_nothing_comes_back() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"fmqp://127.0.0.1:{silent.getsockname()[1]}"
        arguments = ("ping", url, "--count", "2", "--answer-within", "0.2")
        done = run(*arguments)
        as_json = run(*arguments, "--json")
    assert done.returncode == as_json.returncode == 1
    assert done.stderr == (
        b"ping: error: 2 of 2 pings were not answered within 0.2 s; "
        b"is it the right port and protocol?\n"
    )
    assert done.stdout == b""
    assert json.loads(as_json.stdout) == {"url": url, "sent": 2, "lost": 2, "round_trips_us": []}


def test_who_looks_on_is_told_of_the_first_that_is_lost() -> None:
    """Ten of 5 s each would else be a minute without a word."""
    screen, inside = pty.openpty()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"fmqp://127.0.0.1:{silent.getsockname()[1]}"
        argv = motemq("ping", url, "--count", "1000", "--answer-within", "0.2")
        process = subprocess.Popen(argv, stdin=inside, stdout=inside, stderr=inside)
        os.close(inside)
        try:
            shown = b""
            while b"\n" not in shown:
                assert select.select([screen], [], [], END_S)[0], shown
                shown += os.read(screen, 1000)
            assert shown.startswith(b"ping: no answer within 0.2 s (1 of 1000)\r\n")
        finally:
            process.kill()
            process.wait()
            os.close(screen)


def test_figures_are_measured_times() -> None:
    times = [n * 1e-6 for n in range(200, 0, -1)]
    expected = {"min": 1.0, "median": 100.0, "p99": 198.0, "max": 200.0}
    assert figures_us(times) == pytest.approx(expected)
    one = "1 round trips, 3 lost, min 5 us, median 5 us, p99 5 us, max 5 us"
    assert summary([5e-6], 3) == one


def test_the_histogram_shows_the_mass_and_one_outlier() -> None:
    bars = histogram([100e-6] * 1000 + [1.0])
    assert re.fullmatch(r"100 us \|█ {30}▁\| 1000000 us \(logarithmic\)", bars)
    assert histogram([5e-6, 5e-6]) == "5 us |█| 5 us (logarithmic)"
    even = histogram([100e-6 * math.exp(step) for step in range(5)]).split("|")[1]
    assert even.count("█") == 5
