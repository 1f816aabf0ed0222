"""A data line that somebody else reads: the rig's fault, said before anything is touched."""

import os
import pty
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from boards.inventory import unresponsive
from tests.boards.desk_files import motemq_rig, running_esp32, write_rig, write_virtual
from tests.boards.rig_process import Broker, outcomes, run_rig

_TERMINAL = "import os, sys\nline = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)\n"
_SOCKET = "import socket, sys\nline = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
_EXCLUSIVE = "import serial, sys\nline = serial.Serial(sys.argv[1], exclusive=True)\n"
_STAY = "print('open', flush=True)\nsys.stdin.read()\n"


@contextmanager
def _left_running(code: str, argument: str) -> Iterator[int]:
    """A program that somebody forgot, with the line open."""
    with subprocess.Popen(
        [sys.executable, "-c", code + _STAY, argument],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"open\n"
        yield program.pid


def test_a_console_that_somebody_has_makes_no_board_wedged(broker: Broker, tmp_path: Path) -> None:
    """A bridge on the board's one cable: nothing is done to the board, and then it passes."""
    rig, out = write_rig(tmp_path), tmp_path / "out"
    with running_esp32(tmp_path / "e1", "e1") as board:
        write_virtual(tmp_path, board)
        boots = board.control.state()["boots"]
        with _left_running(_EXCLUSIVE, board.address.serial_url) as pid:
            result = run_rig(out, broker, "--rig", str(rig), "--checks", "ping")
            assert result.returncode == 3, result.stdout
            assert f"(process {pid}); end that first" in result.stdout
            assert outcomes(out, "e1", "check_finished", "check") == {"ping": "skipped"}
            back = motemq_rig("recover", "--rig", rig, "e1")
            assert back.returncode == 3, back.stdout
            assert f"(process {pid}); end that first" in back.stdout
            doctor = motemq_rig("doctor", "--rig", rig, "--board", "e1").stdout
            assert "-> that first; nothing was done to the board" in doctor
        assert board.control.state()["boots"] == boots
        assert unresponsive.why(tmp_path / ".rig", "e1") == ""
        again = run_rig(out, broker, "--rig", str(rig), "--checks", "ping")
        assert again.returncode == 0, again.stdout


def test_a_serial_server_that_is_down_makes_no_board_wedged(broker: Broker, tmp_path: Path) -> None:
    rig, out = write_rig(tmp_path), tmp_path / "out"
    (tmp_path / "boards" / "u1.toml").write_text(
        'id = "u1"\nmodel = "unix"\nserial_url = "rfc2217://127.0.0.1:1"\n'
    )
    result = run_rig(out, broker, "--rig", str(rig), "--checks", "ping")
    assert result.returncode == 3, result.stdout
    assert "nobody listens there; is the board or the serial server running?" in result.stdout
    assert unresponsive.why(tmp_path / ".rig", "u1") == ""


@pytest.mark.parametrize("kind", ["terminal", "socket"])
def test_the_process_that_has_it_is_named(broker: Broker, tmp_path: Path, kind: str) -> None:
    rig, out = write_rig(tmp_path), tmp_path / "out"
    with ExitStack() as stack:
        if kind == "terminal":
            master, slave = pty.openpty()
            url = os.ttyname(slave)
            os.close(slave)
            stack.callback(os.close, master)
            pid = stack.enter_context(_left_running(_TERMINAL, url))
        else:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            port = str(listener.getsockname()[1])
            url = f"socket://127.0.0.1:{port}"
            pid = stack.enter_context(_left_running(_SOCKET, port))
        (tmp_path / "boards" / "p1.toml").write_text(
            'id = "p1"\nmodel = "RPI_PICO"\nserial_url = "socket://127.0.0.1:1"\n'
            '[identity]\nuid = "0123456789abcdef"\n[flash]\nimage = "rpi_pico"\n'
            f'[link]\nserial_url = "{url}"\n'
        )
        result = run_rig(out, broker, "--rig", str(rig), "--checks", "ping")
    assert result.returncode == 3, result.stdout
    assert f"its data line {url} is open in process {pid} (" in result.stdout
    steps = outcomes(out, "p1", "step_finished", "step")
    assert steps["start"] == "error"
    assert outcomes(out, "p1", "check_finished", "check") == {"ping": "skipped"}
