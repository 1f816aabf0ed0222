"""A serial port given to programs: one at a time, with a token if asked for, by RFC 2217 too."""

import os
import random
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import serial

from boards.bridge.bridge import PortSettings
from boards.bridge.config import ExposePlan
from boards.bridge.expose import ExposedPort, ListenError
from boards.serial_port import PortError, SerialPort
from tests.boards.serial_board import DEADLINE_S, Board, eventually


@pytest.fixture
def board() -> Iterator[Board]:
    board = Board()
    yield board
    board.close()


def _exposed(
    board: Board, *, rfc2217: bool = False, token: bytes = b"", lines: list[str] | None = None
) -> ExposedPort:
    port = PortSettings(board.url, 115200)
    plan = ExposePlan("board", port, "127.0.0.1", 0, rfc2217, token)
    return ExposedPort(plan, lines.append if lines is not None else None)


def _connect(exposed: ExposedPort) -> socket.socket:
    host, _, port = exposed.address.rpartition(":")
    return socket.create_connection((host, int(port)), DEADLINE_S)


def _receive(tcp: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = tcp.recv(65536)
        assert chunk, data
        data += chunk
    return data


def test_every_byte_both_ways_and_the_port_is_free_afterwards(board: Board) -> None:
    up, down = random.Random(1).randbytes(100_000), random.Random(2).randbytes(100_000)
    with _exposed(board) as exposed:
        with _connect(exposed) as tcp:
            # What a board says before the port is open is nobody's.
            eventually(lambda: exposed.state != "waiting")
            sender = threading.Thread(target=board.send, args=(up,))
            sender.start()
            feeder = threading.Thread(target=tcp.sendall, args=(down,))
            feeder.start()
            got: list[bytes] = []
            reader = threading.Thread(target=lambda: got.append(board.receive(len(down))))
            reader.start()
            assert _receive(tcp, len(up)) == up
            for thread in (sender, feeder, reader):
                thread.join(DEADLINE_S)
            assert got == [down]
            assert exposed.state.startswith("serving 127.0.0.1:")
        eventually(lambda: exposed.state == "waiting")
        SerialPort.open(board.url).close()  # exclusive: nobody has it
        assert exposed.counters.to_broker_bytes == exposed.counters.to_board_bytes == 100_000


def test_one_program_at_a_time_and_the_other_is_told_who_has_it(board: Board) -> None:
    with _exposed(board) as exposed, _connect(exposed) as first:
        eventually(lambda: exposed.state != "waiting")
        board.send(b"x")
        assert _receive(first, 1) == b"x"
        with _connect(exposed) as second:
            host, port = first.getsockname()
            assert second.recv(100) == f"the port is in use by {host}:{port}\r\n".encode()
            assert second.recv(1) == b""
        first.sendall(b"still mine")
        assert board.receive(10) == b"still mine"


def test_a_port_that_cannot_be_opened_is_told_and_may_come_later(tmp_path: Path) -> None:
    link = tmp_path / "board"
    exposed = ExposedPort(ExposePlan("board", PortSettings(str(link), 115200), "127.0.0.1", 0))
    with exposed:
        with _connect(exposed) as tcp:
            assert b"is the board plugged in" in tcp.recv(1000)
        board = Board(link)
        with _connect(exposed) as tcp:
            tcp.sendall(b"hello")
            assert board.receive(5) == b"hello"
            board.close()  # unplugged
            assert tcp.recv(1) == b""
        eventually(lambda: "serial port" in exposed.trouble)
        again = Board(link)
        with _connect(exposed) as tcp:
            tcp.sendall(b"again")
            assert again.receive(5) == b"again"
        again.close()


def test_pyserials_rfc2217_client_sets_rates_and_lines(board: Board) -> None:
    # pyserial's client calls a method of threads that Python has renamed.
    url_lines: list[str] = []
    with _exposed(board, rfc2217=True, lines=url_lines) as exposed:
        port = None
        with pytest.warns(DeprecationWarning):
            port = serial.serial_for_url(f"rfc2217://{exposed.address}", baudrate=57600, timeout=60)
        with port:
            assert port.baudrate == 57600
            assert port.cts  # a pseudo-terminal has none: it looks ready
            port.baudrate = 9600
            port.dtr = False
            port.rts = True
            data = bytes(range(256)) * 8
            port.write(data)
            assert board.receive(len(data)) == data
            board.send(data)
            assert port.read(len(data)) == data
    assert any("has the port" in line for line in url_lines)


def test_our_rfc2217_client_with_a_token(board: Board, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("open sesame\n")
    with _exposed(board, rfc2217=True, token=b"open sesame") as exposed:
        port = SerialPort.open(f"rfc2217://{exposed.address}?token_file={token}", baud=230400)
        try:
            data = random.Random(5).randbytes(20_000)
            sender = threading.Thread(target=board.send, args=(data,))
            sender.start()
            got = b""
            while len(got) < len(data):
                part = port.read(DEADLINE_S)
                assert part
                got += part
            sender.join(DEADLINE_S)
            assert got == data
            port.write_all(b"\xff\xff!", DEADLINE_S)
            assert board.receive(3) == b"\xff\xff!"
        finally:
            port.close()


@pytest.mark.parametrize("said", [b"wrong\n", b"open sesam", b"x" * 5000, b""])
def test_without_the_token_nothing_is_opened(
    board: Board, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boards.bridge.token_gate._SAY_S", 0.3)
    lines: list[str] = []
    with _exposed(board, token=b"open sesame", lines=lines) as exposed:
        with _connect(exposed) as tcp:
            tcp.sendall(said)
            try:
                assert tcp.recv(100) == b""
            except ConnectionResetError:
                assert len(said) == 5000  # closed with bytes unread
        eventually(lambda: exposed.counters.connect_failures == 1)
        assert exposed.counters.sessions == 0
        assert "refused" in lines[0]
        assert "sesam" not in lines[0]
        # The listener is free for the next one at once, its data right behind the token.
        with _connect(exposed) as tcp:
            tcp.sendall(b"open sesame\r\ndata")
            assert board.receive(4) == b"data"


def test_a_token_in_pieces_while_another_says_nothing(board: Board) -> None:
    with (
        _exposed(board, token=b"open sesame") as exposed,
        _connect(exposed),
        _connect(exposed) as tcp,
    ):
        for piece in (b"open", b" sesame", b"\nxyz"):
            tcp.sendall(piece)
            time.sleep(0.02)
        assert board.receive(3) == b"xyz"


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\xff\xfa\x2c" + bytes(5000),  # a sub-negotiation without end
        b"\xff\xfa\x2c\x01\x00\xff\xf0",  # a rate of one byte
        b"\xff\xfa\x2c\x03\x63\xff\xf0",  # parity number 99
        b"\xff\xfa\x2c\x0b\xff\xf0",  # a mask without a value
    ],
)
def test_a_client_that_breaks_rfc2217_is_sent_away_and_the_next_is_served(
    board: Board, nonsense: bytes
) -> None:
    lines: list[str] = []
    with _exposed(board, rfc2217=True, lines=lines) as exposed:
        with _connect(exposed) as tcp:
            tcp.sendall(nonsense)
            while select.select([tcp], [], [], DEADLINE_S)[0]:
                try:
                    if not tcp.recv(4096):
                        break
                except ConnectionResetError:
                    break
            else:
                pytest.fail("it was not closed")
        eventually(lambda: "RFC 2217" in lines[-1] or "sub-negotiation" in lines[-1])
        port = SerialPort.open(f"rfc2217://{exposed.address}")
        port.close()


def test_a_client_that_reads_nothing_slows_the_board_down(board: Board) -> None:
    with _exposed(board) as exposed, _connect(exposed):
        eventually(lambda: exposed.state != "waiting")
        sent = 0
        until = time.monotonic() + DEADLINE_S
        while select.select([], [board.master], [], 1.0)[1]:
            assert time.monotonic() < until, f"took {sent} bytes that nobody read"
            sent += os.write(board.master, bytes(512))


def test_a_tcp_port_that_is_taken_is_said(board: Board) -> None:
    with _exposed(board) as first:
        host, _, port = first.address.rpartition(":")
        plan = ExposePlan("board", PortSettings(board.url, 115200), host, int(port))
        with pytest.raises(ListenError, match="Address already in use"):
            ExposedPort(plan).start()


def test_our_client_is_told_why_it_was_sent_away(board: Board) -> None:
    with (
        _exposed(board, rfc2217=True) as exposed,
        _connect(exposed),
        pytest.raises(PortError, match="does it serve somebody else already"),
    ):
        eventually(lambda: exposed.state != "waiting")
        SerialPort.open(f"rfc2217://{exposed.address}")
