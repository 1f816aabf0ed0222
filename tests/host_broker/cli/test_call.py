"""``motemq call`` as a process, at a real broker, over everything the broker speaks."""

import json
import signal
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from host_broker.client import Refused, connect
from tests.host_broker.cli.processes import ended, opened, run
from tests.host_broker.net.answering_board import answering
from tests.host_broker.net.broker_process import BrokerProcess, broker, until

_BINARY = bytes(range(256))
_ALL = ["lightmq", "fmqp", "lightmq+fmqp"]
_LISTEN = [word for name in _ALL for word in ("--listen", f"{name}://127.0.0.1:0")]


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker(*_LISTEN) as process:
        yield process


@pytest.fixture(params=_ALL)
def url(request: pytest.FixtureRequest, running: BrokerProcess) -> str:
    return running.urls[request.param]


@pytest.fixture(scope="module")
def board(running: BrokerProcess) -> Iterator[list[bytes]]:
    """What a board named ``kitchen`` was asked; it says what it heard, backwards."""
    asked: list[bytes] = []

    def answer(data: bytes) -> bytes | None:
        asked.append(data)
        if data == b"nothing":
            return b""
        return None if data == b"silence" else data[::-1]

    with answering(running.urls["lightmq"] + "/kitchen", answer):
        yield asked


def test_it_prints_the_response(url: str, board: list[bytes]) -> None:
    """R17: of the board that is named, and nothing else."""
    done = run("call", url, "kitchen", "tä\n?", "--timeout", "10")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"?\\n\\xa4\\xc3t\n", b"")
    assert board[-1] == "tä\n?".encode()


def test_every_byte_there_and_back(url: str, board: list[bytes], tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(_BINARY)
    raw = ("--output", "raw")
    assert run("call", url, "kitchen", "--file", str(file), *raw).stdout == _BINARY[::-1]
    assert run("call", url, "kitchen", "-s", *raw, stdin=_BINARY).stdout == _BINARY[::-1]
    hexadecimal = run("call", url, "kitchen", "-s", "--hex", stdin=_BINARY)
    assert hexadecimal.stdout.decode() == _BINARY[::-1].hex() + "\n"
    assert board[-3:] == [_BINARY] * 3
    longest = bytes(65463)
    assert run("call", url, "kitchen", "-s", *raw, stdin=longest).stdout == longest


def test_json(url: str, board: list[bytes]) -> None:
    said = json.loads(run("call", url, "kitchen", "ab", "--json").stdout)
    assert 0 < said.pop("round_trip_us") < 10e6
    assert said == {"client": "kitchen", "payload": "ba", "encoding": "utf-8"}
    said = json.loads(run("call", url, "kitchen", "-s", "--json", stdin=b"\xff\xfe").stdout)
    assert (said["payload"], said["encoding"]) == ("/v8=", "base64")


def test_an_empty_response_is_one(url: str, board: list[bytes]) -> None:
    """R17: the board has taken it and has nothing to say."""
    done = run("call", url, "kitchen", "nothing")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"\n", b"")


def test_a_call_a_line(url: str, board: list[bytes]) -> None:
    lines = [b"line %d" % number for number in range(50)]
    done = run("call", url, "kitchen", "--lines", stdin=b"\n".join(lines))
    assert done.returncode == 0
    assert done.stdout.splitlines() == [line[::-1] for line in lines]


def test_without_an_answer_in_time_it_is_124(url: str, board: list[bytes]) -> None:
    done = run("call", url, "kitchen", "silence", "--timeout", "0.3")
    assert (done.returncode, done.stdout) == (124, b"")
    assert done.stderr == b"call: error: 'kitchen' did not answer within 0.3 s\n"


def test_who_is_not_there_is_said_at_once(url: str) -> None:
    """R11, over LightMQ: code 2."""
    done = run("call", url, "garden", "x", "--timeout", "20")
    assert (done.returncode, done.stdout) == (1, b"")
    says = f"call: error: {url}: no client 'garden' takes calls there now; is it connected?\n"
    assert done.stderr.decode() == says


