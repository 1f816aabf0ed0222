"""Flashing that is cut off in its middle: the board is dead, the next run brings it back."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from boards.flash.image_identity import Image, check_image
from boards.flash.ledger import Ledger
from boards.flash.rule import flash_board
from boards.inventory.locks import BoardLock
from boards.inventory.models import all_models
from boards.tool import ToolError
from boards.virtual.board import VirtualBoard
from firmware.build import ensure
from tests.boards.desk_files import desk_board, running_esp32, write_rig, write_virtual
from tests.boards.rig_process import Broker, outcomes, rows, run_rig


class _PowerCut(Exception):
    """The rig itself dies, as far as the board can tell."""


def _kill_esptool() -> None:
    """Kill the flash tool, which is this process's only child of that name."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == os.getpid() and b"write-flash" in command:
            os.kill(int(folder.name), signal.SIGKILL)
            return


def _die() -> None:
    raise _PowerCut


def _flash_until(
    board: VirtualBoard, folder: Path, image: Image, percent: float, then: Callable[[], None]
) -> None:
    """Flash, and do ``then`` once so much is written."""

    def progress(text: str) -> None:
        words = text.split()
        if words[-1] == "%" and float(words[-2]) >= percent:
            then()

    target = desk_board(folder, board)
    with BoardLock.take(folder / ".rig", target.id, "a test") as held:
        flash_board(
            target,
            image,
            held=held,
            ledger=Ledger(folder / ".rig" / "ledger.jsonl"),
            deadline_s=60,
            progress=progress,
            force=True,
        )


def _recovers(broker: Broker, folder: Path, id: str) -> None:
    rig, out = write_rig(folder), folder / "out"
    # The book of the last flashing that was whole must not be believed.
    result = run_rig(
        out, broker, "--rig", str(rig), "--trust-ledger", "--checks", "pubsub_up,pubsub_down"
    )
    assert result.returncode == 0, result.stdout
    checks = outcomes(out, id, "check_finished", "check")
    assert checks == {"pubsub_up": "passed", "pubsub_down": "passed"}
    (flashed,) = [
        row
        for row in rows(out, "events.jsonl")
        if (row["event"], row["step"]) == ("step_finished", "flash")
    ]
    assert "the same firmware was there" not in flashed["message"]
    assert Ledger(folder / ".rig" / "ledger.jsonl").last(id).sha256 == flashed["fw_sha"]  # type: ignore[union-attr]


def test_an_esp32_whose_esptool_was_killed(broker: Broker, tmp_path: Path) -> None:
    with running_esp32(tmp_path / "e1", "e1") as board:
        write_virtual(tmp_path, board)
        image = check_image(ensure("vesp32"), all_models()["virtual-esp32"].flash, virtual=True)
        _flash_until(board, tmp_path, image, 101, _die)  # whole: booked
        with pytest.raises(ToolError, match="exit code -9"):
            _flash_until(board, tmp_path, image, 10, _kill_esptool)
        board.control.reset()
        assert board.control.state()["state"] != "running"
        _recovers(broker, tmp_path, "e1")


def test_an_rp2040_whose_uf2_was_cut_off(broker: Broker, tmp_path: Path) -> None:
    with VirtualBoard.start("rp2040", "p1", tmp_path / "p1") as board:
        write_virtual(tmp_path, board)
        image = check_image(ensure("rpi_pico"), all_models()["virtual-rp2040"].flash, virtual=True)
        _flash_until(board, tmp_path, image, 101, _die)
        with pytest.raises(_PowerCut):
            _flash_until(board, tmp_path, image, 50, _die)
        assert board.control.state()["state"] == "bootsel"
        _recovers(broker, tmp_path, "p1")
