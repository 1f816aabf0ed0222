"""``motemq pub`` as a process, heard through a real broker."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from host_broker.client import Message
from tests.host_broker.cli.processes import (
    Process,
    ended,
    error_line,
    fmqp,
    opened,
    run,
    started,
    subscribed,
)
from tests.host_broker.net.broker_process import BrokerProcess, broker, motemq, spawn


def _heard(url: str, topic: str, count: int, *arguments: str, stdin: bytes = b"") -> list[bytes]:
    """Return the payloads a subscriber gets from one run of ``motemq pub URL TOPIC``."""
    with fmqp(url) as client:
        client.subscribe(topic)
        client.sync()
        done = run("pub", url, topic, *arguments, stdin=stdin)
        assert (done.returncode, done.stdout) == (0, b""), done.stderr
        messages = [client.receive(20.0) for _ in range(count)]
        client.sync()
        assert client.receive(0.0) is None
    return [message.payload for message in messages if message is not None]


def test_text_is_taken_when_it_returns(url: str) -> None:
    assert _heard(url, "pub/text", 1, "21.5 °C") == ["21.5 °C".encode()]


def test_a_text_may_begin_with_a_dash(url: str) -> None:
    assert _heard(url, "pub/minus", 1, "-m", "-5") == [b"-5"]


def test_short_options(url: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"f")
    assert _heard(url, "short/file", 1, "-r", "-f", str(tmp_path / "file")) == [b"f"]
    assert run("sub", url, "short/file", "--retained-only").stdout == b"f\n"
    assert run("pub", url, "short/file", "-n", "-r").returncode == 0
    assert run("sub", url, "short/file", "--retained-only").stdout == b""
    assert _heard(url, "short/lines", 2, "-l", stdin=b"a\nb\n") == [b"a", b"b"]
    assert _heard(url, "short/stdin", 1, "-s", stdin=b"a\nb\n") == [b"a\nb\n"]


def test_a_file_is_one_message(url: str, tmp_path: Path) -> None:
    content = bytes(range(256)) * 1000
    (tmp_path / "image").write_bytes(content)
    assert _heard(url, "pub/file", 1, "--file", str(tmp_path / "image")) == [content]


def test_stdin_is_one_message(url: str) -> None:
    assert _heard(url, "pub/stdin", 1, "--stdin", stdin=b"a\nb\n\xff") == [b"a\nb\n\xff"]


def test_each_line_is_a_message(url: str) -> None:
    sent = b"one\r\n\xfftwo\nlast without an end"
    expected = [b"one", b"\xfftwo", b"last without an end"]
    assert _heard(url, "pub/lines", 3, "--lines", stdin=sent) == expected


def test_many_lines_in_order(url: str) -> None:
    lines = [b"%d" % number for number in range(20_000)]
    assert _heard(url, "pub/many", len(lines), "--lines", stdin=b"\n".join(lines)) == lines


def test_a_line_goes_out_before_the_next_comes(url: str) -> None:
    with fmqp(url) as client:
        client.subscribe("pub/live")
        client.sync()
        process = opened("pub", url, "pub/live", "--lines")
        assert process.stdin is not None
        for line in (b"a", b"b"):
            process.stdin.write(line + b"\n")
            message = client.receive(20.0)
            assert message is not None
            assert message.payload == line
    assert ended(process) == (0, b"", b"")


def test_retain_keeps_and_null_clears(url: str) -> None:
    with fmqp(url) as client:
        assert run("pub", url, "pub/kept", "x", "--retain").returncode == 0
        client.subscribe("pub/kept")
        message = client.receive(20.0)
        assert message is not None
        assert message.payload == b"x"
    assert run("pub", url, "pub/kept", "--null", "--retain").returncode == 0
    assert run("sub", url, "pub/kept", "--retained-only").stdout == b""


def test_repeat_with_a_delay(url: str) -> None:
    began = time.monotonic()
    sent = _heard(url, "pub/often", 4, "x", "--repeat", "4", "--delay", "0.1")
    assert sent == [b"x"] * 4
    assert time.monotonic() - began >= 0.3


def test_for_ever_is_until_ctrl_c(url: str) -> None:
    listener = subscribed(url, "pub/ever", "--count", "5")
    process = spawn(motemq("pub", url, "pub/ever", "x", "--repeat", "0", "--delay", "0.05"))
    assert ended(listener) == (0, b"x\n" * 5, b"")
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, b"", b"")


def test_it_publishes_only_while_somebody_subscribes(url: str) -> None:
    """By a wildcard, too: feedback names the subscriber's topic, not ours (R49)."""
    arguments = (url, "wanted/pub", "x", "--repeat", "0", "--delay", "0.05", "--wanted")
    process = started("pub", *arguments, says=rb"nobody subscribes to wanted/pub yet; waiting")
    with fmqp(url) as watcher:
        watcher.subscribe("wanted/pub", uncounted=True)  # hears, but is not counted
        watcher.sync()
        assert watcher.receive(0.3) is None
        done = run("sub", url, "wanted/*", "--count", "2")
        assert (done.returncode, done.stdout) == (0, b"x\nx\n")
        assert error_line(process).endswith(b"waiting\n")
        watcher.sync()
        while watcher.receive(0.0):
            pass  # what was published while it was wanted
        assert watcher.receive(0.3) is None
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130


