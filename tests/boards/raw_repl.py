"""The raw REPL of a virtual ESP32, byte by byte, for what mpremote does not wait for."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from boards.virtual.board import VirtualBoard

_RAW_REPL = b"raw REPL; CTRL-B to exit\r\n>"


def soft_reset_by_code(board: VirtualBoard) -> None:
    """Run ``machine.soft_reset()`` and wait for the raw REPL that follows.

    mpremote does not wait for it: the banner of the reset is then as good as its own to it.
    """
    with raw_repl(board) as line:
        line.sendall(b"import machine; machine.soft_reset()\x04")
        _read_to(line, b"MPY: soft reboot\r\n")
        _read_to(line, _RAW_REPL)


@contextmanager
def raw_repl(board: VirtualBoard) -> Iterator[socket.socket]:
    """Interrupt what runs; give the line, which has said its banner."""
    port = int(board.address.serial_urls["socket"].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), 20) as line:
        line.sendall(b"\r\x03\x01")
        _read_to(line, _RAW_REPL)
        yield line


def _read_to(line: socket.socket, end: bytes) -> None:
    said = b""
    while not said.endswith(end):
        byte = line.recv(1)
        assert byte, said
        said += byte
