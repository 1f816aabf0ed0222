"""A port for which no system call waits: carried by threads, held back, never left behind."""

import threading
from contextlib import closing

import pytest

from boards.serial_port import PortError, SerialPort
from boards.threaded_line import ThreadedLine
from tests.boards.serial_board import DEADLINE_S, Board
from tests.motemq.as_on_windows import no_descriptor

_MUCH = bytes(range(256)) * 1024


@pytest.fixture
def no_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serial.Serial.fileno", no_descriptor)


def _threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "serial-port"]


def test_a_line_that_is_not_read_is_held_back_and_loses_nothing(no_descriptors: None) -> None:
    board = Board()
    with closing(SerialPort.open(board.url)) as port:
        assert isinstance(port._line, ThreadedLine)
        taken = 0
        # Until all is full: the pair of sockets, the terminal.
        while written := port.write(_MUCH[taken : taken + 4096]):
            taken += written
        assert taken < len(_MUCH)
        assert board.receive(taken) == _MUCH[:taken]
        port.write_all(b"the end", DEADLINE_S)
        assert board.receive(7) == b"the end"
    assert _threads() == []
    board.close()


def test_what_was_written_leaves_before_it_is_closed(no_descriptors: None) -> None:
    board = Board()
    port = SerialPort.open(board.url)
    port.write_all(_MUCH[:3000], DEADLINE_S)
    port.close(drain_s=DEADLINE_S)
    assert board.receive(3000) == _MUCH[:3000]
    board.close()


def test_a_board_that_takes_nothing_does_not_keep_the_port_open(no_descriptors: None) -> None:
    board = Board()
    port = SerialPort.open(board.url)
    taken = 0
    while written := port.write(_MUCH[taken : taken + 4096]):
        taken += written
    port.close(drain_s=0.1)
    assert _threads() == []
    board.close()


def test_a_port_that_vanishes_is_told_after_what_it_said(no_descriptors: None) -> None:
    board = Board()
    port = SerialPort.open(board.url)
    board.send(b"last words")
    said = b""
    while len(said) < 10:
        said += port.read(DEADLINE_S)
    assert said == b"last words"
    board.close()
    with pytest.raises(PortError, match="it vanished while in use"):
        while True:
            port.read(DEADLINE_S)
    port.close()
    assert _threads() == []


def test_pyserials_loop_is_a_port_as_any_other() -> None:
    with closing(SerialPort.open("loop://")) as port:
        port.write_all(b"round", DEADLINE_S)
        said = b""
        while len(said) < 5:
            said += port.read(DEADLINE_S)
        assert said == b"round"
