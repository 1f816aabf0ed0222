"""Who else can use an exposed port: other users of the machine, a page in a browser; and whoever
has it for too long."""

import contextlib
import os
import select
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from boards.bridge.token_gate import FirstLine
from boards.serial_port import SerialPort
from tests.boards.bridge_process import motemq, running, status
from tests.boards.serial_board import DEADLINE_S, Board, eventually

_PAGE = (
    b"POST /%03print HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: https://evil.example\r\n"
    b"Content-Type: text/plain\r\n\r\nimport machine; machine.reset()\r\n"
)
_GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:7001\r\n\r\n"


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    board = Board(tmp_path / "board")
    yield board
    board.close()


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), DEADLINE_S)


def _silent(board: Board) -> bool:
    return not select.select([board.master], [], [], 0.2)[0]


def test_without_the_token_that_the_bridge_has_made_nobody_gets_in(
    board: Board, tmp_path: Path
) -> None:
    runtime = tmp_path / "run"
    with running("bridge", "--serial", board.url, "--listen", "0", runtime=runtime) as bridge:
        line = bridge.wait_for("listening on")
        address = line.split("listening on ")[1].split()[0]
        file = Path(line.partition("?token_file=")[2])
        token = file.read_text().strip()
        assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        for said in (_GET, _PAGE, b"wrong\n", b"\n"):
            with _connect(address) as stranger:
                stranger.sendall(said)
                with contextlib.suppress(ConnectionResetError):  # it had said more than was read
                    assert stranger.recv(100) == b""
        assert _silent(board)
        program = SerialPort.open(f"socket://{address}?token_file={file}")
        with contextlib.closing(program):
            program.write_all(b"hello", DEADLINE_S)
            assert board.receive(5) == b"hello"
        # Nowhere but in its file.
        assert token not in "\n".join(bridge.lines)
        assert token not in Path(f"/proc/{bridge.popen.pid}/cmdline").read_text()
        assert bridge.end() == 0
        assert not file.exists()


def test_who_may_open_the_device_itself_needs_no_token(board: Board, tmp_path: Path) -> None:
    """The bridge's lock is for programs that ask for it; the device's mode is what keeps others
    out."""
    arguments = ("--serial", board.url, "--listen", "0")
    with running("bridge", *arguments, runtime=tmp_path / "run") as bridge:
        bridge.wait_for("listening on")
        device = os.open(board.url, os.O_RDWR | os.O_NOCTTY)
        try:
            os.write(device, b"import machine")
            assert board.receive(14) == b"import machine"
        finally:
            os.close(device)
        assert bridge.end() == 0


@pytest.mark.parametrize("said", [_GET, _PAGE])
def test_a_page_reaches_no_board_even_where_everybody_may_connect(
    board: Board, tmp_path: Path, said: bytes
) -> None:
    arguments = ("--serial", board.url, "--listen", "0", "--insecure")
    with running("bridge", *arguments, runtime=tmp_path / "run") as bridge:
        address = bridge.wait_for("listening on").split("listening on ")[1].split(",")[0].split()[0]
        with _connect(address) as page:
            for at in range(0, len(said), 7):  # however it is cut
                page.sendall(said[at : at + 7])
            with contextlib.suppress(ConnectionResetError):  # it had said more than was read
                assert page.recv(100) == b""
        bridge.wait_for("it spoke HTTP")
        assert _silent(board)
        with _connect(address) as program:
            program.sendall(b"GET me a coffee\n")  # of a program, to a board
            assert board.receive(16) == b"GET me a coffee\n"
        assert bridge.end() == 0


def test_who_has_a_port_for_long_is_listed_and_can_be_ended(board: Board, tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    arguments = ("--serial", board.url, "--listen", "0", "--insecure")
    with running("bridge", *arguments, runtime=runtime) as bridge:
        address = bridge.wait_for("listening on").split("listening on ")[1].split()[0].rstrip(",")
        with _connect(address) as holder:
            eventually(lambda: status(runtime)[0]["state"].startswith("serving"))
            (port,) = status(runtime)
            assert port["held_s"] >= 0
            environment = {**os.environ, "MOTEMQ_RUNTIME_DIR": str(runtime)}
            ended = subprocess.run(
                motemq("bridge", "--end", port["name"]),
                capture_output=True,
                text=True,
                env=environment,
                timeout=DEADLINE_S,
            )
            assert ended.returncode == 0, ended.stderr
            assert f"127.0.0.1:{holder.getsockname()[1]} has the port no longer" in ended.stdout
            assert holder.recv(1) == b""
        eventually(lambda: status(runtime)[0]["state"] == "waiting")
        assert status(runtime)[0]["held_s"] is None
        again = subprocess.run(
            motemq("bridge", "--end", "nothing"),
            capture_output=True,
            text=True,
            env=environment,
            timeout=DEADLINE_S,
        )
        assert again.returncode == 1
        assert "no program has a port 'nothing'" in again.stderr
        assert bridge.end() == 0


@pytest.mark.parametrize(
    "said", [_GET, _PAGE, b"PRI * HTTP/2.0\r\n", b"OPTIONS /x HTTP/1.0\n", b"GET " + b"x" * 20_000]
)
def test_http_is_known_however_it_is_cut(said: bytes) -> None:
    for size in (1, 2, 5, 1000, len(said)):
        line = FirstLine()
        verdicts = [line.add(said[at : at + size], 0.0) for at in range(0, len(said), size)]
        assert "page" in verdicts
        assert "program" not in verdicts[: verdicts.index("page")]


@pytest.mark.parametrize(
    "said", [b"\xff\xfb\x2c", b"\r\n", b"help()\r\n", b"GETTER", b"PUT it there\n", b"\x03\x03\x01"]
)
def test_what_programs_say_goes_on_at_once(said: bytes) -> None:
    line = FirstLine()
    assert line.add(said, 0.0) == "program"
    assert line.held == said


def test_what_could_be_http_and_is_not_goes_on_after_a_second() -> None:
    line = FirstLine()
    assert line.add(b"GET", 5.0) == "more"
    assert line.look(5.9) == "more"
    assert line.look(6.0) == "program"
