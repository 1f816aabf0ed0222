"""What somebody meets who tries the commands for the first time."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.ports import port_for_later
from host_broker.client import connect
from host_broker.protocols.lightmq.codec import Codec
from host_broker.protocols.lightmq.events import Connect, Ping, Send
from tests.host_broker.cli.processes import END_S, ended, error_line, fmqp, run, subscribed
from tests.host_broker.net.broker_process import BrokerProcess, broker, motemq, spawn
from tests.host_broker.net.test_client_peers import peer

_ROOT = Path(__file__).parents[3]


@pytest.fixture
def later() -> str:
    """Return an address at which nothing listens yet."""
    return f"fmqp://127.0.0.1:{port_for_later()}"


def _quick_start(port: int) -> str:
    """Return the README's block, for another port."""
    readme = (_ROOT / "README.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    (block,) = [block for block in blocks if "motemq broker" in block]
    # Without an address the broker takes the documented port, which may be in use here.
    block = block.replace("motemq broker", f"motemq broker --listen auto://127.0.0.1:{port}")
    return block.replace("fmqp://127.0.0.1:8765", f"fmqp://127.0.0.1:{port}")


def test_the_quick_start_pasted_as_a_script_works_and_ends() -> None:
    """Not line by line, and no wait in it: pub begins long before the broker listens."""
    script = _quick_start(port_for_later()) + "kill $!; wait\n"
    shell = subprocess.Popen(
        ["bash", "-e", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    try:
        stdout, stderr = shell.communicate(timeout=END_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    assert "error" not in stderr, stderr
    assert "\n21.5\n" in stdout
    assert "10 round trips, 0 lost" in stdout
    assert "home/kitchen/temperature" in stdout  # top's


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("pub", ["t", "x"]),
        ("sub", ["$/info/clients", "--count", "1"]),
        ("ping", ["--count", "1"]),
        ("top", ["--once", "--interval", "0.1"]),
    ],
)
def test_a_broker_that_is_just_starting_is_waited_for(
    later: str, command: str, arguments: list[str]
) -> None:
    process = spawn(motemq(command, later, *arguments))
    with broker("--listen", later):
        code, _, stderr = ended(process)
    assert code == 0, stderr
    assert stderr in (b"", b"subscribed\n")


def test_a_broker_elsewhere_is_not_waited_for() -> None:
    """It is on no machine of ours (192.0.2.0/24 is for documents), so nothing tells us soon."""
    done = run("pub", "fmqp://192.0.2.1:8765", "t", "x", "--answer-within", "0.3")
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [
        ("home/#", "'home/*', and below that 'home/*/*'"),
        ("home/+/state", "'home/*/state'"),
        ("home/**", "'home/*', and below that 'home/*/*'"),
    ],
)
def test_wildcards_of_mqtt_are_names_here_and_that_is_said(
    url: str, pattern: str, shown: str
) -> None:
    process = spawn(motemq("sub", url, pattern))
    first = error_line(process).decode()
    assert first.startswith("sub: ")
    assert "is no wildcard here" in first
    assert shown in first
    assert error_line(process) == b"subscribed\n"
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, b"", b"")
    assert run("sub", url, pattern, "--timeout", "0.2", "--quiet").stderr == b""
    done = run("top", url, pattern, "--once", "--interval", "0.1")
    assert done.stderr.startswith(b"top: ")
    assert shown.encode() in done.stderr
    process = subscribed(url, "home/a#")  # whose first line is that
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, b"", b"")


def test_without_a_topic_it_is_everything(running: BrokerProcess, url: str) -> None:
    """One level and many, but not the broker's own; publishers are not told."""
    deepest = "/".join("d" * 128)
    with fmqp(url) as client:
        client.subscribe("everything", feedback=True)
        client.publish("everything/kept", b"before", retain=True, confirm=True)
        process = subscribed(url, "-v", "--count", "4")
        for topic in ("everything", "everything/here", deepest):
            client.publish(topic, b"x")
        client.sync()
        code, stdout, _ = ended(process)
        assert code == 0
        assert stdout.decode().splitlines() == [
            "everything/kept before",
            "everything x",
            "everything/here x",
            f"{deepest} x",
        ]
        assert client.receive(0) is None
        client.publish("everything/kept", b"", retain=True, confirm=True)


def test_without_a_topic_it_is_everything_by_micromsg2_too() -> None:
    """Its topics have a word before them, and echoes of others are left out all the same."""
    with broker("--listen", "auto://127.0.0.1:0") as go:
        url = go.urls["auto"].replace("auto", "micromsg2")
        with fmqp(go.urls["auto"].replace("auto", "fmqp")) as client:
            client.publish("kept", b"0", retain=True, confirm=True)
            process = subscribed(url, "-v", "--count", "3")
            client.ping()
            client.publish("everything/here", b"1")
            client.ping()
            client.publish("everything", b"2", confirm=True)
            code, stdout, _ = ended(process)
    assert code == 0
    assert stdout.splitlines() == [
        b"topic/kept 0",
        b"topic/everything/here 1",
        b"topic/everything 2",
    ]


@pytest.mark.parametrize(
    ("typed", "suggested"),
    [
        ("myhost", "fmqp://myhost:8765"),
        ("myhost:9000", "fmqp://myhost:9000"),
        ("127.0.0.1", "fmqp://127.0.0.1:8765"),
        ("[::1]:9000", "fmqp://[::1]:9000"),
        ("fe80::1", "fmqp://[fe80::1]:8765"),
        ("9000", "fmqp://127.0.0.1:9000"),
        (":9000", "fmqp://127.0.0.1:9000"),
        ("fmqp:/myhost", "fmqp://myhost:8765"),
        ("micromsg2:myhost", "micromsg2://myhost:8767"),
    ],
)
def test_a_host_alone_is_completed(typed: str, suggested: str) -> None:
    done = run("sub", typed, "a")
    assert done.returncode == 2
    assert f"'{typed}' is no address; write it as {suggested}".encode() in done.stderr


