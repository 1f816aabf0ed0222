"""What a person mistypes, and a broker that is not there: the same for every command."""

import os
import subprocess
import sys

import pytest

from benchmarks.ports import port_for_later
from tests.host_broker.cli.processes import run
from tests.host_broker.net.broker_process import BrokerProcess


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["pub", "{}", "a/b", "x"], "a client can only send up"),
        (["pub", "{}", "up", "x", "--retain"], "retained"),
        (["sub", "{}", "a/b"], "a client is only sent what is for it"),
    ],
)
def test_lightmq_has_no_topics(running: BrokerProcess, command: list[str], words: str) -> None:
    url = f"{running.urls['lightmq']}/picky"
    done = run(*(argument.format(url) for argument in command))
    assert done.returncode == 2
    assert words in done.stderr.decode()


@pytest.mark.parametrize(
    "command",
    [["pub", "{}", "t", "x"], ["sub", "{}", "t"], ["ping", "{}"], ["top", "{}"]],
    ids=lambda c: c[0],
)
def test_no_broker_is_one_clear_line(command: list[str]) -> None:
    url = f"fmqp://127.0.0.1:{port_for_later()}"
    done = run(*(argument.format(url) for argument in command))
    assert done.returncode == 1
    assert done.stderr.decode() == (
        f"{command[0]}: error: nothing listens at {url}; is the broker running there?\n"
    )


@pytest.mark.parametrize(
    "command",
    [["pub", "x", "t", "x"], ["sub", "mqtt://h", "t"], ["ping", "fmqp://h:99999"], ["top", ""]],
)
def test_a_wrong_address_is_a_usage_error(command: list[str]) -> None:
    done = run(*command)
    assert done.returncode == 2
    assert b"Usage: " in done.stderr


@pytest.mark.parametrize("topic", ["/", "", "x" * 300])
@pytest.mark.parametrize(
    "command",
    [
        ["pub", "{url}", "{topic}", "x"],
        ["pub", "{url}", "fine", "x", "--will-payload", "y", "--will-topic", "{topic}"],
        ["sub", "{url}", "fine", "{topic}"],
        ["sub", "{url}", "fine", "--filter-out", "{topic}"],
        ["sub", "{url}", "fine", "--will-payload", "y", "--will-topic", "{topic}"],
        ["top", "{url}", "{topic}"],
    ],
    ids=" ".join,
)
def test_a_wrong_topic_is_a_usage_error_before_there_is_a_broker(
    command: list[str], topic: str
) -> None:
    url = f"fmqp://127.0.0.1:{port_for_later()}"
    done = run(*(word.format(url=url, topic=topic) for word in command), "--reconnect")
    assert done.returncode == 2
    assert b"topic" in done.stderr


@pytest.mark.parametrize("arguments", ["sub {} full", "ping {}", "top {} --once --interval 0.1"])
@pytest.mark.parametrize(
    ("redirection", "reason"),
    [("> /dev/full", "No space left on device"), (">&-", "stdout is closed")],
    ids=["full disk", "closed"],
)
def test_an_output_that_fails_is_one_clear_line(
    url: str, arguments: str, redirection: str, reason: str
) -> None:
    assert run("pub", url, "full", "x", "--retain").returncode == 0
    script = f'exec "$0" -m motemq {arguments.format(url)} {redirection}'
    done = subprocess.run(["sh", "-c", script, sys.executable], capture_output=True, timeout=60)
    assert done.returncode == 1
    lines = [line for line in done.stderr.decode().splitlines() if line != "subscribed"]
    assert lines == [f"{arguments.split()[0]}: error: cannot write the output: {reason}"]


@pytest.mark.parametrize("seconds", ["nan", "inf", "1e300"])
@pytest.mark.parametrize(
    "command",
    [
        ["sub", "{}", "t", "--timeout"],
        ["pub", "{}", "t", "x", "--delay"],
        ["pub", "{}", "t", "x", "--wanted", "--wait"],
        ["ping", "{}", "--interval"],
        ["ping", "{}", "--answer-within"],
        ["top", "{}", "--interval"],
        ["call", "{}", "kitchen", "x", "--timeout"],
    ],
    ids=lambda words: f"{words[0]} {words[-1]}",
)
def test_what_no_clock_can_count_is_a_usage_error(command: list[str], seconds: str) -> None:
    url = f"fmqp://127.0.0.1:{port_for_later()}"
    done = run(*(argument.format(url) for argument in command), seconds)
    assert done.returncode == 2
    assert f"{seconds} is more than 1000000000 seconds" in done.stderr.decode()


@pytest.mark.parametrize(
    "command",
    [
        ["call", "fmqp://{}", "gr\udcfcn", "x"],
        ["call", "lightmq://{}", "gr\udcfcn", "x"],
        ["sub", "micromsg2://{}/me", "jobs", "--filter", "room=Tgr\udcfcn"],
        ["sub", "fmqp://{}", "gr\udcfcn"],
        ["pub", "micromsg2://{}/me", "gr\udcfcn", "x"],
    ],
    ids=lambda words: " ".join(words[:2]).replace("{}", "…"),
)
def test_words_that_are_no_utf_8_are_a_usage_error(
    running: BrokerProcess, command: list[str]
) -> None:
    """As a shell of another encoding gives them."""
    url = running.urls.get(command[1].partition("://")[0], "nowhere://127.0.0.1:1")
    place = url.partition("://")[2]
    words = (os.fsdecode(word.encode("utf-8", "surrogateescape")) for word in command)
    done = run(*(word.format(place) for word in words))
    assert (done.returncode, b"Traceback" in done.stderr) == (2, False)
    assert b"Error: " in done.stderr
