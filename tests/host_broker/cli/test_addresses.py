"""TLS and unix sockets for every command, and whatever else may be at an address."""

import ctypes
import http.server
import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.host_broker.cli.processes import END_S, ended, run, subscribed
from tests.host_broker.net.broker_process import BrokerProcess, broker, motemq
from tests.host_broker.net.certificates import Authority

_COMMANDS = {
    "pub": ["t", "x"],
    "sub": ["t", "--count", "1", "--timeout", "20"],
    "top": ["--once", "--interval", "0.2"],
    "ping": ["--count", "3"],
}
_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_CAPBSET_DROP = 24
_DAC_CAPABILITIES = (1, 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("addresses")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder, "ours")


@pytest.fixture(scope="module")
def secured(folder: Path, authority: Authority) -> Iterator[BrokerProcess]:
    """A broker with a TLS listener and a unix socket."""
    cert, key = authority.issue("broker")
    listen = [
        f"fmqps://127.0.0.1:0?cert={cert}&key={key}",
        f"fmqp+unix://{folder}/broker.sock",
        f"lightmq+fmqps://127.0.0.1:0?cert={cert}&key={key}",
        f"lightmq+fmqp+unix://{folder}/carried.sock",
        "lightmq+fmqp://127.0.0.1:0",
        f"umqs://127.0.0.1:0?cert={cert}&key={key}",
        f"umq+unix://{folder}/umq.sock",
    ]
    with broker(*(word for each in listen for word in ("--listen", each))) as process:
        yield process


@pytest.fixture(
    params=[
        *("fmqps", "fmqp+unix", "lightmq+fmqps", "lightmq+fmqp+unix", "lightmq+fmqp"),
        *("umqs", "umq+unix"),
    ]
)
def address(request: pytest.FixtureRequest, secured: BrokerProcess, authority: Authority) -> str:
    query = f"?ca={authority.file}" if request.param.endswith("s") else ""
    return secured.urls[request.param] + query


def test_every_command_reaches_the_broker(address: str) -> None:
    transport = address.partition(":")[0]
    listener = subscribed(address, f"{transport}/*", "--count", "2", "-v")
    assert run("pub", address, f"{transport}/text", "one", "--retain").returncode == 0
    done = run("pub", address, f"{transport}/lines", "--lines", "--reconnect", stdin=b"two\n")
    assert (done.returncode, done.stderr) == (0, b"")
    heard = f"{transport}/text one\n{transport}/lines two\n".encode()
    assert ended(listener) == (0, heard, b"")
    done = run("top", address, f"{transport}/*", "--once", "--json", "--interval", "0.2")
    assert done.returncode == 0
    assert [row["last"] for row in json.loads(done.stdout)["topics"]] == ["one"]
    done = run("ping", address, "--count", "5")
    assert done.returncode == 0
    assert done.stdout.startswith(b"5 round trips, 0 lost")


def _fails(command: str, url: str, *more: str) -> str:
    """Run a command that must fail with code 1; return its one line without the command's name."""
    done = run(command, url, *_COMMANDS[command], *more)
    assert done.returncode == 1, done
    line = done.stderr.decode()
    assert line.count("\n") == 1, line
    assert line.startswith(f"{command}: error: ")
    return line.removeprefix(f"{command}: error: ").rstrip("\n")


@pytest.mark.parametrize("command", _COMMANDS)
def test_a_broker_that_cannot_prove_who_it_is(
    command: str, secured: BrokerProcess, authority: Authority, tmp_path: Path
) -> None:
    url = secured.urls["fmqps"]
    theirs = Authority(tmp_path, "theirs")
    for wrong in (url, f"{url}?ca={theirs.file}"):
        words = rf"{re.escape(url)} cannot prove who it is: .*; name its authority with \?ca=FILE"
        assert re.fullmatch(words, _fails(command, wrong))
    other = url.replace("127.0.0.1", "localhost")
    said = _fails(command, f"{other}?ca={authority.file}")
    assert said.startswith(f"{other} cannot prove who it is: Hostname mismatch")
    assert said.endswith("; connect by a name its certificate is for")


@pytest.mark.parametrize("command", _COMMANDS)
def test_a_wrong_file_is_a_usage_error(command: str, secured: BrokerProcess) -> None:
    url = f"{secured.urls['fmqps']}?ca=/does/not/exist.pem"
    done = run(command, url, *_COMMANDS[command])
    assert done.returncode == 2
    assert b"cannot use its ca, cert or key: No such file" in done.stderr


def test_a_wrong_file_of_a_secret_is_a_usage_error(running: BrokerProcess) -> None:
    url = running.urls["lightmq"] + "/desk?token_file=/does/not/exist"
    done = run("pub", url, "up", "x")
    assert done.returncode == 2
    assert b"cannot use its token_file /does/not/exist: No such file or directory\n" in done.stderr


