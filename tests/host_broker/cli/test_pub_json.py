"""``motemq pub --json``: one object says what was published, whatever ended it."""

import json
import signal
from typing import Any

from tests.host_broker.cli.processes import ended, run, subscribed
from tests.host_broker.net.broker_process import broker, motemq, spawn


def _account(stdout: bytes) -> dict[str, Any]:
    assert stdout.count(b"\n") == 1
    account: dict[str, Any] = json.loads(stdout)
    assert 0 < account.pop("duration_s") < 60
    return account


def test_what_was_processed(url: str) -> None:
    done = run("pub", url, "json/ü", "21.5 °C", "--repeat", "3", "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    assert _account(done.stdout) == {
        "url": url,
        "topic": "json/ü",
        "messages": 3,
        "payload_bytes": 24,
        "processed": True,
    }
    done = run("pub", url, "json/lines", "--lines", "--json", "--reconnect", stdin=b"a\nbb\n")
    assert done.returncode == 0
    account = _account(done.stdout)
    assert (account["messages"], account["payload_bytes"], account["processed"]) == (2, 3, True)


def test_ctrl_c_ends_it_with_an_account(url: str) -> None:
    listener = subscribed(url, "json/ever", "--count", "3")
    arguments = ("pub", url, "json/ever", "x", "--repeat", "0", "--delay", "0.05", "--json")
    process = spawn(motemq(*arguments))
    assert ended(listener)[0] == 0
    process.send_signal(signal.SIGINT)
    code, stdout, _ = ended(process)
    assert code == 130
    account = _account(stdout)
    assert account["messages"] >= 3
    assert account["messages"] == account["payload_bytes"]
    assert account["processed"] is False


def test_a_lost_broker_ends_it_with_an_account() -> None:
    with broker() as running:
        url = running.urls["fmqp"]
        listener = subscribed(url, "json/lost", "--count", "3")
        arguments = ("pub", url, "json/lost", "x", "--repeat", "0", "--delay", "0.05", "--json")
        process = spawn(motemq(*arguments))
        assert ended(listener)[0] == 0
        running.end(signal.SIGKILL)
        code, stdout, stderr = ended(process)
    assert code == 1
    assert b"pub: error: " in stderr
    assert _account(stdout)["processed"] is False


def test_who_is_not_there_gets_nothing(url: str) -> None:
    done = run("pub", url.rpartition(":")[0] + ":1", "t", "x", "--json")
    assert done.returncode == 1
    account = _account(done.stdout)
    assert (account["messages"], account["processed"]) == (0, False)


def test_wrong_arguments_are_no_account(url: str) -> None:
    done = run("pub", url, "t" * 300, "x", "--json")
    assert (done.returncode, done.stdout) == (2, b"")
