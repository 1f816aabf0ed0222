"""``motemq bridge --status``: what running bridges say, and who is believed."""

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

from tests.boards.bridge_process import motemq, running, status
from tests.boards.serial_board import DEADLINE_S, Board, eventually


def test_status_is_a_table_and_says_when_there_is_nothing(tmp_path: Path) -> None:
    ask = motemq("bridge", "--status", "--runtime-dir", str(tmp_path / "run"))
    nothing = subprocess.run(ask, capture_output=True, text=True, timeout=DEADLINE_S)
    assert nothing.returncode == 1
    assert "no bridge of yours is running" in nothing.stderr
    board = Board(tmp_path / "greenhouse")
    arguments = ["--serial", board.url, "--to", "fmqp://127.0.0.1:1"]
    with running("bridge", *arguments, runtime=tmp_path / "run") as bridge:
        bridge.wait_for("bridging")
        eventually(lambda: (tmp_path / "run").exists() and bool(status(tmp_path / "run")))
        table = subprocess.run(ask, capture_output=True, text=True, timeout=DEADLINE_S)
        assert table.returncode == 0
        assert "greenhouse (raw)" in table.stdout
        assert "idle" in table.stdout
        assert os.stat(next((tmp_path / "run").iterdir())).st_mode & 0o777 == 0o600
    board.close()


def test_status_on_a_terminal_is_live_until_ctrl_c(tmp_path: Path) -> None:
    board = Board(tmp_path / "greenhouse")
    arguments = ["--serial", board.url, "--to", "fmqp://127.0.0.1:1"]
    with running("bridge", *arguments, runtime=tmp_path / "run") as bridge:
        bridge.wait_for("bridging")
        eventually(lambda: (tmp_path / "run").exists() and bool(status(tmp_path / "run")))
        screen = Board()
        process = subprocess.Popen(
            motemq("bridge", "--status", "--runtime-dir", str(tmp_path / "run")),
            stdin=screen.slave,
            stdout=screen.slave,
            stderr=screen.slave,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "150", "LINES": "30"},
        )
        seen = ""
        while seen.count("greenhouse") < 3:  # it has been drawn again and again
            seen += screen.receive(1).decode(errors="replace")
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
        screen.close()
    board.close()


def test_a_folder_that_others_write_to_is_not_believed(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with socket.socket(socket.AF_UNIX) as liar:
        liar.bind(str(folder / "bridge-1.sock"))
        done = subprocess.run(
            motemq("bridge", "--status", "--json", "--runtime-dir", str(folder)),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
    assert done.returncode == 1
    assert "others can write to" in done.stderr


def test_a_runtime_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "runtime"
    done = subprocess.run(
        motemq("bridge", "--status", "--runtime-dir", str(below)),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 1
    assert done.stderr == f"Error: cannot look into {below}: Not a directory\n"


def test_status_as_json_without_bridges_is_an_empty_list(tmp_path: Path) -> None:
    done = subprocess.run(
        motemq("bridge", "--status", "--json", "--runtime-dir", str(tmp_path / "none")),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert json.loads(done.stdout)["processes"] == []
