"""The bridge with what Python has on Windows: no descriptor of a port, no poll(), no AF_UNIX."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from boards.serial_port import SerialPort
from tests.boards.serial_board import DEADLINE_S, Board, FarEnd, receive

_SCRIPT = Path(__file__).parents[2] / "motemq" / "as_on_windows.py"
# More than the pair of sockets, a terminal and a TCP connection hold together.
_MUCH = bytes(range(256)) * 8192


def _command(*arguments: str) -> list[str]:
    return [sys.executable, str(_SCRIPT), "bridge", *arguments]


class _Bridge:
    def __init__(self, tmp_path: Path, *arguments: str) -> None:
        self._process = subprocess.Popen(
            _command(*arguments, "--runtime-dir", str(tmp_path / "runtime")),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        self.said = ""
        self._stream = self._process.stdout

    def until(self, words: str) -> str:
        for line in self._stream:
            self.said += line
            if words in line:
                return line
        raise AssertionError(f"it never said {words!r}: {self.said}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self._process.send_signal(number)
        with self._stream:
            self.said += self._stream.read()
        return self._process.wait(DEADLINE_S)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(DEADLINE_S)
        self._stream.close()


def test_a_broker_is_reached_both_ways_and_it_ends_by_ctrl_c(tmp_path: Path) -> None:
    board, far = Board(), FarEnd()
    to = f"fmqp://127.0.0.1:{far.address[1]}"
    bridge = _Bridge(tmp_path, "--serial", board.url, "--silence", "60", "--to", to)
    try:
        bridge.until("bridging")
        board.send(b"up")
        with far.accept() as session:
            assert receive(session, 2) == b"up"
            session.sendall(_MUCH[:50_000])
            assert board.receive(50_000) == _MUCH[:50_000]
            board.send(_MUCH[:200_000])
            assert receive(session, 200_000) == _MUCH[:200_000]
        assert bridge.end(signal.SIGINT) == 130
    finally:
        bridge.kill()
        board.close()
        far.listener.close()
    assert "warning: bridges are asked by unix sockets" in bridge.said
    assert "200002 bytes to the broker, 50000 to the board, 0 dropped" in bridge.said
    assert "Traceback" not in bridge.said


def test_a_port_that_vanishes_is_tried_again(tmp_path: Path) -> None:
    board, far = Board(tmp_path / "port"), FarEnd()
    to = f"fmqp://127.0.0.1:{far.address[1]}"
    bridge = _Bridge(tmp_path, "--serial", board.url, "--to", to)
    try:
        bridge.until("bridging")
        board.close()
        bridge.until("it vanished while in use")
        board = Board(tmp_path / "port")
        bridge.until(": open")
        board.send(b"again")
        with far.accept() as session:
            assert receive(session, 5) == b"again"
        assert bridge.end() == 0
    finally:
        bridge.kill()
        board.close()
        far.listener.close()
    assert "Traceback" not in bridge.said


def test_a_program_has_the_port_by_rfc_2217(tmp_path: Path) -> None:
    board = Board()
    token = tmp_path / "token"
    token.write_text("sesame\n")
    exposed = ["--listen", "0", "--rfc2217", "--token-file", str(token)]
    bridge = _Bridge(tmp_path, "--serial", board.url, *exposed)
    try:
        address = bridge.until("127.0.0.1:").rpartition("127.0.0.1:")[2].split()[0].strip(",;")
        port = SerialPort.open(f"rfc2217://127.0.0.1:{address}?token_file={token}")
        board.send(b"hello")
        said = b""
        while len(said) < 5:
            said += port.read(DEADLINE_S)
        assert said == b"hello"
        port.set("dtr", 0)
        port.write_all(b"\xffback", DEADLINE_S)
        assert board.receive(5) == b"\xffback"
        port.close()
        bridge.until("let go of the port")
        assert bridge.end() == 0
    finally:
        bridge.kill()
        board.close()
    assert "Traceback" not in bridge.said


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--status",), 1, "bridges are asked by unix sockets, which Python does not have"),
        (("--end", "greenhouse"), 1, "bridges are asked by unix sockets"),
        (
            (
                "--serial",
                "PORT",
                "--to",
                "tcp://127.0.0.1:1",
                "--mode",
                "reliable",
                "--console",
                "c",
            ),
            1,
            "a console is a pseudo-terminal, and Windows has none",
        ),
        (("--serial", "COM77", "--to", "tcp://127.0.0.1:1"), 1, "is the board plugged in"),
    ],
)
def test_what_there_cannot_be_is_one_line(
    tmp_path: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    board = Board()
    given = [board.url if each == "PORT" else each for each in arguments]
    done = subprocess.run(
        _command(*given, "--runtime-dir", str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    board.close()
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert words in done.stderr
