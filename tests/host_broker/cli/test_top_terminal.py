"""``motemq top`` in a terminal of its own: what it shows, its keys, and what it leaves behind."""

import contextlib
import fcntl
import io
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
from rich.cells import cell_len
from rich.console import Console

from host_broker.cli.top_view import as_json, lines, table
from host_broker.cli.traffic import Report, TopicRow, Traffic
from host_broker.client import Message
from tests.host_broker.cli.processes import END_S, fmqp, read_until
from tests.host_broker.net.broker_process import motemq

_WIDTH, _HEIGHT = 110, 24
_ENTER_SCREEN, _LEAVE_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"
_HIDE_CURSOR, _SHOW_CURSOR = b"\x1b[?25l", b"\x1b[?25h"


@dataclass(slots=True)
class _InTerminal:
    process: subprocess.Popen[bytes]
    screen: int  # what a person would sit at

    def attributes(self) -> list[object]:
        return list(termios.tcgetattr(self.screen))


def _without_a_size() -> dict[str, str]:
    # readline, which pytest loads, writes its terminal's size into the environment of children.
    sizes = ("COLUMNS", "LINES")
    kept = {name: value for name, value in os.environ.items() if name not in sizes}
    return {**kept, "TERM": "xterm-256color"}


@pytest.fixture
def in_terminal(url: str) -> Iterator[_InTerminal]:
    """Run ``motemq top`` in a terminal of 110 x 24, where it controls the keyboard."""
    with _top(_WIDTH, url, "--interval", "0.2") as running:
        yield running


@contextlib.contextmanager
def _top(width: int, *arguments: str) -> Iterator[_InTerminal]:
    screen, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", _HEIGHT, width, 0, 0))
    process = subprocess.Popen(
        motemq("top", *arguments),
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        env=_without_a_size(),
    )
    os.close(inside)
    try:
        yield _InTerminal(process, screen)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(END_S)
        os.close(screen)


def test_once_in_a_terminal_keeps_to_its_width(url: str) -> None:
    """Lines that are longer would be broken anywhere."""
    with fmqp(url) as client:
        client.publish("narrow/" + "/".join(["level"] * 20), b"x" * 300, retain=True)
        client.publish("narrow/ümläute", "ü".encode() * 300, retain=True)
        client.sync()
        with _top(80, url, "narrow/*", "narrow" + "/*" * 20, "--once", "--interval", "0.2") as top:
            shown = read_until(
                top.screen, lambda data: data.count(b"narrow/") == 2 and data.endswith(b"\n")
            )
            assert top.process.wait(END_S) == 0
    lines = shown.decode().split("\r\n")
    assert [cell_len(line) for line in lines[1:3]] == [80, 80]
    assert all(cell_len(line) <= 80 for line in lines)


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_the_table_appears_and_the_terminal_is_given_back(
    url: str, in_terminal: _InTerminal, how: str
) -> None:
    before = in_terminal.attributes()
    with fmqp(url) as client:
        for number in range(100):
            client.publish(f"wall/{number}", b"[bold]not markup[/bold]", retain=True)
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


def test_keys_sort_pause_and_quit(url: str, in_terminal: _InTerminal) -> None:
    before = in_terminal.attributes()
    screen = in_terminal.screen
    with fmqp(url) as client:
        client.publish("keys/kept", b"old", retain=True)
        client.sync()
        read_until(screen, lambda data: "▾ messages/s".encode() in data)
        for key, head in ((b"b", "▾ bytes/s"), (b"t", "▾ topic"), (b"M", "▾ messages\x1b")):
            os.write(screen, key)
            read_until(screen, lambda data, head=head: head.encode() in data)
        os.write(screen, b"p")
        read_until(screen, lambda data: b"paused; p goes on" in data)
        client.publish("keys/kept", b"unseen", retain=True)
        client.sync()
        os.write(screen, b"p")
        read_until(screen, lambda data: b"unseen" in data and b"q quit" in data)
    os.write(screen, b"q")
    rest = read_until(screen, lambda data: _LEAVE_SCREEN in data)
    assert in_terminal.process.wait(END_S) == 0
    assert _SHOW_CURSOR in rest
    assert in_terminal.attributes() == before


def test_the_table_follows_the_terminals_size(url: str, in_terminal: _InTerminal) -> None:
    with fmqp(url) as client:
        for number in range(30):
            client.publish(f"size/{number:02}", b"x", retain=True)
        client.sync()
        read_until(in_terminal.screen, lambda data: b"are not shown" in data)
        for height in (12, 40):
            size = struct.pack("HHHH", height, 90, 0, 0)
            fcntl.ioctl(in_terminal.screen, termios.TIOCSWINSZ, size)
            os.write(in_terminal.screen, b"t")
            read_until(
                in_terminal.screen,
                lambda data, height=height: _rows_of_a_drawing(data) == height - 6,
            )


def _rows_of_a_drawing(data: bytes) -> int:
    """Return how many topics the last whole drawing in ``data`` shows; all of them are silent."""
    drawings = data.split(b"\x1b[H")[1:-1]
    return drawings[-1].count(b"\x1b[2m0 bytes") if drawings else 0


@pytest.mark.parametrize("width", [80, 60, 200])
def test_the_table_uses_the_width_there_is(width: int) -> None:
    """Topics get what they need, payloads the rest; nothing is wider than the terminal."""
    row = TopicRow("greenhouse/north/temperature", 12.5, 1_234_567, 98_765, b"x" * 200, 300)
    dropped = {"fmqp": {"slow": 7, "max_body": 5}, "lightmq": {"R17": 1}}
    report = Report(1.0, 12.5, 1_234_567, dropped, 42, 1_234_567, 2, 0, [row])
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(table("fmqp://127.0.0.1:8765", report, "rate", "", width))
    lines = console.export_text().splitlines()
    assert max(map(cell_len, lines)) <= width
    (shown,) = [line for line in lines if "98,765" in line]
    assert shown.rstrip().endswith("…")
    assert cell_len(shown.rstrip()) >= width - 1  # all of it
    if width >= 80:
        assert "greenhouse/north/temperature" in shown
        assert "dropped: fmqp 12 lightmq 1" in lines[0]
        assert "…" not in lines[0]
        assert "p pause" in lines[-1]


def test_a_broker_that_does_not_tell_of_drops_has_not_dropped_nothing() -> None:
    """By UMQ it tells of its clients only."""
    traffic = Traffic()
    traffic.heard(Message("$/info/clients", (3).to_bytes(8, "big"), kept=True))
    report = traffic.report(10)
    assert (report.clients, report.dropped) == (3, None)
    assert json.loads(as_json("url", report))["dropped"] is None
    assert "dropped" not in lines("url", report)
    traffic.heard(Message("$/info/messages/second", bytes(8)))
    assert traffic.report(10).dropped == {}
    traffic.broker_lost()
    assert traffic.report(10).dropped is None


def test_what_was_dropped_is_shown_by_protocol() -> None:
    traffic = Traffic()
    for topic, count in (("fmqp/slow", 7), ("fmqp/max_body", 5), ("lightmq/R17", 0)):
        payload = count.to_bytes(8, "big")
        traffic.heard(Message(f"$/info/dropped/{topic}", payload, kept=True))
    report = traffic.report(5)
    assert report.dropped == {"fmqp": {"slow": 7, "max_body": 5}}
    assert report.topics == 0
    assert "dropped: fmqp 12" in lines("url", report)
    assert json.loads(as_json("url", report))["dropped"] == {"fmqp": {"slow": 7, "max_body": 5}}