def test_a_ping_leaves_no_presence_behind(running: BrokerProcess, url: str) -> None:
    """Neither while it lasts nor after: not even for those who look at every client."""
    with fmqp(url) as client:
        client.subscribe("lightmq/*/status", confirm=True)
        done = run("ping", running.urls["lightmq"], "--count", "3")
        assert (done.returncode, done.stdout[:20]) == (0, b"3 round trips, 0 los")
        client.sync()
        assert [got.topic for got in iter(lambda: client.receive(0), None)] == []
    # Who says a name is there under that name, as before.
    assert run("ping", f"{running.urls['lightmq']}/known").returncode == 0
    done = run("sub", url, "lightmq/*/status", "--retained-only", "-v")
    assert done.stdout == b"lightmq/known/status offline\n"


@pytest.mark.parametrize(("protocol", "topic"), [("lightmq", "up"), ("lightmq+fmqp", "a")])
def test_who_publishes_without_a_name_leaves_no_presence_behind(protocol: str, topic: str) -> None:
    """It may run every minute, under another name each time."""
    listen = ("--listen", f"{protocol}://127.0.0.1:0", "--listen", "fmqp://127.0.0.1:0")
    with broker(*listen) as there, connect(there.urls["fmqp"]) as client:
        client.subscribe("lightmq/*/status", confirm=True)
        client.subscribe("lightmq/*/up" if topic == "up" else topic, confirm=True)
        done = run("pub", there.urls[protocol], topic, "x", "--repeat", "3")
        assert done.returncode == 0, done.stderr
        client.sync()
        found = [got.payload for got in iter(lambda: client.receive(0), None)]
        assert found == [b"x"] * 3
        assert run("pub", f"{there.urls[protocol]}/known", topic, "x").returncode == 0
        done = run("sub", there.urls["fmqp"], "lightmq/*/status", "--retained-only", "-v")
        assert done.stdout == b"lightmq/known/status offline\n"


def test_the_other_dialect_is_pinged_and_published_to() -> None:
    """Its brokers need not answer a SEND; ours does, and that changes nothing."""
    with broker("--set", "lightmq.dialect=gbaranski") as go, connect(go.urls["fmqp"]) as client:
        client.subscribe("lightmq/*/up", confirm=True)
        url = go.urls["lightmq"] + "/gopher"
        assert run("ping", url, "--dialect", "gbaranski", "--count", "2").returncode == 0
        done = run("pub", url, "up", "x", "--repeat", "100", "--dialect", "gbaranski", "--json")
        assert done.returncode == 0, done.stderr
        assert b'"messages": 100' in done.stdout
        payloads = [got.payload for got in (client.receive(20.0) for _ in range(100)) if got]
        assert payloads == [b"x"] * 100
        wrong = run("ping", url, "--dialect", "klingon")
        assert wrong.returncode == 2
        assert b"no dialect 'klingon'; there are spec and gbaranski" in wrong.stderr
        none = run("ping", go.urls["fmqp"], "--dialect", "gbaranski")
        assert none.returncode == 2
        assert b"unknown option 'dialect'" in none.stderr


@pytest.mark.parametrize("dialect", ["spec", "gbaranski"])
def test_a_ping_in_either_dialect_leaves_no_presence_behind(dialect: str) -> None:
    """Nor does one in the dialect that the broker does not speak, which fails."""
    with broker("--set", f"lightmq.dialect={dialect}") as go, connect(go.urls["fmqp"]) as client:
        client.subscribe("lightmq/*/status", confirm=True)
        for spoken in ("spec", "gbaranski"):
            done = run("ping", go.urls["lightmq"], "--dialect", spoken, "--count", "1")
            assert done.returncode == (0 if spoken == dialect else 1), done.stderr
            assert spoken == dialect or b"dialect" in done.stderr
        client.sync()
        assert [got.topic for got in iter(lambda: client.receive(0), None)] == []


def test_ctrl_c_while_waiting_for_a_broker(later: str) -> None:
    process = spawn(motemq("sub", later, "t", "--reconnect"))
    assert process.stderr is not None
    assert process.stderr.readline().startswith(b"sub: trying again: ")
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130


def test_the_listener_that_stays_silent_is_not_a_local_broker_that_starts(later: str) -> None:
    """Somebody listens, so there is no point in trying again."""
    port = int(later.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        done = run("ping", later, "--count", "1", "--answer-within", "0.2")
    assert done.returncode == 1
    assert b"were not answered within 0.2 s" in done.stderr


def _never_answers_a_send(sock: socket.socket) -> None:
    """What the broker of LightMQ's author does: PONG, and no SENDRESP."""
    codec = Codec("server", "gbaranski")
    heard = b""
    while data := sock.recv(65536):
        for event in codec.receive_data(data):
            if isinstance(event, Connect):
                sock.sendall(codec.connack(1))
            elif isinstance(event, Ping):
                sock.sendall(codec.pong(event.id))
            elif isinstance(event, Send):
                heard += event.data
    assert heard == b"x" * 200


def test_a_broker_that_never_answers_a_send_is_published_to() -> None:
    with peer("lightmq", _never_answers_a_send) as url:
        arguments = ("up", "x", "--repeat", "200", "--dialect", "gbaranski", "--json")
        done = run("pub", f"{url}/gopher", *arguments)
    assert done.returncode == 0, done.stderr
    assert b'"processed": true' in done.stdout
