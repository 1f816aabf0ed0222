"""Virtual ESP32 boards driven by the real esptool and the real mpremote."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from boards.virtual.board import VirtualBoard
from firmware.build import ensure

Tool = Callable[..., str]


def _tool(home: Path, head: Callable[[str], list[str]]) -> Tool:
    def run(board: VirtualBoard, *arguments: str | Path, fails: bool = False) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *head(board.address.serial_url), *arguments],
            capture_output=True,
            text=True,
            timeout=90,
            cwd=home,
            # mpremote executes its user's config file; here there is none.
            env={**os.environ, "XDG_CONFIG_HOME": str(home), "HOME": str(home)},
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture(scope="session")
def esptool(tmp_path_factory: pytest.TempPathFactory) -> Tool:
    """``esptool(board, *arguments)`` returns what esptool said; the board is in download mode."""
    quiet = ["--before", "no-reset", "--after", "no-reset"]
    return _tool(
        tmp_path_factory.mktemp("home"),
        lambda url: ["esptool", "--chip", "esp32", "--port", url, *quiet],
    )


@pytest.fixture(scope="session")
def mpremote(tmp_path_factory: pytest.TempPathFactory) -> Tool:
    """``mpremote(board, *arguments)`` returns what mpremote said; the board is running."""
    return _tool(tmp_path_factory.mktemp("home"), lambda url: ["mpremote", "connect", url])


@pytest.fixture(scope="session")
def image() -> Path:
    """The virtual ESP32's firmware."""
    return ensure("vesp32")


@pytest.fixture(scope="session")
def flashed(image: Path, esptool: Tool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A flash that the real esptool has written, to start other boards from."""
    folder = tmp_path_factory.mktemp("flashed")
    with VirtualBoard.start("esp32", "template", folder) as board:
        board.control.boot()
        esptool(board, "write-flash", "0x1000", image)
    return folder / "flash.bin"


@pytest.fixture
def blank(tmp_path: Path) -> Iterator[VirtualBoard]:
    """A board as it comes from the factory."""
    with VirtualBoard.start("esp32", "blank-1", tmp_path / "board") as board:
        yield board


@pytest.fixture
def state_dir(flashed: Path, tmp_path: Path) -> Path:
    """The folder of a board that has firmware and no files."""
    folder = tmp_path / "board"
    folder.mkdir()
    shutil.copy(flashed, folder / "flash.bin")
    return folder


@pytest.fixture
def running(state_dir: Path) -> Iterator[VirtualBoard]:
    """A board that runs MicroPython."""
    with VirtualBoard.start("esp32", "esp32-1", state_dir) as board:
        assert board.control.state() == {"state": "running", "boots": 1}
        yield board
