"""``motemq top`` as a process: for scripts, and in a terminal of its own."""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.host_broker.cli.processes import END_S, ended, fmqp, read_until, run
from tests.host_broker.net.broker_process import BrokerProcess, broker, line_of, motemq, spawn

_WIDTH, _HEIGHT = 110, 24
_ENTER_SCREEN, _LEAVE_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"
_HIDE_CURSOR, _SHOW_CURSOR = b"\x1b[?25l", b"\x1b[?25h"


def test_json_once_tells_rates_and_what_is_kept(url: str) -> None:
    with fmqp(url) as client:
        client.publish("top/kept", b"from before", cache=True)
        client.sync()
        busy = spawn(motemq("pub", url, "top/busy", "12345678", "--repeat", "0", "--delay", "0.02"))
        client.subscribe("top/busy")
        assert client.receive(END_S) is not None
        # Above a second, so that the broker tells its own count meanwhile.
        done = run("top", url, "--once", "--json", "--interval", "1.5")
        busy.send_signal(signal.SIGINT)
        ended(busy)
    assert (done.returncode, done.stderr) == (0, b"")
    report = json.loads(done.stdout)
    first, second = report["topics"]
    assert first["topic"] == "top/busy"
    assert first["last"] == "12345678"
    assert 1 <= first["messages_per_second"] <= 100
    assert first["bytes_per_second"] == pytest.approx(8 * first["messages_per_second"], rel=0.01)
    assert first["messages_per_second"] == report["messages_per_second"]
    assert second == {
        "topic": "top/kept",
        "messages_per_second": 0.0,
        "bytes_per_second": 0.0,
        "messages": 0,
        "last": "from before",
        "last_bytes": 11,
    }
    assert report["clients"] == 3
    assert 1 <= report["broker_messages_per_second"] <= 200
    assert report["interval_s"] == pytest.approx(1.5, abs=0.5)
    assert (report["topics_not_shown"], report["topics_forgotten"]) == (0, 0)


def test_publishers_are_not_told(url: str) -> None:
    with fmqp(url) as client:
        client.subscribe("unheard", feedback=True)
        client.sync()
        assert run("top", url, "--once", "--interval", "0.2").returncode == 0
        client.sync()
        assert client.receive(0.0) is None


def test_depth_rows_and_topics_choose(url: str) -> None:
    with fmqp(url) as client:
        for topic in ("deep", "deep/er", "deep/er/still"):
            client.publish(f"choose/{topic}", b"x", cache=True)
        client.sync()

    def shown(*arguments: str) -> tuple[list[str], int]:
        done = run("top", url, "--once", "--json", "--interval", "0.2", *arguments)
        report = json.loads(done.stdout)
        return [row["topic"] for row in report["topics"]], report["topics_not_shown"]

    assert "choose/deep/er/still" not in shown("--depth", "3")[0]
    assert "choose/deep/er" in shown("--depth", "3")[0]
    assert shown("choose/*", "choose/*/er") == (["choose/deep", "choose/deep/er"], 0)
    assert shown("choose/*", "choose/*/er", "--rows", "1") == (["choose/deep"], 1)


def test_without_a_terminal_it_prints_lines_until_the_reader_goes_away(url: str) -> None:
    with fmqp(url) as client:
        client.publish("lines/\x1b[2J", b"\x1b]0;owned\x07", cache=True)
        client.sync()
        process = spawn(motemq("top", url, "lines/*", "--interval", "0.2"))
        for _ in range(2):
            assert url in line_of(process, END_S)
            assert r"lines/\x1b[2J  \x1b]0;owned\x07" in line_of(process, END_S)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=END_S) == 141
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_it_says_when_the_broker_is_gone() -> None:
    with broker() as mortal:
        process = spawn(motemq("top", mortal.urls["fmqp"], "--interval", "0.2"))
        line_of(process, END_S)
        mortal.end(signal.SIGKILL)
        code, _, stderr = ended(process)
    assert code == 1
    assert stderr.startswith(b"top: error: ")
    assert stderr.count(b"\n") == 1


def test_lightmq_has_nothing_to_show(running: BrokerProcess) -> None:
    done = run("top", running.urls["lightmq"] + "/curious", "--once")
    assert done.returncode == 2
    assert b"give the broker's fmqp:// URL" in done.stderr


@dataclass(slots=True)
class _InTerminal:
    process: subprocess.Popen[bytes]
    screen: int  # what a person would sit at

    def attributes(self) -> list[object]:
        return list(termios.tcgetattr(self.screen))


@pytest.fixture
def in_terminal(url: str) -> Iterator[_InTerminal]:
    """Run ``motemq top`` in a terminal of 110 x 24, where it controls the keyboard."""
    screen, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", _HEIGHT, _WIDTH, 0, 0))
    process = subprocess.Popen(
        motemq("top", url, "--interval", "0.2"),
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(inside)
    try:
        yield _InTerminal(process, screen)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(END_S)
        os.close(screen)


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_the_table_appears_and_the_terminal_is_given_back(
    url: str, in_terminal: _InTerminal, how: str
) -> None:
    before = in_terminal.attributes()
    with fmqp(url) as client:
        for number in range(100):
            client.publish(f"wall/{number}", b"[bold]not markup[/bold]", cache=True)
        client.sync()
        shown = read_until(in_terminal.screen, lambda data: b"[bold]not markup[/bold]" in data)
        assert _ENTER_SCREEN in shown
        assert _HIDE_CURSOR in shown
        shown += read_until(in_terminal.screen, lambda data: b"are not shown" in data)
        assert b"wall/" in shown
        assert b"messages/s" in shown
    if how == "Ctrl-C":
        os.write(in_terminal.screen, b"\x03")
    else:
        in_terminal.process.send_signal(signal.SIGTERM)
    rest = read_until(in_terminal.screen, lambda data: _LEAVE_SCREEN in data)
    assert in_terminal.process.wait(END_S) == (130 if how == "Ctrl-C" else 143)
    assert _SHOW_CURSOR in rest
    assert b"Traceback" not in shown + rest
    assert in_terminal.attributes() == before
