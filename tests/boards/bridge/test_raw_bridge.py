"""The raw bridge between a real pty and real sockets."""

import os
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from benchmarks.ports import port_for_later
from boards.bridge.bridge import RawBridge
from tests.boards.serial_board import DEADLINE_S, Board, FarEnd, eventually, receive

_SILENCE_S = 0.3  # where one is waited for
_LONG_S = 2.0  # where there is to be none


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


def _bridge(board: Board, broker: FarEnd, silence_s: float = DEADLINE_S) -> RawBridge:
    return RawBridge(board.url, 921600, *broker.address, silence_s=silence_s)


def _fall_silent(bridge: RawBridge) -> None:
    """Wait until the board is taken for silent; not before, however busy the machine is."""
    bridge.silence_s = _SILENCE_S
    assert bridge.wait_idle(DEADLINE_S)
    bridge.silence_s = DEADLINE_S


def test_no_session_before_the_first_byte(board: Board, broker: FarEnd) -> None:
    with _bridge(board, broker, _SILENCE_S):
        assert not select.select([broker.listener], [], [], 3 * _SILENCE_S)[0]
        board.send(b"!")
        with broker.accept() as session:
            assert receive(session, 1) == b"!"


def test_every_byte_arrives_unchanged_both_ways_at_once(board: Board, broker: FarEnd) -> None:
    up = random.Random(1).randbytes(200_000)
    down = random.Random(2).randbytes(200_000)
    with _bridge(board, broker) as bridge:
        sender = threading.Thread(target=board.send, args=(up,))
        sender.start()
        with broker.accept() as session:
            feeder = threading.Thread(target=session.sendall, args=(down,))
            feeder.start()
            got: list[bytes] = []
            reader = threading.Thread(target=lambda: got.append(board.receive(len(down))))
            reader.start()
            assert receive(session, len(up)) == up
            for thread in (sender, feeder, reader):
                thread.join(DEADLINE_S)
            assert got == [down]
        eventually(lambda: bridge.counters.to_broker_bytes == len(up))
        eventually(lambda: bridge.counters.to_board_bytes == len(down))
        assert bridge.counters.sessions == 1


def test_silence_is_seen_as_a_clean_close_and_the_next_byte_reconnects(
    board: Board, broker: FarEnd
) -> None:
    with _bridge(board, broker, _SILENCE_S) as bridge:
        began = time.monotonic()
        board.send(b"one")
        with broker.accept() as session:
            assert receive(session, 3) == b"one"
            assert session.recv(1) == b""  # FIN, not a reset
            assert time.monotonic() - began >= _SILENCE_S
        assert bridge.wait_idle(DEADLINE_S)
        board.send(b"two")
        with broker.accept() as session:
            assert receive(session, 3) == b"two"
        assert bridge.counters.silences == 1


def test_keepalives_keep_the_session(board: Board, broker: FarEnd) -> None:
    with _bridge(board, broker, _LONG_S) as bridge:
        board.send(b"k")
        with broker.accept() as session:
            until = time.monotonic() + 1.5 * _LONG_S
            count = 1
            while time.monotonic() < until:
                board.send(b"k")
                count += 1
                time.sleep(_LONG_S / 40)
            assert receive(session, count) == b"k" * count
            assert bridge.counters.sessions == 1
            assert bridge.counters.silences == 0


def test_cut_is_a_reset(board: Board, broker: FarEnd) -> None:
    with _bridge(board, broker) as bridge:
        assert not bridge.cut()
        board.send(b"x")
        with broker.accept() as session:
            assert receive(session, 1) == b"x"
            assert bridge.cut()
            with pytest.raises(ConnectionResetError):
                session.recv(1)
        assert not bridge.cut()


def test_a_stream_is_never_entered_in_the_middle(board: Board, broker: FarEnd) -> None:
    with _bridge(board, broker) as bridge:
        board.send(b"begin")
        with broker.accept() as session:
            assert receive(session, 5) == b"begin"
        # The broker has closed; the board, which cannot know, goes on for a while.
        eventually(lambda: bridge.counters.broker_closes == 1)
        for number in range(1, 6):
            board.send(b"middle")
            eventually(lambda number=number: bridge.counters.dropped_bytes == 6 * number)
        _fall_silent(bridge)
        board.send(b"anew")
        with broker.accept() as session:
            assert receive(session, 4) == b"anew"
        assert bridge.counters.dropped_bytes == 30