def test_nobody_comes(url: str) -> None:
    done = run("pub", url, "pub/unwanted", "x", "--feedback", "--wait", "0.3")
    assert done.returncode == 124
    assert b"pub: error: nobody subscribed to pub/unwanted within 0.3 s" in done.stderr


def _last_will(
    url: str, topic: str, end: Callable[[Process], object]
) -> tuple[list[bytes], Process]:
    """Publish a status with a will, end the holder, return what was heard."""
    with fmqp(url) as client:
        client.subscribe(topic)
        client.sync()
        process = started(
            *("pub", url, topic, "online", "--retain", "--will-payload", "offline"),
            says=rb"holding the connection until stdin ends",
        )
        client.sync()
        messages: list[Message | None] = [client.receive(0.0)]
        assert client.receive(0.7) is None  # it does hold
        end(process)
        messages.append(client.receive(20.0))
    return [message.payload for message in messages if message is not None], process


def test_a_will_waits_for_the_end_of_stdin(url: str) -> None:
    heard, process = _last_will(url, "pub/ended", lambda held: ended(held, stdin=b"ignored"))
    assert heard == [b"online", b"offline"]
    assert process.returncode == 0
    assert run("sub", url, "pub/ended", "--retained-only").stdout == b"offline\n"


def test_a_will_is_published_when_its_holder_is_killed(url: str) -> None:
    heard, process = _last_will(url, "pub/killed", Process.kill)
    assert heard == [b"online", b"offline"]
    ended(process)


def test_a_will_may_go_elsewhere_and_be_the_only_message(url: str) -> None:
    listener = subscribed(url, "pub/gone/*", "--count", "2", "-v")
    arguments = ("--will", "--will-payload", "last", "--will-topic", "pub/gone/b")
    assert run("pub", url, "pub/gone/a", "bye", *arguments).returncode == 0
    assert ended(listener) == (0, b"pub/gone/b last\npub/gone/a bye\n", b"")


def test_a_will_is_kept_if_it_shall_be(url: str) -> None:
    for topic, option, kept in (
        ("pub/lasting", "--will-retain", b"last\n"),
        ("pub/passing", "--no-will-retain", b"x\n"),
    ):
        retain = [] if option == "--will-retain" else ["--retain"]
        arguments = ("x", *retain, "--will-payload", "last", option)
        assert run("pub", url, topic, *arguments, "--quiet").stderr == b""
        assert run("sub", url, topic, "--retained-only").stdout == kept


def test_a_holder_says_when_the_broker_is_gone() -> None:
    with broker() as mortal:
        url = mortal.urls["fmqp"]
        process = started("pub", url, "t", "x", "--will", says=rb"holding")
        mortal.end(signal.SIGKILL)
        assert process.wait(timeout=10) == 1
        assert re.match(rb"pub: error: .*(closed|lost)", error_line(process))
        ended(process)


def test_lightmq(running: BrokerProcess) -> None:
    listener = subscribed(running.urls["fmqp"], "lightmq/desk/up", "--count", "2", "-v")
    done = run("pub", f"{running.urls['lightmq']}/desk", "up", "--lines", stdin=b"hello\nthere\n")
    assert done.returncode == 0
    expected = b"lightmq/desk/up hello\nlightmq/desk/up there\n"
    assert ended(listener) == (0, expected, b"")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give one of PAYLOAD"),
        (["x", "--null"], "give one of PAYLOAD"),
        (["x", "--wait", "1"], "--wait is for --wanted"),
        (["x", "--will-topic", "a"], "--will-topic and --will-retain need"),
        (["--lines", "--repeat", "2"], "leave out --repeat"),
        (["x", "-m", "y"], "give one of PAYLOAD"),
        (["x", "--will-retain"], "--will-topic and --will-retain need"),
        (["--lines", "--will", "--reconnect"], "--will is for one message"),
        (["--file", "/does/not/exist"], "cannot read /does/not/exist: No such file"),
    ],
)
def test_wrong_arguments(url: str, arguments: list[str], words: str) -> None:
    done = run("pub", url, "t", *arguments)
    assert done.returncode == 2
    assert words in done.stderr.decode()


def test_a_closed_stdin_is_one_clear_line(url: str) -> None:
    script = f'exec "$0" -m motemq pub {url} t --lines <&-'
    done = subprocess.run(["sh", "-c", script, sys.executable], capture_output=True, timeout=60)
    assert done.returncode == 2
    assert b"stdin is closed; give it a file" in done.stderr
