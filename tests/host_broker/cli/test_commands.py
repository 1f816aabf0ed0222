"""``motemq pub``, ``sub`` and ``ping`` as processes, talking to a real broker."""

import re
import signal
import socket
import subprocess
from collections.abc import Iterator

import pytest

from host_broker.client import FmqpClient, LightmqClient, connect
from tests.host_broker.net.broker_process import BrokerProcess, broker, line_of, motemq, spawn


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker() as process:
        yield process


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(motemq(*arguments), capture_output=True, text=True, timeout=30)
    assert "Traceback" not in done.stderr
    return done


def subscribed(*arguments: str) -> "subprocess.Popen[bytes]":
    """Start ``motemq sub`` and return when its subscription is active."""
    process = spawn(motemq("sub", *arguments))
    assert process.stderr is not None
    assert process.stderr.readline() == b"subscribed\n"
    return process


def ended(process: "subprocess.Popen[bytes]") -> tuple[int, bytes, bytes]:
    stdout, stderr = process.communicate(timeout=30)
    return process.returncode, stdout, stderr


def test_a_retained_message_is_there_for_a_later_subscriber(running: BrokerProcess) -> None:
    url = running.urls["fmqp"]
    assert run("pub", url, "home/kitchen/temperature", "21.5 °C", "--retain").returncode == 0
    done = run("sub", url, "home/*/temperature", "--count", "1", "-v")
    assert (done.returncode, done.stdout) == (0, "home/kitchen/temperature 21.5 °C\n")
    assert run("pub", url, "home/kitchen/temperature", "", "--retain").returncode == 0
    done = run("sub", url, "home/*/temperature", "--timeout", "0.3")
    assert (done.returncode, done.stdout) == (0, "")


def test_a_will_is_published_when_pub_ends(running: BrokerProcess) -> None:
    url = running.urls["fmqp"]
    process = subscribed(url, "gone", "--count", "1")
    assert run("pub", url, "gone", "bye", "--will").returncode == 0
    assert ended(process) == (0, b"bye\n", b"")


def test_sub_prints_at_once_and_ends_with_130_on_ctrl_c(running: BrokerProcess) -> None:
    process = subscribed(running.urls["fmqp"], "t")
    assert run("pub", running.urls["fmqp"], "t", "now").returncode == 0
    assert line_of(process, 10.0) == "now\n"
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, b"", b"")


def test_messages_that_do_not_come_are_a_failure(running: BrokerProcess) -> None:
    done = run("sub", running.urls["fmqp"], "t", "--count", "2", "--timeout", "0.3")
    assert done.returncode == 124
    assert "sub: error: 0 of 2 messages came within 0.3 s" in done.stderr


def test_a_reader_that_goes_away_ends_sub_quietly(running: BrokerProcess) -> None:
    process = subscribed(running.urls["fmqp"], "t")
    assert process.stdout is not None
    process.stdout.close()
    with connect(running.urls["fmqp"]) as client:
        assert isinstance(client, FmqpClient)
        client.publish("t", b"unread")
    assert process.stderr is not None
    assert process.wait(timeout=30) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_sub_says_when_the_broker_is_gone() -> None:
    with broker() as mortal:
        process = subscribed(mortal.urls["fmqp"], "t")
        mortal.end(signal.SIGKILL)
        code, _, stderr = ended(process)
    assert code == 1
    assert re.fullmatch(rb"sub: error: .*(closed|lost).*\n", stderr)


def test_lightmq_pub_and_sub(running: BrokerProcess) -> None:
    url = running.urls["lightmq"]
    listener = subscribed(running.urls["fmqp"], "lightmq/desk/up", "--count", "1", "-v")
    assert run("pub", f"{url}/desk", "up", "hello").returncode == 0
    assert ended(listener) == (0, b"lightmq/desk/up hello\n", b"")
    process = subscribed(f"{url}/desk", "down", "--count", "1", "-v")
    assert run("pub", running.urls["fmqp"], "lightmq/desk/down", "do it").returncode == 0
    assert ended(process) == (0, b"down do it\n", b"")


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
    assert words in done.stderr


@pytest.mark.parametrize("protocol", ["fmqp", "lightmq"])
def test_ping_prints_round_trips(running: BrokerProcess, protocol: str) -> None:
    done = run("ping", running.urls[protocol], "--count", "50")
    assert done.returncode == 0
    figures = re.fullmatch(
        r"50 round trips, 0 lost, min (\d+) us, median (\d+) us, p99 (\d+) us, max (\d+) us\n",
        done.stdout,
    )
    assert figures is not None
    times = [int(figure) for figure in figures.groups()]
    assert times == sorted(times)
    assert times[0] > 0


def test_ping_fails_when_nothing_comes_back() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"fmqp://127.0.0.1:{silent.getsockname()[1]}"
        done = run("ping", url, "--count", "2", "--answer-within", "0.2")
    assert done.returncode == 1
    assert done.stderr == "ping: error: 2 of 2 pings were not answered within 0.2 s\n"


@pytest.mark.parametrize(
    "command", [["pub", "{}", "t", "x"], ["sub", "{}", "t"], ["ping", "{}"]], ids=lambda c: c[0]
)
def test_no_broker_is_one_clear_line(command: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"fmqp://127.0.0.1:{listening.getsockname()[1]}"
    done = run(*(argument.format(url) for argument in command))
    assert done.returncode == 1
    assert done.stderr == (
        f"{command[0]}: error: nothing listens at {url}; is the broker running there?\n"
    )


@pytest.mark.parametrize(
    "command", [["pub", "x", "t", "x"], ["sub", "mqtt://h", "t"], ["ping", "fmqp://h:99999"]]
)
def test_a_wrong_address_is_a_usage_error(command: list[str]) -> None:
    done = run(*command)
    assert done.returncode == 2
    assert "Usage: " in done.stderr


@pytest.mark.parametrize("topic", ["/", "x" * 300])
def test_a_wrong_topic_is_a_usage_error(running: BrokerProcess, topic: str) -> None:
    for command in (
        ["pub", running.urls["fmqp"], topic, "x"],
        ["sub", running.urls["fmqp"], topic],
    ):
        done = run(*command)
        assert done.returncode == 2
        assert "topic" in done.stderr


def test_lightmq_client_is_not_taken_for_fmqp(running: BrokerProcess) -> None:
    with connect(running.urls["lightmq"] + "/typed") as client:
        assert isinstance(client, LightmqClient)
