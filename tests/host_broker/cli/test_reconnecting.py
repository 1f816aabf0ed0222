"""Losing brokers and connections: what comes back, what is sent again, what is said."""

import itertools
import json
import re
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.ports import port_for_later
from host_broker.client import Client
from tests.host_broker.cli.cutting import relay
from tests.host_broker.cli.processes import (
    END_S,
    Process,
    ended,
    error_line,
    fmqp,
    opened,
    run,
    started,
    subscribed,
)
from tests.host_broker.net.broker_process import (
    BrokerProcess,
    broker,
    line_of,
    motemq,
    spawn,
    until,
)


@pytest.fixture
def address() -> str:
    """Return an address at which nothing listens yet."""
    return f"fmqp://127.0.0.1:{port_for_later()}"


def _next(client: Client) -> bytes:
    message = client.receive(END_S)
    assert message is not None
    return message.payload


def _write(process: Process, data: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(data)


def test_no_line_is_lost_however_often_the_connection_is(running: BrokerProcess) -> None:
    """Each cut also loses what kernels held; whole lines arrive at least once, and in order."""
    count = 30_000
    lines = [b"%05d" % number for number in range(count)]
    cuts = [1, 50, 300, 40_000, 7_777, 90_001, 123_457, 150_000]
    with fmqp(running.urls["fmqp"]) as listener, relay(running.ports["fmqp"], cuts) as cutting:
        listener.subscribe("steady/lines")
        listener.sync()
        done = run(
            *("pub", cutting.url, "steady/lines", "--lines", "--reconnect"),
            stdin=b"\n".join(lines),
        )
        assert done.returncode == 0, done.stderr
        assert cutting.connections == len(cuts) + 1
        listener.sync()
        heard = []
        while (message := listener.receive(0.0)) is not None:
            heard.append(message.payload)
    assert sorted(set(heard)) == lines
    # At most what is held is repeated after a cut; between cuts there is nothing out of order.
    assert len(heard) - count <= 1000 * len(cuts)
    backward = sum(after <= before for before, after in itertools.pairwise(heard))
    assert backward <= len(cuts)
    assert b"pub: trying again: " in done.stderr
    assert b"pub: connected again\n" in done.stderr


def test_a_line_that_only_the_kernel_took_is_sent_again(address: str) -> None:
    """The broker stops reading, then dies: sending had succeeded long before."""
    with broker("--listen", address) as mortal:
        process = opened("pub", address, "steady/kernel", "--lines", "--reconnect", "--retain")
        with fmqp(address) as client:
            client.subscribe("steady/kernel")
            _write(process, b"first\n")
            assert _next(client) == b"first"
        _stop(mortal)
        _write(process, b"second\n")
        until(lambda: _unread_bytes(address) > 0)
        mortal.end(signal.SIGKILL)
    with broker("--listen", address), fmqp(address) as client:
        client.subscribe("steady/kernel")
        _hear(client, b"second", or_before=b"first")
        assert ended(process)[0] == 0


def _stop(broker: BrokerProcess) -> None:
    """Stop a broker; it reads nothing more when this returns."""
    broker.process.send_signal(signal.SIGSTOP)
    status = Path(f"/proc/{broker.process.pid}/status")
    until(lambda: "State:\tT" in status.read_text())


def _unread_bytes(address: str) -> int:
    """Return what waits in the kernel for the program that listens there.

    Of established connections only: the end of a closed one counts as a byte, too.
    """
    port, established = f":{int(address.rpartition(':')[2]):04X}", "01"
    with open("/proc/net/tcp") as table:
        rows = [row.split() for row in table]
    return sum(
        int(row[4].split(":")[1], 16)
        for row in rows
        if row[1].endswith(port) and row[3] == established
    )


def _hear(client: Client, payload: bytes, or_before: bytes) -> None:
    """Wait for a payload; one message may come again before it."""
    while (heard := _next(client)) != payload:
        assert heard == or_before


def test_lines_wait_for_the_first_broker(address: str) -> None:
    process = started(
        *("pub", address, "steady/first", "--lines", "--reconnect", "--retain"),
        says=rb"pub: trying again: nothing listens at ",
    )
    _write(process, b"early\n")
    with broker("--listen", address), fmqp(address) as client:
        client.subscribe("steady/first")
        assert _next(client) == b"early"
        assert ended(process) == (0, b"", b"pub: connected again\n")


def test_ctrl_c_tells_what_may_be_missing(address: str) -> None:
    with broker("--listen", address) as stopped:
        process = opened("pub", address, "steady/torn", "--lines", "--reconnect")
        with fmqp(address) as client:
            client.subscribe("steady/torn")
            _write(process, b"first\n")
            assert _next(client) == b"first"
            client.subscribe("motemq/echo/*", uncounted=True, confirm=True)
            _write(process, b"second\n")
            while _next(client) != b"second":
                pass
            assert client.receive(END_S) is not None  # its echo: nothing is held any more
        _stop(stopped)
        _write(process, b"a\nb\n")
        until(lambda: _unread_bytes(address) > 0)
        process.send_signal(signal.SIGINT)
        code, _, stderr = ended(process)
        stopped.process.send_signal(signal.SIGCONT)
    assert code == 130
    assert re.fullmatch(rb"pub: messages that may not have arrived: [123]\n", stderr)


def test_without_reconnect_it_says_how_much_was_sent(address: str) -> None:
    with broker("--listen", address) as mortal, fmqp(address) as client:
        client.subscribe("steady/brief")
        client.sync()
        process = opened("pub", address, "steady/brief", "--lines")
        _write(process, b"a\nb\n")
        assert [_next(client), _next(client)] == [b"a", b"b"]
        mortal.end(signal.SIGKILL)
        code, _, stderr = ended(process, stdin=b"c\n")
    assert code == 1
    assert stderr.startswith(b"pub: error: ")
    # 3 if the kernel took "c" before the loss was seen.
    words = rb"\(messages sent before: [23]; the last of them may be lost\)\n$"
    assert re.search(words, stderr)


def test_status_and_last_will_are_there_again(running: BrokerProcess) -> None:
    """The will replaced the status, so the status is said once more; then the will holds again."""
    with fmqp(running.urls["fmqp"]) as client, relay(running.ports["fmqp"]) as cutting:
        client.subscribe("steady/status")
        client.sync()
        process = started(
            *("pub", cutting.url, "steady/status", "online", "--retain"),
            *("--will-payload", "offline", "--reconnect"),
            says=rb"holding",
        )
        heard = [_next(client)]
        for _ in range(2):
            cutting.cut_now()
            heard += [_next(client), _next(client)]
        assert heard == [b"online", b"offline", b"online", b"offline", b"online"]
        assert ended(process)[0] == 0
        assert _next(client) == b"offline"
    kept = run("sub", running.urls["fmqp"], "steady/status", "--retained-only")
    assert kept.stdout == b"offline\n"


def test_a_message_that_is_a_will_is_left_with_each_new_connection(
    running: BrokerProcess,
) -> None:
    with fmqp(running.urls["fmqp"]) as client, relay(running.ports["fmqp"]) as cutting:
        client.subscribe("steady/will")
        client.sync()
        process = started("pub", cutting.url, "steady/will", "bye", "--will", "--reconnect",
                          says=rb"holding")  # fmt: skip
        cutting.cut_now()
        assert _next(client) == b"bye"
        while error_line(process) != b"pub: connected again\n":
            pass
        client.sync()
        assert client.receive(0.0) is None
        assert ended(process)[0] == 0
        assert _next(client) == b"bye"


def test_feedback_is_asked_for_again(address: str) -> None:
    """After a restart nobody subscribes, so nothing is published until somebody does."""
    arguments = (address, "steady/fed", "x", "--repeat", "0", "--delay", "0.02", "--wanted")
    with broker("--listen", address) as mortal:
        process = started("pub", *arguments, "--reconnect", says=rb"nobody subscribes")
        assert run("sub", address, "steady/*", "--count", "2").returncode == 0
        mortal.end(signal.SIGKILL)
    with broker("--listen", address), fmqp(address) as witness:
        witness.subscribe("steady/fed", uncounted=True)
        witness.sync()
        while error_line(process) != b"pub: connected again\n":
            pass
        assert b"nobody subscribes" in error_line(process)
        witness.sync()
        assert witness.receive(0.3) is None
        done = run("sub", address, "steady/fed", "--count", "2")
        assert (done.returncode, done.stdout) == (0, b"x\nx\n")
        process.send_signal(signal.SIGINT)
        assert ended(process)[0] == 130


def test_lightmq_comes_back_too() -> None:
    port = port_for_later()
    listen = ("--listen", f"lightmq://127.0.0.1:{port}", "--listen", "fmqp://127.0.0.1:0")
    url = f"lightmq://127.0.0.1:{port}/desk"
    with broker(*listen) as mortal:
        heard = subscribed(mortal.urls["fmqp"], "lightmq/desk/up", "--count", "1")
        process = opened("pub", url, "up", "--lines", "--reconnect")
        _write(process, b"one\n")
        assert ended(heard) == (0, b"one\n", b"")
        mortal.end(signal.SIGKILL)
    with broker(*listen) as again, fmqp(again.urls["fmqp"]) as client:
        client.subscribe("lightmq/desk/up")
        client.sync()
        _write(process, b"two\n")
        _hear(client, b"two", or_before=b"one")
        assert ended(process)[0] == 0


def test_top_goes_on_with_its_counts(address: str) -> None:
    process = None
    for messages in (3, 7):
        with broker("--listen", address) as mortal, fmqp(address) as client:
            if process is None:
                process = spawn(motemq("top", address, "--json", "--interval", "0.2",
                                       "--reconnect"))  # fmt: skip
            _until_report(process, lambda report: report["clients"] == 2)
            for _ in range(3 if messages == 3 else 4):
                client.publish("steady/top", b"x")
            _until_report(
                process,
                lambda report, messages=messages: [
                    row["messages"] for row in report["topics"]
                ] == [messages],
            )  # fmt: skip
            mortal.end(signal.SIGKILL)
    assert process is not None
    process.send_signal(signal.SIGINT)
    code, _, stderr = ended(process)
    assert code == 130
    assert stderr.startswith(b"top: trying again: ")


def test_top_waits_for_a_broker_longer_than_for_an_answer(address: str) -> None:
    answer = ("--answer-within", "1.5")
    command = motemq("top", address, "--json", "--interval", "0.2", "--reconnect", *answer)
    with broker("--listen", address) as mortal:
        process = spawn(command)
        _until_report(process, lambda report: report["clients"] == 1)
        mortal.end(signal.SIGKILL)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(3.0)
    with broker("--listen", address):
        _until_report(process, lambda report: report["clients"] == 1)
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130


def _until_report(process: Process, wanted: object) -> None:
    assert callable(wanted)
    deadline = time.monotonic() + END_S
    while not wanted(json.loads(line_of(process, END_S))):
        assert time.monotonic() < deadline


def test_each_reason_is_said_once_an_outage(address: str) -> None:
    arguments = ("sub", address, "t", "--reconnect", "--timeout", "3")
    done = run(*arguments)
    assert done.returncode == 1
    words = f"nothing listens at {address}; is the broker running there?\n"
    assert done.stderr.decode() == f"sub: trying again: {words}sub: error: {words}"
    quiet = run(*arguments, "--quiet")
    assert quiet.stderr.decode() == f"sub: error: {words}"


@pytest.mark.parametrize("command", ["pub", "sub", "top"])
def test_no_reconnect_is_the_default(address: str, command: str) -> None:
    topic = {"pub": ["t", "x"], "sub": ["t"], "top": []}[command]
    ways = [(command, address, *topic, *option) for option in ([], ["--no-reconnect"])]
    with ThreadPoolExecutor() as both:  # each waits for a broker that may be just starting
        for done in both.map(lambda way: run(*way), ways):
            assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
