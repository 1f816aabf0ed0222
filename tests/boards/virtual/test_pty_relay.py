"""A board's terminal: whoever has it open gets everything, and nobody stops the board for long."""

import contextlib
import os
import selectors
import socket
from collections.abc import Iterator

import pytest

from boards.virtual.pty_relay import PtyRelay

_TICK_S = 0.1
_OUTPUT = b"".join(b"%07d\n" % number for number in range(25_000))  # more than all buffers hold


class _Desk:
    """A relay, the board behind it, and a clock that only we move."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._board, end = socket.socketpair()
        self._board.setblocking(False)
        self._board.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * 1024)
        self._relay = PtyRelay(self._selector, end)
        self.now = 0.0
        self.said = 0  # bytes of _OUTPUT that the board got rid of

    @property
    def path(self) -> str:
        return self._relay.path

    def close(self) -> None:
        self._relay.close()
        self._board.close()
        self._selector.close()

    def pass_time(self) -> None:
        """Let a tenth of a second pass, in which the board says as much as it can."""
        self.now += _TICK_S
        for _ in range(20):  # as often as anything may go on
            with contextlib.suppress(BlockingIOError):
                self.said += self._board.send(_OUTPUT[self.said : self.said + 4096])
            for key, events in self._selector.select(0):
                key.data(events)
        self._relay.tick(self.now)


@pytest.fixture
def desk() -> Iterator[_Desk]:
    desk = _Desk()
    yield desk
    desk.close()


def test_whoever_reads_slowly_loses_nothing(desk: _Desk) -> None:
    reader = os.open(desk.path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    heard = b""
    try:
        while len(heard) < len(_OUTPUT):
            desk.pass_time()
            try:
                heard += os.read(reader, 400)
            except BlockingIOError:
                assert desk.said < len(_OUTPUT), f"{len(heard)} bytes came"
    finally:
        os.close(reader)
    assert heard == _OUTPUT


def test_when_nobody_has_it_open_the_board_goes_on_at_once(desk: _Desk) -> None:
    while desk.said < len(_OUTPUT):
        desk.pass_time()
        assert desk.now < 5.0, "the board waits for a reader"


def test_a_program_that_does_not_read_stops_the_board_for_seconds_only(desk: _Desk) -> None:
    stopped = os.open(desk.path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        while desk.said < len(_OUTPUT):
            desk.pass_time()
            assert desk.now < 15.0, "the board waits for a reader"
        assert desk.now > 9.0
    finally:
        os.close(stopped)


def test_a_terminal_that_takes_nothing_more_can_be_taken_away(desk: _Desk) -> None:
    """The fixture closes it while neither the board nor the program is listened to."""
    program = os.open(desk.path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        before = -1
        while desk.said != before:
            before = desk.said
            desk.pass_time()
        assert desk.said < len(_OUTPUT)
        desk.pass_time()
    finally:
        os.close(program)
