"""A board whose firmware cannot be had stops nobody else."""

from pathlib import Path

from tests.boards.desk_files import running_esp32, write_rig, write_virtual
from tests.boards.fault_boards import UnixBoard
from tests.boards.rig_process import Broker, outcomes, run_rig

_ABSENT = """\
id = "absent"
model = "RPI_PICO_W"
required = false
[usb]
serial = "0123456789abcdef"
[identity]
uid = "0123456789abcdef"
[flash]
image = "NO_SUCH_IMAGE"
"""


def test_a_missing_image_is_the_fault_of_its_board_only(
    broker: Broker, tmp_path: Path, unix_port: Path
) -> None:
    rig, files, out = write_rig(tmp_path), tmp_path / "files", tmp_path / "out"
    files.mkdir()
    (tmp_path / "boards" / "absent.toml").write_text(_ABSENT)
    with UnixBoard(unix_port, files) as unix, running_esp32(tmp_path / "e1", "e1") as esp32:
        (tmp_path / "boards" / "u1.toml").write_text(
            f'id = "u1"\nmodel = "unix"\nserial_url = "{unix.url}"\n'
        )
        write_virtual(tmp_path, esp32, flash='image = "NO_SUCH_IMAGE"')
        boots = esp32.control.state()["boots"]
        result = run_rig(out, broker, "--rig", str(rig), "--checks", "ping")
        assert esp32.control.state()["boots"] == boots
        assert result.returncode == 3, result.stdout
        assert "there is no image 'NO_SUCH_IMAGE'" in result.stdout
        ended = {
            id: outcomes(out, id, "board_finished", "event")["board_finished"]
            for id in ("u1", "e1", "absent")
        }
        assert ended == {"u1": "passed", "e1": "error", "absent": "absent"}
        # Who is not flashed needs no image.
        path = write_virtual(tmp_path, esp32, flash='image = "NO_SUCH_IMAGE"\nmethod = "none"')
        again = run_rig(out, broker, "--rig", str(rig), "-b", "e1", "--checks", "ping")
        assert again.returncode == 0, f"{path.read_text()}\n{again.stdout}"
