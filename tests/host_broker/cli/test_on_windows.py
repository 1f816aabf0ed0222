"""The client's commands with what Python has on Windows, against a broker on this system."""

import subprocess
import sys
from pathlib import Path

from tests.host_broker.cli.processes import END_S, ended, error_line, fmqp
from tests.host_broker.net.broker_process import BrokerProcess, spawn

_SCRIPT = Path(__file__).parents[2] / "motemq" / "as_on_windows.py"


def _command(*arguments: str) -> list[str]:
    return [sys.executable, str(_SCRIPT), *arguments]


def test_lines_of_stdin_are_published_and_heard(url: str) -> None:
    subscriber = spawn(_command("sub", url, "windows/lines", "--count", "3"))
    assert error_line(subscriber) == b"subscribed\n"
    publisher = spawn(_command("pub", url, "windows/lines", "--lines"), stdin=subprocess.PIPE)
    assert ended(publisher, b"a\nb\r\nlast")[0] == 0
    code, said, _ = ended(subscriber)
    assert (code, said.split()) == (0, [b"a", b"b", b"last"])


def test_a_line_goes_out_before_the_next_comes(url: str) -> None:
    with fmqp(url) as client:
        client.subscribe("windows/live")
        client.sync()
        publisher = spawn(_command("pub", url, "windows/live", "--lines"), stdin=subprocess.PIPE)
        assert publisher.stdin is not None
        for line in (b"a", b"b"):
            publisher.stdin.write(line + b"\n")
            publisher.stdin.flush()
            message = client.receive(END_S)
            assert message is not None
            assert message.payload == line
    assert ended(publisher) == (0, b"", b"")


def test_round_trips_are_measured(running: BrokerProcess) -> None:
    for protocol in ("fmqp", "lightmq"):
        process = spawn(_command("ping", running.urls[protocol], "--count", "5"))
        code, said, error = ended(process)
        assert code == 0, error
        assert b"5 round trips, 0 lost" in said
