"""``motemq bridge`` as a person would run it."""

import os
import pty
import select
import signal
import socket
import subprocess
import sys
import tty
from pathlib import Path

import pytest

from tests.boards.serial_board import receive

_DEADLINE_S = 60.0


def _bridge(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "motemq", "bridge", *arguments]


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_bytes_go_through_until_it_is_stopped(stop: signal.Signals, code: int) -> None:
    master, slave = pty.openpty()
    tty.setraw(slave)
    with socket.create_server(("127.0.0.1", 0)) as broker:
        broker.settimeout(_DEADLINE_S)
        to = f"fmqp://127.0.0.1:{broker.getsockname()[1]}"
        process = subprocess.Popen(
            _bridge("--serial", os.ttyname(slave), "--baud", "115200", "--to", to),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        with process.stdout:
            assert "bridging" in process.stdout.readline()
            os.write(master, b"up")
            session, _ = broker.accept()
            with session:
                session.settimeout(_DEADLINE_S)
                assert receive(session, 2) == b"up"
                session.sendall(b"down")
                said = b""
                while len(said) < 4:
                    assert select.select([master], [], [], _DEADLINE_S)[0]
                    said += os.read(master, 10)
                assert said == b"down"
                process.send_signal(stop)
                assert session.recv(1) == b""
            rest = process.stdout.read()
        assert process.wait(_DEADLINE_S) == code
    assert "1 sessions, 2 bytes to the broker, 4 to the board, 0 dropped" in rest
    assert "Traceback" not in rest
    os.close(master)
    os.close(slave)


@pytest.mark.parametrize(
    ("serial", "to", "code", "words"),
    [
        ("NONE", "fmqp://127.0.0.1:1", 1, "is the board plugged in"),
        ("socket://127.0.0.1:1", "fmqp://127.0.0.1:1", 1, "nobody listens there"),
        ("NONE", "127.0.0.1:1", 2, "write it as fmqp://"),
        ("NONE", "fmqp://127.0.0.1:99999", 2, "Port out of range"),
        ("what://ever", "fmqp://127.0.0.1:1", 1, "cannot be opened"),
        ("hwgrep://[", "fmqp://127.0.0.1:1", 1, "unterminated character set"),
        ("hwgrep://no such board", "fmqp://127.0.0.1:1", 1, "no ports found matching"),
        ("cp2110://x", "fmqp://127.0.0.1:1", 1, "cannot be opened"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    tmp_path: Path, serial: str, to: str, code: int, words: str
) -> None:
    serial = serial.replace("NONE", str(tmp_path / "none"))
    result = subprocess.run(
        _bridge("--serial", serial, "--to", to), capture_output=True, text=True, timeout=_DEADLINE_S
    )
    assert result.returncode == code, result.stderr
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_the_help_states_the_limits() -> None:
    result = subprocess.run(_bridge("--help"), capture_output=True, text=True, timeout=_DEADLINE_S)
    assert result.returncode == 0
    assert "Limits of raw mode" in result.stdout
