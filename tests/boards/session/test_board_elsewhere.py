"""The reset ladder of a board behind a serial server: what is done, and what is left alone."""

import signal
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from benchmarks.ports import port_for_later
from boards.bridge.config import ExposePlan, PortSettings
from boards.bridge.expose import ExposedPort
from boards.inventory import unresponsive
from boards.inventory.board_file import load_board
from boards.inventory.target import Absent, BoardHandle
from boards.repl import NoReply, Repl
from boards.serial_port import PortRefused, PortUnserved, SerialPort
from boards.session.reset_ladder import NotBack, admit, bring_back
from boards.virtual.board import VirtualBoard
from tests.boards.bridge_process import Process
from tests.boards.bridge_process import running as bridge
from tests.boards.desk_files import running_esp32
from tests.boards.serial_board import DEADLINE_S


@pytest.fixture
def running(tmp_path: Path) -> Iterator[VirtualBoard]:
    with running_esp32(tmp_path / "b1", "b1") as board:
        yield board


@pytest.fixture
def tcp_port() -> int:
    port: int = port_for_later()
    return port


def _serial_server(board: VirtualBoard, tcp_port: int) -> ExposedPort:
    port = PortSettings(board.address.serial_url, 115200)
    return ExposedPort(ExposePlan("b1", port, "127.0.0.1", tcp_port, rfc2217=True, insecure=True))


def _desk_board(folder: Path, board: VirtualBoard, tcp_port: int, power: str = "") -> BoardHandle:
    path = folder / "b1.toml"
    path.write_text(
        f'id = "b1"\nmodel = "ESP32_GENERIC"\nserial_url = "rfc2217://127.0.0.1:{tcp_port}"\n'
        f'[identity]\nmac = "{board.address.uid}"\n{power}'
    )
    return BoardHandle(load_board(path))


def test_a_server_that_lets_go_late_is_waited_for(
    running: VirtualBoard, tmp_path: Path, tcp_port: int
) -> None:
    """It may still have the connection of the step that failed."""
    board = _desk_board(tmp_path, running, tcp_port)
    rungs: list[str] = []
    with _serial_server(running, tcp_port):
        before = SerialPort.open(f"rfc2217://127.0.0.1:{tcp_port}")
        leaving = threading.Timer(1.0, before.close)
        leaving.start()
        assert bring_back(board, tap=None, progress=rungs.append).uid == running.address.uid
        leaving.join()
    assert rungs == []


