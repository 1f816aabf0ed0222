"""A flashed virtual Pico, and the real mpremote to speak to it."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from boards.virtual.board import VirtualBoard
from firmware import build

FLASH_S = 30.0
COMMAND_S = 60.0

Mpremote = Callable[..., str]


@pytest.fixture(scope="session")
def uf2_path() -> Path:
    return build.ensure("rpi_pico")


@pytest.fixture(scope="session")
def flash() -> Callable[[VirtualBoard, Path], None]:
    """Copy a UF2 onto the board's drive and wait until it runs."""

    def copy_and_wait(board: VirtualBoard, image: Path) -> None:
        boots = board.control.state()["boots"]
        folder = board.address.bootsel_dir
        assert folder is not None
        shutil.copy(image, folder)
        deadline = time.monotonic() + FLASH_S
        while (state := board.control.state())["state"] != "running":
            assert time.monotonic() < deadline, f"not flashed: {list(folder.glob('*'))}"
            time.sleep(0.05)
        assert state["boots"] == boots + 1
        assert not folder.exists()

    return copy_and_wait


@pytest.fixture(scope="session")
def wait_for_boots() -> Callable[[VirtualBoard, int], None]:
    """Wait until the board has booted so often."""

    def wait(board: VirtualBoard, boots: int) -> None:
        deadline = time.monotonic() + FLASH_S
        while (state := board.control.state())["boots"] < boots:
            assert time.monotonic() < deadline, f"still {state}, expected {boots} boots"
            time.sleep(0.02)

    return wait


@pytest.fixture(scope="module")
def board(
    tmp_path_factory: pytest.TempPathFactory,
    uf2_path: Path,
    flash: Callable[[VirtualBoard, Path], None],
) -> Iterator[VirtualBoard]:
    with VirtualBoard.start("rp2040", "shared", tmp_path_factory.mktemp("board")) as running:
        flash(running, uf2_path)
        yield running


@pytest.fixture(scope="session")
def mpremote() -> Mpremote:
    """Run the real command line tool against a board; returns what it printed."""

    def run(board: VirtualBoard, *arguments: str, timeout_s: float = COMMAND_S) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "mpremote", "connect", board.address.serial_url, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    return run