def test_whoever_goes_before_it_answers(url: str, running: BrokerProcess) -> None:
    asked: list[bytes] = []
    with answering(running.urls["lightmq"] + "/hasty", asked.append) as client:
        calling = opened("call", url, "hasty", "x", "--timeout", "20")
        until(lambda: bool(asked))
        client.abort()
        code, stdout, stderr = ended(calling)
    assert (code, stdout) == (1, b"")
    assert b"'hasty'" in stderr
    assert stderr.count(b"\n") == 1


def test_ctrl_c_is_130(url: str, running: BrokerProcess) -> None:
    asked: list[bytes] = []
    with answering(running.urls["lightmq"] + "/slow", asked.append):
        calling = opened("call", url, "slow", "x", "--timeout", "20")
        until(lambda: bool(asked))
        calling.send_signal(signal.SIGINT)
        assert ended(calling) == (130, b"", b"")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["kitchen"], "give one of DATA"),
        (["kitchen", "x", "-m", "y"], "give one of DATA"),
        (["kitchen", "x", "--json", "--hex"], "choose one of"),
        (["kitchen", ""], "1 to 65463 bytes, not 0"),
        (["", "x"], "1 to 255 bytes"),
        (["x" * 256, "x"], "1 to 255 bytes"),
        (["kitchen", "--file", "/nonexistent"], "cannot read /nonexistent"),
    ],
)
def test_wrong_arguments(url: str, board: list[bytes], arguments: list[str], words: str) -> None:
    done = run("call", url, *arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert words in done.stderr.decode()


def test_too_much_for_one_call(url: str, board: list[bytes]) -> None:
    """R16."""
    done = run("call", url, "kitchen", "-s", stdin=bytes(65464))
    assert done.returncode == 2
    assert b"1 to 65463 bytes, not 65464" in done.stderr


def test_a_broker_that_wants_to_know_who_calls(tmp_path: Path) -> None:
    """R11, settings.lightmq.clients: the token comes from a file and appears nowhere."""
    token = "5up3r-s3cret"
    config = tmp_path / "broker.toml"
    digest = sha256(token.encode()).hexdigest()
    config.write_text(f'[lightmq.clients]\nkitchen = ""\ndesk = "sha256:{digest}"\n')
    file = tmp_path / "token"
    file.write_text(token + "\n")
    data = tmp_path / "data"
    with broker(*_LISTEN, "--config", str(config), "--data", str(data), "-v") as running:
        urls = running.urls
        with answering(urls["lightmq"] + "/kitchen", lambda data: data):
            for name in ("lightmq", "lightmq+fmqp"):
                done = run("call", f"{urls[name]}/desk?token_file={file}", "kitchen", "x")
                assert (done.returncode, done.stdout) == (0, b"x\n")
                done = run("call", f"{urls[name]}/desk", "kitchen", "x")
                assert done.returncode == 1
                assert b"refused client id 'desk'" in done.stderr
            with pytest.raises(Refused):
                connect(urls["lightmq"] + "/garden")
        code, stderr = running.end()
        assert code == 0
        assert "lightmq.clients" in stderr
        assert token not in stderr
    kept = b"".join(path.read_bytes() for path in data.rglob("*") if path.is_file())
    assert b"desk>kitchen" in kept
    assert token.encode() not in kept


@pytest.mark.parametrize("address", ["micromsg2://127.0.0.1:1/desk", "fq://desk@127.0.0.1:1/q"])
def test_who_cannot_call_is_told_who_can(address: str) -> None:
    """No broker is asked for that."""
    done = run("call", address, "kitchen", "x")
    assert done.returncode == 2
    said = done.stderr.decode()
    assert "has no calls; give the broker's fmqp:// URL or " in said
    assert {"lightmq://", "lightmq+fmqp://", "umq://"} <= set(said.split())
