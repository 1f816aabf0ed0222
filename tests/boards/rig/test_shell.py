"""``motemq rig shell`` on a terminal, as a person sits at it."""

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

from boards.inventory.locks import holder
from tests.boards.desk_files import motemq_rig, running_esp32, write_rig, write_virtual


def _until(master: int, words: bytes) -> bytes:
    said, until = b"", time.monotonic() + 60
    while words not in said:
        assert time.monotonic() < until, said
        if select.select([master], [], [], 0.2)[0]:
            said += os.read(master, 4096)
    return said


def test_a_person_talks_to_the_board_and_nobody_else_does(tmp_path: Path) -> None:
    rig = write_rig(tmp_path)
    with running_esp32(tmp_path / "b1", "b1") as board:
        write_virtual(tmp_path, board)
        master, slave = pty.openpty()
        shell = subprocess.Popen(
            [sys.executable, "-m", "motemq", "rig", "shell", "b1", "--rig", str(rig)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        try:
            _until(master, b"Use Ctrl-] or Ctrl-x to exit")
            os.write(master, b"print(6 * 7)\r")
            _until(master, b"42\r\n")
            held = holder(tmp_path / ".rig", "b1")
            assert held is not None
            assert (held.pid, held.what) == (shell.pid, "motemq rig shell")
            assert motemq_rig("flash", "--rig", rig).returncode == 3
            os.write(master, b"\x1d")
            assert shell.wait(60) == 0
            assert holder(tmp_path / ".rig", "b1") is None
        finally:
            shell.kill()
            shell.wait(20)
            os.close(master)
            os.close(slave)
