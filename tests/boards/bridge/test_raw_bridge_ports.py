"""The raw bridge and its serial port: missing, busy, vanished, found by its description."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from serial.tools.list_ports_common import ListPortInfo

from boards.bridge.bridge import RawBridge
from boards.serial_port import PortError
from tests.boards.serial_board import DEADLINE_S, Board, FarEnd, eventually, receive

_SILENCE_S = DEADLINE_S  # no session here ends by silence


@pytest.fixture
def board() -> Iterator[Board]:
    board = Board()
    yield board
    board.close()


@pytest.fixture
def broker() -> Iterator[FarEnd]:
    broker = FarEnd()
    with broker.listener:
        yield broker


def _bridge(board: Board, broker: FarEnd) -> RawBridge:
    return RawBridge(board.url, 921600, *broker.address, silence_s=_SILENCE_S)


def test_a_vanished_port_ends_the_session_and_is_opened_again(
    tmp_path: Path, broker: FarEnd
) -> None:
    link = tmp_path / "port"
    first = Board()
    link.symlink_to(first.url)
    lines: list[str] = []
    bridge = RawBridge(
        str(link), 921600, *broker.address, silence_s=_SILENCE_S, report=lines.append
    )
    with bridge:
        first.send(b"x")
        with broker.accept() as session:
            assert receive(session, 1) == b"x"
            first.close()
            assert session.recv(1) == b""
        second = Board()
        link.unlink()
        link.symlink_to(second.url)
        eventually(lambda: f"serial port {link}: open" in lines)
        second.send(b"back")
        with broker.accept() as session:
            assert receive(session, 4) == b"back"
        second.close()
    assert any(f"serial port {link}: it" in line for line in lines)


def test_a_port_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(PortError, match="is the board plugged in"):
        RawBridge(str(tmp_path / "none"), 115200, "127.0.0.1", 1).start()


def test_a_port_of_another_program_is_one_clear_line(board: Board, broker: FarEnd) -> None:
    with _bridge(board, broker), pytest.raises(PortError, match="in use by this very program"):
        _bridge(board, broker).start()


def test_a_board_behind_a_socket_url(broker: FarEnd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as line:
        url = f"socket://127.0.0.1:{line.getsockname()[1]}"
        with RawBridge(url, 921600, *broker.address, silence_s=_SILENCE_S):
            far_end, _ = line.accept()
            with far_end:
                far_end.sendall(b"hello")
                with broker.accept() as session:
                    assert receive(session, 5) == b"hello"
                    session.sendall(b"you")
                    far_end.settimeout(DEADLINE_S)
                    assert receive(far_end, 3) == b"you"


def test_a_port_found_by_its_description_may_come_back_under_another_name(
    broker: FarEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[ListPortInfo] = []
    monkeypatch.setattr("serial.tools.list_ports.comports", lambda *_: found)

    def plugged() -> Board:
        board = Board()
        port = ListPortInfo(board.url)
        port.description, port.hwid = "Pico", "USB VID:PID=2E8A:0005"
        found[:] = [port]
        return board

    lines: list[str] = []
    bridge = RawBridge(
        "hwgrep://2E8A:0005", 115200, *broker.address, silence_s=_SILENCE_S, report=lines.append
    )
    with pytest.raises(PortError, match="no ports found matching"):
        bridge.start()
    first = plugged()
    with bridge:
        first.send(b"one")
        with broker.accept() as session:
            assert receive(session, 3) == b"one"
            found.clear()
            first.close()
            assert session.recv(1) == b""
        eventually(lambda: "no ports found" in lines[-1])
        second = plugged()
        eventually(lambda: lines[-1].endswith(": open"))
        second.send(b"two")
        with broker.accept() as session:
            assert receive(session, 3) == b"two"
        second.close()
