"""Boards with a fault, driven by the real tools: each fails as such a board does, and only so."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from boards.repl import NoReply, Repl
from boards.serial_port import PortError, PortGone
from boards.virtual.board import BoardError, BoardKind, VirtualBoard

Tool = Callable[..., str]
Start = Callable[[BoardKind], VirtualBoard]


@pytest.fixture
def start(state_dir: Path) -> Iterator[Start]:
    """Start a board of a kind on flash that has firmware."""
    boards: list[VirtualBoard] = []

    def start(kind: BoardKind) -> VirtualBoard:
        boards.append(VirtualBoard.start(kind, kind, state_dir))
        return boards[-1]

    yield start
    for board in boards:
        board.stop()


def _no_repl(board: VirtualBoard, deadline_s: float = 1.0) -> None:
    with pytest.raises(NoReply, match="no raw REPL within"):
        Repl.open(board.address.serial_url, deadline_s=deadline_s)


def test_silent_says_nothing_in_the_loader_either(start: Start, esptool: Tool) -> None:
    board = start("silent")
    _no_repl(board)
    board.control.boot()
    said = esptool(board, "--connect-attempts", "1", "read-mac", fails=True)
    assert "No serial data received" in said


def test_babbling_never_gives_a_repl_but_can_be_flashed(start: Start, esptool: Tool) -> None:
    board = start("babbling")
    _no_repl(board)
    board.control.boot()
    assert "MAC:" in esptool(board, "read-mac")


def test_babbling_is_no_faster_than_a_serial_line(start: Start, state_dir: Path) -> None:
    board = start("babbling")
    before = sum(path.stat().st_size for path in state_dir.iterdir())
    began = time.monotonic()
    seen = bytearray()
    with pytest.raises(NoReply):
        Repl.open(board.address.serial_url, deadline_s=2, tap=seen.extend)
    # 115200 baud, for 2 s, or as long as it took, and the second before somebody listened.
    assert 2000 < len(seen) < (time.monotonic() - began + 1) * 11_520
    assert b"sensor 1: 21.5\r\n" * 10 in seen
    # And the board's own log says nothing about it.
    assert sum(path.stat().st_size for path in state_dir.iterdir()) - before < 1000


# pyserial's socket:// does not close a socket whose far end has reset it; the collector does.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket")
@pytest.mark.parametrize("way", ["socket", "pty"])
def test_vanishing_is_gone_in_the_middle_of_a_long_transfer(start: Start, way: str) -> None:
    board = start("vanishing")
    url = board.address.serial_urls[way]
    with Repl.open(url, deadline_s=60) as repl:
        assert repl.exec("print(6 * 7)", deadline_s=60) == "42\n"
    repl = Repl.open(url, deadline_s=60)
    with pytest.raises(PortGone):
        repl.exec(f"x = {'1' * 6000!r}", deadline_s=60)
    repl.close()
    with pytest.raises(PortError):
        Repl.open(url, deadline_s=1)
    assert board.control.state()["state"] == "gone"
    with pytest.raises(BoardError, match="the board is unplugged"):
        board.control.reset()


def test_wrong_identity_is_not_who_its_label_says(start: Start, esptool: Tool) -> None:
    board = start("wrong-identity")
    with Repl.open(board.address.serial_url, deadline_s=60) as repl:
        code = "import machine; print(machine.unique_id().hex())"
        on_chip = repl.exec(code, deadline_s=60).strip()
    assert len(on_chip) == 12
    assert on_chip != board.address.uid
    board.control.boot()
    assert bytes.fromhex(on_chip).hex(":") in esptool(board, "read-mac")


def test_slow_works_slowly(start: Start) -> None:
    board = start("slow")
    with Repl.open(board.address.serial_url, deadline_s=60) as repl:
        began = time.monotonic()
        assert repl.exec("print('x' * 480)", deadline_s=60) == "x" * 480 + "\n"
        assert time.monotonic() - began > 1.9


def test_wedged_takes_nothing_but_can_be_flashed(start: Start, esptool: Tool) -> None:
    board = start("wedged")
    assert board.control.state()["state"] == "running"
    _no_repl(board)
    board.control.reset()
    _no_repl(board)
    board.control.boot()
    assert "MAC:" in esptool(board, "read-mac")


def test_corrupted_flash_is_found_by_verifying(start: Start, esptool: Tool, image: Path) -> None:
    board = start("corrupted-flash")
    assert board.control.state()["state"] == "invalid-image"
    board.control.boot()
    said = esptool(board, "write-flash", "0x1000", image, fails=True)
    assert "MD5 of file does not match data in flash" in said
    board.control.reset()
    assert board.control.state()["state"] == "invalid-image"


def test_flaky_is_flashed_at_the_third_attempt(
    start: Start, esptool: Tool, state_dir: Path
) -> None:
    board = start("flaky")
    attempt = ["--connect-attempts", "1", "read-mac"]
    board.control.boot()
    assert "Failed to connect" in esptool(board, *attempt, fails=True)
    board.stop()  # attempts are counted beyond the process
    board = start("flaky")
    board.control.boot()
    assert "Failed to connect" in esptool(board, *attempt, fails=True)
    board.control.boot()
    assert "MAC:" in esptool(board, *attempt)
    board.control.reset()
    with Repl.open(board.address.serial_url, deadline_s=60) as repl:
        assert repl.exec("print(1)", deadline_s=60) == "1\n"


def test_an_unknown_fault_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "boards.virtual.esp32", "--id", "x"),
            *("--state-dir", str(tmp_path), "--fault", "moody"),
        ],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    assert done.returncode == 2
    assert "'moody' is not one of" in done.stderr