def test_a_server_that_serves_somebody_else_leaves_the_board_alone(
    running: VirtualBoard, tmp_path: Path, tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boards.session.reset_ladder._SERVED_S", 0.5)
    switched = tmp_path / "switched"
    power = f'[power]\ndriver = "command"\non = ["touch", "{switched}"]\noff = ["true"]\n'
    board = _desk_board(tmp_path, running, tcp_port, power)
    rungs: list[str] = []
    with (
        _serial_server(running, tcp_port),
        closing(SerialPort.open(f"rfc2217://127.0.0.1:{tcp_port}")),
        pytest.raises(PortRefused, match="does it serve somebody else already"),
    ):
        admit(board, tap=None, progress=rungs.append, state_dir=tmp_path)
    assert (rungs, switched.exists()) == ([], False)
    assert unresponsive.why(tmp_path, "b1") == ""


@contextmanager
def _bridge(board: VirtualBoard, tcp_port: int) -> Iterator[Process]:
    serial = ("--serial", board.address.serial_url)
    where = ("--listen", f"127.0.0.1:{tcp_port}", "--rfc2217", "--insecure")
    with bridge("bridge", *serial, *where) as process:
        process.wait_for("127.0.0.1")
        yield process


def test_a_server_that_gets_no_time_is_waited_for(
    running: VirtualBoard, tmp_path: Path, tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine: it has yet to see that who had the port before has gone."""
    monkeypatch.setattr("boards.session.reset_ladder._SERVED_S", 0.5)
    monkeypatch.setattr("boards.network_line._AGREE_S", 0.5)
    board = _desk_board(tmp_path, running, tcp_port)
    rungs: list[str] = []
    with _bridge(running, tcp_port) as server:
        before = SerialPort.open(f"rfc2217://127.0.0.1:{tcp_port}")
        server.popen.send_signal(signal.SIGSTOP)
        before.close()
        goes_on = threading.Timer(4.0, server.popen.send_signal, [signal.SIGCONT])
        goes_on.start()
        try:
            assert bring_back(board, tap=None, progress=rungs.append).uid == running.address.uid
        finally:
            goes_on.join()
    assert rungs == []


def test_a_server_that_hangs_is_not_waited_for_without_end(
    running: VirtualBoard, tmp_path: Path, tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_SERVED_S", "_LETS_GO_S"):
        monkeypatch.setattr(f"boards.session.reset_ladder.{name}", 0.5)
    monkeypatch.setattr("boards.network_line._AGREE_S", 0.5)
    board = _desk_board(tmp_path, running, tcp_port)
    with _bridge(running, tcp_port) as server:
        server.popen.send_signal(signal.SIGSTOP)
        with pytest.raises(PortRefused, match=r"said nothing for 0\.5 s.*does it hang"):
            bring_back(board, tap=None, progress=str)


_HOLDER = """
import sys
from boards.serial_port import SerialPort
port = SerialPort.open(sys.argv[1])
print("has it", flush=True)
sys.stdin.read()
"""


def test_another_program_that_has_the_port_is_named(
    running: VirtualBoard, tmp_path: Path, tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boards.session.reset_ladder._SERVED_S", 0.5)
    board = _desk_board(tmp_path, running, tcp_port)
    command = [sys.executable, "-c", _HOLDER, f"rfc2217://127.0.0.1:{tcp_port}"]
    with (
        _serial_server(running, tcp_port),
        Popen(command, stdin=PIPE, stdout=PIPE) as holder,
    ):
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"has it\n"
        with pytest.raises(PortRefused, match="in use by") as refused:
            bring_back(board, tap=None, progress=str)
        assert f"Connected to it: process {holder.pid} (" in str(refused.value)
        holder.stdin.close()


_DEAF = """
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
"""


def test_between_two_rungs_a_server_may_take_a_while_too(
    running: VirtualBoard, tmp_path: Path, tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may still have the connection by which the board was asked."""
    for name in ("_ASK_S", "_BACK_S"):
        monkeypatch.setattr(f"boards.session.reset_ladder.{name}", 0.5)
    repl = Repl.open(running.address.serial_url, deadline_s=DEADLINE_S)
    with pytest.raises(NoReply):
        repl.exec(_DEAF, deadline_s=1)
    repl.close(friendly=False)
    board = _desk_board(tmp_path, running, tcp_port, '[reset]\norder = ["repl"]\n')
    leaving: list[threading.Timer] = []

    def come_between(_text: str) -> None:
        before = SerialPort.open(f"rfc2217://127.0.0.1:{tcp_port}")
        leaving.append(threading.Timer(1.0, before.close))
        leaving[0].start()

    with (
        _serial_server(running, tcp_port),
        pytest.raises(NotBack, match=r"repl: .*no raw REPL"),
    ):
        bring_back(board, tap=None, progress=come_between)
    leaving[0].join()


def test_where_nobody_serves_the_port_the_power_may_bring_it_back(
    running: VirtualBoard, tmp_path: Path, tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A board that hung left the bus, and the server its port; nothing else goes by that."""
    monkeypatch.setattr("boards.session.reset_ladder._SERVED_S", 0.5)
    with ExitStack() as stack, socket.create_server(("127.0.0.1", 0)) as switch:
        switch.settimeout(DEADLINE_S)
        code = f"import socket; socket.create_connection({switch.getsockname()!r})"
        power = (
            '[power]\ndriver = "command"\noff = ["true"]\noff_s = 0.01\n'
            f'on = ["{sys.executable}", "-c", "{code}"]\n'
        )
        board = _desk_board(tmp_path, running, tcp_port, power)

        def serve_once_it_is_on() -> None:
            switch.accept()[0].close()
            stack.enter_context(_serial_server(running, tcp_port))

        server = threading.Thread(target=serve_once_it_is_on)
        server.start()
        rungs: list[str] = []
        assert bring_back(board, tap=None, progress=rungs.append).uid == running.address.uid
        server.join()
    assert rungs == ["reset: power"]


def test_a_server_that_stays_down_is_no_wedged_board(
    running: VirtualBoard, tmp_path: Path, tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_SERVED_S", "_BACK_S"):
        monkeypatch.setattr(f"boards.session.reset_ladder.{name}", 0.5)
    power = '[power]\ndriver = "command"\non = ["true"]\noff = ["true"]\noff_s = 0.01\n'
    board = _desk_board(tmp_path, running, tcp_port, power)
    rungs: list[str] = []
    with pytest.raises(PortUnserved, match=r"nobody listens there.*socat without 'fork'"):
        admit(board, tap=None, progress=rungs.append, state_dir=tmp_path)
    assert rungs == ["reset: power"]
    assert unresponsive.why(tmp_path, "b1") == ""


def test_a_url_is_elsewhere_if_a_server_has_the_port(tmp_path: Path) -> None:
    """pyserial has others, which find a port of this machine, or are none."""

    def board(url: str, required: str) -> BoardHandle:
        path = tmp_path / "b1.toml"
        path.write_text(
            f'id = "b1"\nmodel = "ESP32_GENERIC"\nserial_url = "{url}"\nrequired = {required}\n'
            '[identity]\nmac = "24:0a:c4:00:00:01"\n'
        )
        return BoardHandle(load_board(path))

    urls = ("socket://127.0.0.1:1", "rfc2217://[::1]:1", "hwgrep://no such board", "loop://")
    assert [board(url, "true").is_elsewhere for url in urls] == [True, True, False, False]
    for url in urls[:3]:
        with pytest.raises(Absent, match="cannot be opened"):
            board(url, "false").find()


def test_a_server_that_ends_with_its_first_connection_is_told_so(tmp_path: Path) -> None:
    """As socat without \"fork\" does."""
    with socket.create_server(("127.0.0.1", 0)) as once:
        url = f"socket://127.0.0.1:{once.getsockname()[1]}"
        SerialPort.open(url).close()
        once.accept()[0].close()
    with pytest.raises(PortUnserved, match="One that ends with its first connection, as socat"):
        SerialPort.open(url)


@contextmanager
def _resetting() -> Iterator[int]:
    """A server that has no room: it closes before it has read, so its callers are reset."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    caller, _ = listener.accept()
                except OSError:
                    return
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                caller.close()

        server = threading.Thread(target=serve)
        server.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            server.join()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("rfc2217://127.0.0.1:{}", "serve somebody else already"),
        ("socket://127.0.0.1:{}", "serve somebody else"),
        ("rfc2217://127.0.0.1:{}?token_file=/nowhere/token", "No such file"),
    ],
)
def test_no_power_is_cut_where_somebody_may_have_the_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, words: str
) -> None:
    monkeypatch.setattr("boards.session.reset_ladder._SERVED_S", 0.5)
    path = tmp_path / "b1.toml"
    with _resetting() as tcp_port:
        path.write_text(
            f'id = "b1"\nmodel = "ESP32_GENERIC"\nserial_url = "{url.format(tcp_port)}"\n'
            '[identity]\nmac = "24:0a:c4:00:00:01"\n'
            '[power]\ndriver = "command"\non = ["false"]\noff = ["false"]\n'
        )
        rungs: list[str] = []
        with pytest.raises(PortRefused, match=words) as raised:
            bring_back(BoardHandle(load_board(path)), tap=None, progress=rungs.append)
    assert (rungs, type(raised.value)) == ([], PortRefused)
