"""Both ends of a bridge under test: a serial line as a board has it, and where it leads to."""

import os
import pty
import select
import socket
import time
import tty
from collections.abc import Callable
from pathlib import Path

DEADLINE_S = 60.0


class Board:
    """``url`` is what the host opens; ``link`` makes it a lasting name, as udev's by-id links."""

    def __init__(self, link: Path | None = None) -> None:
        self.master, self.slave = pty.openpty()
        tty.setraw(self.slave)
        os.set_blocking(self.master, False)
        self.url = os.ttyname(self.slave)
        self._link = link
        if link is not None:
            link.symlink_to(self.url)
            self.url = str(link)

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        until = time.monotonic() + DEADLINE_S
        while view:
            assert select.select([], [self.master], [], until - time.monotonic())[1]
            view = view[os.write(self.master, view[:512]) :]

    def receive(self, count: int) -> bytes:
        data = b""
        until = time.monotonic() + DEADLINE_S
        while len(data) < count:
            left = until - time.monotonic()
            assert left > 0 and select.select([self.master], [], [], left)[0], data
            data += os.read(self.master, 65536)
        return data

    def close(self) -> None:
        """Unplug it."""
        if self._link is not None:
            self._link.unlink()
        for fd in (self.master, self.slave):
            os.close(fd)


class FarEnd:
    """A listener that stands where the broker would."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(DEADLINE_S)
        self.address: tuple[str, int] = self.listener.getsockname()

    def accept(self) -> socket.socket:
        connection, _ = self.listener.accept()
        connection.settimeout(DEADLINE_S)
        return connection


def receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = connection.recv(65536)
        assert chunk, f"closed after {len(data)} of {count} bytes"
        data += chunk
    return data


def eventually(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)
