"""UART1 as a raw TCP line: whole, paced by the programmed rate, patient with its peers."""

import contextlib
import random
import select
import socket
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
import serial

from boards.virtual.board import VirtualBoard

ECHO = """
from machine import UART
u = UART(1, baudrate={baud}, tx=4, rx=5, rxbuf=4096, txbuf=4096)
buffer = bytearray(512)
print('echoing')
while True:
    n = u.readinto(buffer, min(u.any(), 512)) if u.any() else 0
    if n:
        u.write(memoryview(buffer)[:n])
"""

SIZE = 20_000
DEADLINE_S = 60.0


def _address(board: VirtualBoard) -> tuple[str, int]:
    assert board.address.data_url is not None
    parts = urlsplit(board.address.data_url)
    assert parts.hostname == "127.0.0.1"
    assert parts.port is not None
    return parts.hostname, parts.port


@contextlib.contextmanager
def _running(board: VirtualBoard, code: str, until: bytes) -> Iterator[serial.Serial]:
    """Run ``code`` in the raw REPL until the block is left."""
    with serial.Serial(board.address.serial_url, timeout=60) as port:
        port.write(b"\r\x03\x03\r\x01")
        assert port.read_until(b"raw REPL; CTRL-B to exit\r\n>").endswith(b">")
        port.write(code.encode() + b"\x04")
        assert port.read_until(until).endswith(until)
        try:
            yield port
        finally:
            port.write(b"\x03\x02")
            port.read_until(b">>> ")


def _exchange(link: socket.socket, data: bytes) -> bytes:
    """Send ``data`` and collect the same number of bytes."""
    link.setblocking(False)
    back, sent = bytearray(), 0
    deadline = time.monotonic() + DEADLINE_S
    while len(back) < len(data):
        assert time.monotonic() < deadline, f"{len(back)} of {len(data)} bytes came back"
        wanted = [link] if sent < len(data) else []
        readable, writable, _ = select.select([link], wanted, [], 1)
        if writable:
            sent += link.send(data[sent : sent + 1024])
        if readable:
            chunk = link.recv(65536)
            assert chunk, "the board closed the line"
            back += chunk
    return bytes(back)


@pytest.mark.parametrize("baud", [115_200, 921_600])
def test_an_echo_comes_back_whole(board: VirtualBoard, baud: int) -> None:
    data = random.Random(baud).randbytes(SIZE)
    with (
        _running(board, ECHO.format(baud=baud), b"echoing\r\n"),
        socket.create_connection(_address(board), timeout=DEADLINE_S) as link,
    ):
        started = time.monotonic()
        assert _exchange(link, data) == data
        taken_s = time.monotonic() - started
    # Ten bits per byte: no faster than the line, however fast the host is.
    assert taken_s >= 0.9 * SIZE * 10 / baud


def test_the_next_client_may_come_later(board: VirtualBoard) -> None:
    with _running(board, ECHO.format(baud=921_600), b"echoing\r\n"):
        for text in (b"first", b"second"):
            with socket.create_connection(_address(board), timeout=DEADLINE_S) as link:
                assert _exchange(link, text) == text


def test_bytes_for_nobody_are_dropped(board: VirtualBoard) -> None:
    code = (
        "from machine import UART\nimport time\nu = UART(1, baudrate=921600, tx=4, rx=5)\n"
        "u.write(b'lost' * 200)\nwhile not u.txdone(): pass\nprint('sent')\n"
        "while not u.any(): pass\nu.write(b'heard')\nwhile not u.txdone(): pass\n"
    )
    with (
        _running(board, code, b"sent\r\n"),
        socket.create_connection(_address(board), timeout=DEADLINE_S) as link,
    ):
        link.sendall(b"?")
        heard = b""
        while len(heard) < len(b"heard"):  # a line paced by its rate may come in pieces
            piece = link.recv(100)
            assert piece, "the board closed the line"
            heard += piece
        assert heard == b"heard"


def test_a_receiver_that_is_off_hears_nothing(board: VirtualBoard) -> None:
    code = (
        "from machine import UART\nimport sys\nprint('off')\nsys.stdin.readline()\n"
        "u = UART(1, baudrate=921600, tx=4, rx=5, timeout=2000)\nprint('on')\nprint(u.read(5))\n"
    )
    with (
        _running(board, code, b"off\r\n") as port,
        socket.create_connection(_address(board), timeout=DEADLINE_S) as link,
    ):
        link.sendall(b"stale bytes")
        # Each answer is a turn of the emulator's event loop: it has accepted, and read the line.
        for _ in range(4):
            board.control.gpio(0)
        port.write(b"\n")
        assert port.read_until(b"on\r\n").endswith(b"on\r\n")
        link.sendall(b"fresh")
        assert port.read_until(b"\r\n") == b"b'fresh'\r\n"


def test_a_line_survives_a_reset_of_the_board(
    board: VirtualBoard, wait_for_boots: Callable[[VirtualBoard, int], None]
) -> None:
    with socket.create_connection(_address(board), timeout=DEADLINE_S) as link:
        boots = board.control.state()["boots"]
        board.control.reset()
        wait_for_boots(board, boots + 1)
        with _running(board, ECHO.format(baud=921_600), b"echoing\r\n"):
            assert _exchange(link, b"after the reset") == b"after the reset"


def test_uart0_and_uart1_are_two_lines(board: VirtualBoard) -> None:
    code = (
        "from machine import UART\n"
        "u = [UART(0, 115200, tx=0, rx=1), UART(1, 115200, tx=4, rx=5)]\n"
        "print('echoing')\n"
        "while True:\n"
        "    for i in (0, 1):\n"
        "        if u[i].any():\n"
        "            u[i].write(b'%d:' % i + u[i].read(1))\n"
    )
    assert board.address.uart0_url is not None
    assert board.address.data_url is not None
    with (
        _running(board, code, b"echoing"),
        serial.serial_for_url(board.address.uart0_url, timeout=DEADLINE_S) as first,
        serial.serial_for_url(board.address.data_url, timeout=DEADLINE_S) as second,
    ):
        first.write(b"a")
        second.write(b"b")
        assert first.read(3) == b"0:a"
        assert second.read(3) == b"1:b"