def test_a_reset_by_the_broker_ends_the_session_only(board: Board, broker: FarEnd) -> None:
    with _bridge(board, broker) as bridge:
        board.send(b"x")
        session = broker.accept()
        assert receive(session, 1) == b"x"  # or it would be a connection that failed
        session.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        session.close()
        eventually(lambda: bridge.counters.broker_closes == 1)
        _fall_silent(bridge)
        board.send(b"y")
        with broker.accept() as session:
            assert receive(session, 1) == b"y"


def test_no_broker_is_reported_and_tried_again(board: Board, broker: FarEnd) -> None:
    address = ("127.0.0.1", port_for_later())
    lines: list[str] = []
    bridge = RawBridge(board.url, 921600, *address, silence_s=DEADLINE_S, report=lines.append)
    with bridge:
        board.send(b"lost")
        eventually(lambda: bridge.counters.connect_failures >= 1)
        _fall_silent(bridge)
        with socket.create_server(address) as listener:
            listener.settimeout(DEADLINE_S)
            board.send(b"found")
            session, _ = listener.accept()
            with session:
                session.settimeout(DEADLINE_S)
                assert receive(session, 5) == b"found"
    assert any("is the broker running there?" in line for line in lines)


def test_a_broker_that_does_not_read_slows_the_board_down(board: Board, broker: FarEnd) -> None:
    with _bridge(board, broker) as bridge:
        board.send(b"x")
        with broker.accept():
            sent = 0
            until = time.monotonic() + DEADLINE_S
            while time.monotonic() < until:
                if not select.select([], [board.master], [], 1.0)[1]:
                    break  # the line is full: the bridge has stopped reading it
                sent += os.write(board.master, bytes(512))
            else:
                pytest.fail(f"took {sent} bytes that nobody read")
            assert len(bridge.mode.to_broker) < 200_000
            assert bridge.connected  # waiting is not silence


def test_the_brokers_last_words_reach_the_board(board: Board, broker: FarEnd) -> None:
    with _bridge(board, broker) as bridge:
        board.send(b"hello")
        session = broker.accept()
        assert receive(session, 5) == b"hello"
        session.sendall(b"refused: " + b"x" * 50_000)
        session.close()
        board.send(b"going on")
        assert board.receive(50_009) == b"refused: " + b"x" * 50_000
        eventually(lambda: bridge.counters.to_board_bytes == 50_009)


def test_a_board_that_does_not_read_blocks_neither_the_other_direction_nor_the_end(
    board: Board, broker: FarEnd
) -> None:
    bridge = RawBridge(board.url, 921600, *broker.address, silence_s=DEADLINE_S)
    with bridge:
        board.send(b"x")
        with broker.accept() as session:
            assert receive(session, 1) == b"x"
            session.setblocking(False)
            sent = 0
            until = time.monotonic() + DEADLINE_S
            while select.select([], [session], [], 1.0)[1]:
                assert time.monotonic() < until, f"took {sent} bytes that nobody read"
                sent += session.send(bytes(65536))
            assert len(bridge.mode.to_board) < 200_000
            session.setblocking(True)
            board.send(b"still here")
            data = b""
            while not data.endswith(b"still here"):
                data += session.recv(65536)
            began = time.monotonic()
            bridge.stop()
            assert time.monotonic() - began < 20.0
            assert not bridge.running


def test_sessions_come_and_go_without_leaving_anything(board: Board, broker: FarEnd) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    with _bridge(board, broker) as bridge:
        counts = []
        for number in range(24):
            board.send(b"x")
            with broker.accept() as session:
                assert receive(session, 1) == b"x"
                if number % 3 == 0:
                    assert bridge.cut()
                elif number % 3 == 1:
                    session.close()
                else:
                    bridge.silence_s = _SILENCE_S
                    assert session.recv(1) == b""
            _fall_silent(bridge)
            counts.append(descriptors())
        # A session that has just closed may still be waiting for the other side to close.
        assert min(counts[-6:]) <= min(counts[:6])
        assert bridge.counters.sessions == 24
