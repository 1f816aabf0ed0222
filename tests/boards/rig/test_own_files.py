"""A run borrows a board: killed half-way, its files come back by ``motemq rig recover``."""

from pathlib import Path

from tests.boards.desk_files import motemq_rig, write_rig
from tests.boards.fault_boards import UnixBoard
from tests.boards.rig_process import (
    Broker,
    eventually,
    processes_naming,
    rig_command,
    start_and_wait_for,
)

_MAIN = "print('the greenhouse')\n"


def test_a_killed_run_leaves_the_boards_files_to_recover(
    broker: Broker, tmp_path: Path, unix_port: Path
) -> None:
    rig, out, files = write_rig(tmp_path), tmp_path / "out", tmp_path / "files"
    files.mkdir()
    (files / "main.py").write_text(_MAIN)
    with UnixBoard(unix_port, files) as board:
        (tmp_path / "boards" / "u1.toml").write_text(
            f'id = "u1"\nmodel = "unix"\nserial_url = "{board.url}"\n'
        )
        # All checks, a minute of them: it is not over before we kill it.
        command = rig_command(out, broker, "--rig", str(rig), "--checks", "*")
        with start_and_wait_for("u1: install passed", command) as run:
            assert (files / "main.py").read_text() != _MAIN
            run.kill()
        eventually(lambda: not processes_naming(str(out)), 60, "a process of the run is left")
        doctor = motemq_rig("doctor", "--rig", rig).stdout
        assert "u1: its own main.py and boot.py are on this host" in doctor
        assert "-> motemq rig recover u1" in doctor
        back = motemq_rig("recover", "--rig", rig)
        assert back.returncode == 0, back.stdout
        assert "; its own files are on it again" in back.stdout
        assert (files / "main.py").read_text() == _MAIN
        assert not (files / "node.json").exists()
        assert "each has its own files" in motemq_rig("recover", "--rig", rig).stdout
