"""A board with one cable is flashed, installed, checked and heard over that cable."""

from pathlib import Path

import pytest

from boards.inventory.board_file import load_board
from boards.virtual.address import BoardKind
from boards.virtual.board import VirtualBoard
from tests.boards.desk_files import write_rig, write_virtual
from tests.boards.rig_process import QUICK_CHECKS, Broker, outcomes, run_rig

_CHECKS = [*QUICK_CHECKS, "pubsub_sizes_up", "pubsub_sizes_down", "reconnect_rst", "will_reboot"]
_PICO = """\
id = "p1"
model = "RPI_PICO"
serial_url = "/dev/ttyACM7"
[identity]
uid = "0123456789abcdef"
"""


@pytest.mark.parametrize("kind", ["rp2040", "esp32"])
def test_it_is_taken_to_a_verdict(broker: Broker, tmp_path: Path, kind: BoardKind) -> None:
    rig, out = write_rig(tmp_path), tmp_path / "out"
    with VirtualBoard.start(kind, "b1", tmp_path / "b1") as board:
        path = write_virtual(tmp_path, board)
        path.write_text(path.read_text() + '[link]\ntransport = "console"\n')
        result = run_rig(out, broker, "--rig", str(rig), "--checks", ",".join(_CHECKS))
    assert result.returncode == 0, result.stdout
    checks = outcomes(out, "b1", "check_finished", "check")
    assert checks == dict.fromkeys(_CHECKS, "passed")
    assert set(outcomes(out, "b1", "step_finished", "step").values()) == {"passed"}


def test_a_pico_without_a_second_line_uses_its_console(tmp_path: Path) -> None:
    path = tmp_path / "p1.toml"
    path.write_text(_PICO)
    assert (load_board(path).transport, load_board(path).mode) == ("console", "reliable")
    path.write_text(_PICO + '[link]\nserial_url = "/dev/ttyUSB7"\n')
    assert (load_board(path).transport, load_board(path).mode) == ("uart", "raw")
