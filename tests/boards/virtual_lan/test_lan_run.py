"""``motemq rig run`` on a board with a network of its own, which dies without a word."""

from pathlib import Path

import pytest

from boards.virtual.desk import Desk
from boards.virtual.preload import preload
from firmware.build import ensure
from tests.boards.desk_files import motemq_rig
from tests.boards.rig_process import RUN_S, outcomes

_CHECKS = ("pubsub_up", "will_abrupt", "will_reboot")


def test_wills_of_a_board_that_closes_no_socket(
    lan_is_possible: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTEMQ_RUNTIME_DIR", str(tmp_path / "runtime"))
    desk = Desk(tmp_path / "runtime")
    desk.up(
        ["esp32"],
        blank=False,
        lan=True,
        preload=lambda kind, folder: preload(kind, folder, ensure("vesp32")),
    )
    try:
        out = tmp_path / "out"
        words = ("--out", out, "--checks", ",".join(_CHECKS))
        done = motemq_rig("run", *words, timeout_s=RUN_S)
    finally:
        desk.down()
    assert done.returncode == 0, done.stdout
    found = outcomes(out, "vesp32-1", "check_finished", "check")
    assert found == dict.fromkeys(_CHECKS, "passed"), done.stdout
