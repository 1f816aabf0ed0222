"""What waits for a client of a serial line: kept while it reads, lost when it does not."""

import selectors
import socket
from collections.abc import Iterator

import pytest

from boards.virtual.esp32.serial_line import Wire

_SAID = bytes(range(256)) * 256


class _Line:
    """A wire that much waits for, because the kernel holds little, and its client."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        end, self.client = socket.socketpair()
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * 1024)
        self.client.settimeout(0)
        self.wire = Wire(self._selector, end, lambda _: None, lambda: None)
        self.wire.send(_SAID)

    def close(self) -> None:
        self.wire.close()
        self.client.close()
        self._selector.close()

    def read(self, count: int) -> bytes:
        """Let the client read so much, and the wire send on."""
        got = self.client.recv(count)
        for key, events in self._selector.select(0):
            key.data(events)
        return got


@pytest.fixture
def line() -> Iterator[_Line]:
    line = _Line()
    yield line
    line.close()


def test_a_client_that_reads_once_in_nine_seconds_loses_nothing(line: _Line) -> None:
    got, now = b"", 0.0
    while len(got) < len(_SAID):
        for _ in range(90):
            now += 0.1
            line.wire.tick(now)
        got += line.read(16 * 1024)
    assert got == _SAID


def test_for_a_client_that_does_not_read_nothing_waits_after_ten_seconds(line: _Line) -> None:
    line.wire.tick(0.0)
    line.wire.tick(9.9)
    assert line.wire.is_busy
    line.wire.tick(10.0)
    assert not line.wire.is_busy
    line.wire.send(_SAID)
    assert not line.wire.is_busy
