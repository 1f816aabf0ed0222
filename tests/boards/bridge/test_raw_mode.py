"""Raw mode in simulated time: when a session is wanted, what is kept, what is counted as lost."""

import pytest

from boards.bridge.counters import BridgeCounters, Dwell
from boards.bridge.raw_mode import BUFFER_LIMIT, RawMode


@pytest.fixture
def counters() -> BridgeCounters:
    return BridgeCounters()


@pytest.fixture
def mode(counters: BridgeCounters) -> RawMode:
    return RawMode(counters, silence_s=2.0)


def test_the_beginning_is_kept_for_a_broker_that_comes(mode: RawMode) -> None:
    assert mode.stream == 0
    mode.board_sent(b"CONNECT", 10.0)
    assert mode.stream == 1
    mode.session_failed(10.1)
    mode.board_sent(b" more", 11.0)
    mode.tick(12.9)
    mode.session_opened(12.95)
    assert mode.stream == 1
    assert mode.to_broker == b"CONNECT more"


def test_a_board_that_falls_silent_first_loses_its_bytes_and_it_is_said(
    mode: RawMode, counters: BridgeCounters
) -> None:
    mode.board_sent(b"lost", 10.0)
    assert mode.next_deadline() == 12.0
    mode.tick(12.0)
    assert (mode.stream, mode.idle, mode.to_broker) == (0, True, b"")
    assert counters.dropped_bytes == 4
    assert "4 bytes of the board are lost" in mode.take_notes()[0]
    mode.board_sent(b"new", 20.0)
    assert mode.stream == 2
    assert mode.to_broker == b"new"


def test_without_a_broker_memory_is_bounded_and_the_whole_stream_is_dropped(
    mode: RawMode, counters: BridgeCounters
) -> None:
    for tenth in range(100):
        mode.board_sent(bytes(4096), tenth / 10)
        assert len(mode.to_broker) <= BUFFER_LIMIT + 4096
    assert (mode.stream, mode.idle) == (0, False)
    assert counters.dropped_bytes == 100 * 4096
    mode.tick(9.9 + 2.0)
    assert mode.idle


def test_with_flow_control_the_board_is_held_back_first(
    mode: RawMode, counters: BridgeCounters
) -> None:
    mode.port_opened(0.0, holds_back=True)
    while mode.reads_board:
        mode.board_sent(bytes(4096), 0.0)
    mode.tick(1.9)
    assert mode.stream == 1
    assert counters.dropped_bytes == 0
    # No broker came; whatever the board says next is from the middle of its stream.
    mode.tick(2.0)
    assert (mode.stream, mode.idle) == (0, False)
    assert counters.dropped_bytes == BUFFER_LIMIT
    mode.tick(4.0)
    assert mode.idle


def test_a_slow_broker_is_not_a_silent_board(mode: RawMode, counters: BridgeCounters) -> None:
    mode.board_sent(b"x", 0.0)
    mode.session_opened(0.0)
    mode.tick(50.0)
    assert mode.stream == 1
    assert mode.next_deadline() is None
    mode.to_broker.clear()
    mode.tick(50.0)
    assert mode.stream == 0
    assert counters.silences == 1


def test_what_the_broker_said_before_it_closed_goes_to_the_board(
    mode: RawMode, counters: BridgeCounters
) -> None:
    mode.board_sent(b"CONNECT", 0.0)
    mode.session_opened(0.0)
    mode.broker_sent(b"refused", 0.1)
    mode.session_ended(0.1)
    assert mode.to_board == b"refused"
    assert counters.dropped_bytes == 7  # it had not left us
    mode.board_sent(b"going on", 1.0)
    assert counters.dropped_bytes == 15
    mode.tick(3.0)
    # Whoever speaks now is in a new session; what is left was for the old one.
    mode.board_sent(b"CONNECT", 3.1)
    assert mode.to_board == b""
    assert counters.dropped_to_board_bytes == 7


def test_a_port_that_is_lost_ends_the_session(mode: RawMode) -> None:
    mode.board_sent(b"x", 0.0)
    mode.session_opened(0.0)
    mode.broker_sent(b"for the board that was", 0.1)
    mode.port_lost(0.2)
    assert (mode.stream, mode.idle, mode.to_board) == (0, True, b"")
    assert mode.to_broker == b"x"  # has come from the board: it is still sent


def test_waits_are_counted_from_the_first_byte_to_the_last() -> None:
    dwell = Dwell()
    for begin, us in ((1.0, 100), (2.0, 100), (3.0, 9000)):
        dwell.look(5, begin)
        dwell.look(9, begin + us / 2e6)
        dwell.look(0, begin + us / 1e6 + 1e-7)
        dwell.look(0, begin + 0.5)
    assert dwell.count == 3
    assert 100 <= dwell.percentile_us(50) < 200
    assert dwell.percentile_us(99) == dwell.max_us == 9000
