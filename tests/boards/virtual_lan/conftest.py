"""A LAN, virtual ESP32s on it, and a broker at the address that faces them."""

import contextlib
import ctypes
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from boards.virtual.board import VirtualBoard
from boards.virtual.lan.process import VirtualLan
from boards.virtual.preload import preload
from firmware.build import ensure
from tests.boards.lan_possible import require_lan

_PR_CAPBSET_DROP = 24
_CAPABILITIES = (12, 21)  # CAP_NET_ADMIN, CAP_SYS_ADMIN


@pytest.fixture(scope="session")
def lan_is_possible() -> None:
    require_lan()


@pytest.fixture
def lan(lan_is_possible: None, tmp_path: Path) -> Iterator[VirtualLan]:
    with VirtualLan.start(tmp_path / "lan") as lan:
        yield lan


@pytest.fixture
def board(lan: VirtualLan, tmp_path: Path) -> Iterator[VirtualBoard]:
    """A virtual ESP32 within reach of the access point, with MicroPython and no files."""
    preload("esp32", tmp_path / "board", ensure("vesp32"))
    with VirtualBoard.start("esp32", "vesp32-1", tmp_path / "board", lan=lan.folder) as board:
        yield board


@pytest.fixture
def broker(lan: VirtualLan) -> Iterator[str]:
    """HOST:PORT of an FMQP listener on the LAN; it takes a client for dead after 2 s of silence."""
    with _listening(lan, "--set", "fmqp.idle_timeout_s=2") as address:
        yield address


@pytest.fixture
def patient_broker(lan: VirtualLan) -> Iterator[str]:
    """The same with the usual patience: where frames are lost, TCP may be silent for seconds."""
    with _listening(lan) as address:
        yield address


@contextlib.contextmanager
def _listening(lan: VirtualLan, *options: str) -> Iterator[str]:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "motemq", "broker", "--ephemeral", "--insecure-bind"),
            *("--listen", f"fmqp://{lan.host}:0", *options),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        yield process.stdout.readline().split()[2]
        process.terminate()
        process.wait(20)


@pytest.fixture
def without_capabilities() -> Callable[[], None]:
    """What a new process is to call so that its program has no right to make networks."""
    libc = ctypes.CDLL(None)

    def drop() -> None:
        for capability in _CAPABILITIES:
            libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)

    return drop