@pytest.mark.parametrize("command", _COMMANDS)
def test_tls_at_one_end_only(command: str, secured: BrokerProcess, running: BrokerProcess) -> None:
    said = _fails(command, running.urls["lightmq"].replace("lightmq:", "fmqps:"))
    assert "did not agree on TLS (" in said
    url = running.urls["fmqp"].replace("fmqp:", "fmqps:")
    said = _fails(command, url, "--answer-within", "0.5")
    assert said.endswith("did not begin TLS within 0.5 s; is TLS spoken on this port?")
    said = _fails(command, secured.urls["fmqps"].replace("fmqps:", "fmqp:"))
    assert "is it the right port and protocol?" in said


@pytest.mark.parametrize("command", _COMMANDS)
def test_a_unix_socket_that_cannot_be_used(command: str, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no socket")
    urls = [f"fmqp+unix://{tmp_path}/{name}" for name in ("missing", "file")]
    with ThreadPoolExecutor() as both:  # each waits for a broker that may be just starting
        for url, said in zip(urls, both.map(partial(_fails, command), urls), strict=True):
            assert said == f"nothing listens at {url}; is the broker running there?"


@pytest.mark.parametrize("command", _COMMANDS)
def test_a_unix_socket_of_somebody_else(command: str, tmp_path: Path) -> None:
    with broker("--listen", f"fmqp+unix://{tmp_path}/private.sock") as running:
        os.chmod(tmp_path / "private.sock", 0)
        done = subprocess.run(
            motemq(command, running.urls["fmqp+unix"], *_COMMANDS[command]),
            capture_output=True,
            timeout=END_S,
            preexec_fn=_without_roots_keys,
        )
    assert done.returncode == 1
    words = rf"{command}: error: no permission to use fmqp\+unix://\S+; only its owner .*\n"
    assert re.fullmatch(words, done.stderr.decode())


def _without_roots_keys() -> None:
    """Let file permissions count, also if the tests are run by root (fails, and rightly, else)."""
    for capability in _DAC_CAPABILITIES:
        _LIBC.prctl(_PR_CAPBSET_DROP, capability)


class _Page(http.server.BaseHTTPRequestHandler):
    timeout = 10

    def log_message(self, format: str, *arguments: object) -> None:
        """Nobody wants to know."""


@pytest.fixture(scope="module")
def web_server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(20)


@pytest.mark.parametrize("command", _COMMANDS)
def test_a_web_server(command: str, web_server: str) -> None:
    """It waits for more, as web servers do."""
    done = run(command, f"fmqp://{web_server}", *_COMMANDS[command], "--answer-within", "0.5")
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1
    assert b"within 0.5 s" in done.stderr or b"before the deadline" in done.stderr
    assert done.stderr.endswith(b"is it the right port and protocol?\n")


@pytest.mark.parametrize("command", ["pub", "sub", "ping"])
def test_the_other_protocols_port(command: str, running: BrokerProcess) -> None:
    crossed = {
        "fmqp": running.urls["lightmq"].replace("lightmq:", "fmqp:"),
        "lightmq": running.urls["fmqp"].replace("fmqp:", "lightmq:") + "/lost",
    }
    for protocol, url in crossed.items():
        arguments = {"pub": ["up", "x"], "sub": ["down"], "ping": []}[command]
        if protocol == "fmqp":
            arguments = _COMMANDS[command]
        done = run(command, url, *arguments, "--answer-within", "0.5")
        assert done.returncode == 1
        assert done.stderr.count(b"\n") == 1
        assert done.stderr.endswith(b"is it the right port and protocol?\n")


@pytest.mark.parametrize("command", _COMMANDS)
def test_hosts_that_are_not_there(command: str) -> None:
    said = _fails(command, "fmqp://nobody.invalid:8765")
    assert said.startswith("fmqp://nobody.invalid:8765: the host name is unknown (")
    said = _fails(command, "fmqp://255.255.255.255:8765")
    assert said == "cannot connect to fmqp://255.255.255.255:8765: Network is unreachable"


@pytest.mark.parametrize("command", ["pub", "sub", "ping"])
def test_a_name_in_use(command: str, running: BrokerProcess) -> None:
    url = f"{running.urls['lightmq']}/twin"
    first = subscribed(url, "down")
    arguments = {"pub": ["up", "x"], "sub": ["down"], "ping": []}[command]
    done = run(command, url, *arguments)
    assert done.returncode == 1
    words = rf"{command}: error: .* refused client id 'twin': .* another client connected .*\n"
    assert re.fullmatch(words, done.stderr.decode())
    first.terminate()
    ended(first)
