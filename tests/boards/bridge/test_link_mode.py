"""Reliable mode as a bridge sees it: sessions of the link become streams to the broker.

The board is its frames, by hand, on a line without faults; the link's own tests have the faults.
"""

import random
import re
from dataclasses import replace

import pytest

from boards.bridge.counters import BridgeCounters
from boards.bridge.link_mode import LinkMode
from boards.bridge.reliable_frame import Cutter, Frame, Kind, Reason, encode

_OPEN = bytes((243, 0xE8, 0x03))  # frames of 243 bytes, patience 1000 ms


class _Board:
    def __init__(self, mode: LinkMode) -> None:
        self._mode = mode
        self._cutter = Cutter()
        self.now = 100.0
        self.session = 7
        self.sent = self.next = 0
        self.on_console = False

    def say(self, kind: Kind, payload: bytes = b"", *, room: int = 8) -> None:
        self._mode.board_sent(self.frame(kind, payload, room=room), self.now)

    def frame(self, kind: Kind, payload: bytes = b"", *, room: int = 8) -> bytes:
        frame = Frame(kind, self.session, self.sent & 255, self.next & 255, room, 0, payload)
        if kind is Kind.OPEN:
            self.sent = self.next = 0
            frame = Frame(kind, self.session, 0, 0, room, 0, payload)
        if kind is Kind.DATA:
            self.sent += 1
        return encode(replace(frame, on_console=self.on_console))

    def hear(self) -> list[Frame]:
        """Take all that the mode has for the port."""
        frames: list[Frame] = []
        while self._mode.to_board:
            wire = bytes(self._mode.to_board)
            if self.on_console:
                wire = re.sub(rb"\x10(.)", lambda found: bytes((found[1][0] ^ 64,)), wire)
            for found in self._cutter.receive(wire):
                assert isinstance(found, Frame)
                frames.append(found)
            self._mode.to_board.clear()
            self._mode.refill(self.now)
        self.next += sum(frame.kind is Kind.DATA for frame in frames)
        return frames

    def open(self) -> None:
        self.say(Kind.OPEN, _OPEN)
        assert self._mode.stream
        self._mode.session_opened(self.now)
        (accepted,) = self.hear()
        assert accepted.kind is Kind.ACCEPT


@pytest.fixture
def counters() -> BridgeCounters:
    return BridgeCounters()


@pytest.fixture
def mode(counters: BridgeCounters) -> LinkMode:
    return LinkMode(counters)


@pytest.fixture
def board(mode: LinkMode) -> _Board:
    return _Board(mode)


def test_open_asks_for_a_session_and_bytes_go_both_ways(mode: LinkMode, board: _Board) -> None:
    assert (mode.stream, mode.idle) == (0, True)
    board.open()
    board.say(Kind.DATA, b"up")
    assert mode.to_broker == b"up"
    mode.broker_sent(b"down" * 200, board.now)
    frames = board.hear()
    assert b"".join(frame.payload for frame in frames) == b"down" * 200
    assert frames[0].next == 1  # and acknowledges


def test_without_a_broker_the_board_is_refused_and_may_ask_again(
    mode: LinkMode, board: _Board
) -> None:
    board.say(Kind.OPEN, _OPEN)
    first = mode.stream
    mode.session_failed(board.now)
    assert (mode.stream, mode.idle) == (0, True)
    mode.tick(board.now)
    (refused,) = board.hear()
    assert (refused.kind, refused.payload[0]) == (Kind.CLOSE, Reason.REFUSED)
    board.session += 1
    board.open()
    assert mode.stream == first + 1


def test_a_close_of_the_board_ends_the_stream_after_its_last_byte(
    mode: LinkMode, board: _Board
) -> None:
    board.open()
    mode.board_sent(
        board.frame(Kind.DATA, b"last") + board.frame(Kind.CLOSE, bytes((Reason.END,))), board.now
    )
    assert (mode.stream, mode.to_broker) == (0, b"last")
    assert mode.take_notes() == ["closed by the board"]


def test_a_reset_board_gets_another_stream_though_all_came_in_one_read(
    mode: LinkMode, board: _Board
) -> None:
    board.open()
    before = mode.stream
    data = board.frame(Kind.DATA, b"old")
    board.session = 9
    mode.board_sent(data + b"boot: hello\r\n" + board.frame(Kind.OPEN, _OPEN), board.now)
    assert mode.stream not in (0, before)
    assert mode.to_broker == b"old"  # of the stream before: the bridge sends it there
    assert mode.take_notes() == ["the board says: boot: hello", "the board opened anew"]


def test_a_board_that_falls_silent_is_down_within_its_patience(
    mode: LinkMode, board: _Board, counters: BridgeCounters
) -> None:
    board.open()
    deadline = mode.next_deadline()
    assert deadline is not None
    mode.tick(board.now + 1.04)
    assert mode.stream
    mode.tick(board.now + 1.06)
    assert mode.stream == 0
    assert mode.take_notes() == ["the board was silent for 1 s"]
    assert counters.silences == 1


def test_a_broker_that_closes_is_told_to_the_board_after_its_last_words(
    mode: LinkMode, board: _Board, counters: BridgeCounters
) -> None:
    board.open()
    mode.broker_sent(b"x" * 3000, board.now)  # more than the window holds
    mode.session_ended(board.now)
    assert (mode.stream, mode.idle, mode.state) == (0, False, "closing")
    got = bytearray()
    frames: list[Frame] = []
    while not frames or frames[-1].kind is not Kind.CLOSE:
        got += b"".join(frame.payload for frame in frames if frame.kind is Kind.DATA)
        frames = board.hear()
        assert frames, "nothing more came"
        board.say(Kind.ACK)
        mode.tick(board.now)
    got += b"".join(frame.payload for frame in frames if frame.kind is Kind.DATA)
    assert bytes(got) == b"x" * 3000
    assert mode.idle
    assert counters.dropped_to_board_bytes == 0


def test_a_slow_broker_holds_the_board_back_by_the_window(mode: LinkMode, board: _Board) -> None:
    board.open()
    room = 8
    for _ in range(500):
        if not room:
            break
        board.say(Kind.DATA, bytes(243))
        for frame in board.hear():
            room = frame.room
    assert room == 0
    held = len(mode.to_broker) + mode.link.readable
    assert held == board.sent * 243  # nothing was lost
    assert held < 16384 + 9 * 243
    mode.to_broker.clear()
    mode.tick(board.now)
    assert board.hear()[-1].room == 8


def test_a_lost_port_ends_the_session_at_once(mode: LinkMode, board: _Board) -> None:
    board.open()
    board.say(Kind.DATA, b"said")
    mode.port_lost(board.now)
    assert (mode.stream, mode.to_broker, mode.idle) == (0, b"said", True)
    mode.port_opened(board.now + 5, holds_back=False)
    mode.tick(board.now + 5)
    # A board that never noticed is told that its session is over.
    assert [frame.kind for frame in board.hear()] == [Kind.CLOSE]


def test_a_bridge_that_stops_says_so(mode: LinkMode, board: _Board) -> None:
    board.open()
    mode.farewell(board.now)
    (close,) = board.hear()
    assert (close.kind, close.payload[1:]) == (Kind.CLOSE, b"the bridge stops")


def test_noise_is_counted_and_never_told_and_text_is_bounded(mode: LinkMode) -> None:
    mode.board_sent(bytes(range(128, 256)) * 100 + b"\n", 1.0)
    assert mode.take_notes() == []
    mode.board_sent(b"line\n" * 1000, 1.0)
    assert 0 < len(mode.take_notes()) <= 50
    assert mode.link.counters.stray_bytes > 12_000


def test_spoiling_spares_acknowledgements(mode: LinkMode, board: _Board) -> None:
    board.open()
    mode.spoil_next(b"\0noise")
    board.say(Kind.DATA, b"up")
    assert [frame.kind for frame in board.hear()] == [Kind.ACK]
    mode.broker_sent(b"down", board.now)
    spoilt = bytes(mode.to_board)
    assert spoilt.count(b"\0noise") == 2
    assert not any(isinstance(found, Frame) for found in Cutter().receive(spoilt))
    mode.to_board.clear()
    board.now += 0.9  # less than its patience
    mode.tick(board.now)
    assert b"".join(frame.payload for frame in board.hear()) == b"down"
    assert mode.link.counters.resent == 1


def _console_open(board: _Board) -> None:
    board.on_console = True
    board.say(Kind.OPEN, bytes((96,)) + _OPEN[1:] + (240).to_bytes(2, "little"))
    board._mode.session_opened(board.now)
    (accepted,) = board.hear()
    assert accepted.kind is Kind.ACCEPT


def test_to_a_console_frames_go_in_disguise(mode: LinkMode, board: _Board) -> None:
    _console_open(board)
    mode.broker_sent(bytes(range(32)), board.now)
    assert not set(mode.to_board) & {1, 2, 3, 4, 5, 13}
    assert b"".join(frame.payload for frame in board.hear()) == bytes(range(32))


def test_what_is_typed_goes_between_frames_and_holds_them_until_the_program_reads(
    mode: LinkMode, board: _Board
) -> None:
    _console_open(board)
    mode.console_sent(b"\r\x03", board.now)
    mode.broker_sent(b"for the program", board.now)
    assert bytes(mode.to_board) == b"\r\x03"
    mode.to_board.clear()
    mode.refill(board.now)
    assert not mode.to_board
    deadline = mode.next_deadline()  # it waits for the board, and turns in no circles
    assert deadline is not None and deadline > board.now + 0.9
    board.say(Kind.ACK)
    assert b"".join(frame.payload for frame in board.hear()) == b"for the program"


def test_the_end_of_a_program_in_the_raw_repl_holds_frames_too(
    mode: LinkMode, board: _Board
) -> None:
    _console_open(board)
    mode.board_sent(b"\x04\x04>", board.now)
    mode.broker_sent(b"later", board.now)
    assert not mode.to_board
    board.say(Kind.ACK)
    assert b"".join(frame.payload for frame in board.hear()) == b"later"


def test_what_the_board_says_beside_the_link_is_the_consoles(mode: LinkMode, board: _Board) -> None:
    mode.has_console = True
    mode.board_sent(b">>> ", board.now)
    assert bytes(mode.to_console) == b">>> "  # at once, though no line has ended
    _console_open(board)
    data = board.frame(Kind.DATA, b"up")
    mode.board_sent(b"23.5 C\r\n" + data[:9], board.now)
    mode.board_sent(data[9:] + b"Traceback", board.now)
    assert bytes(mode.to_console) == b">>> 23.5 C\r\nTraceback"
    assert bytes(mode.to_broker) == b"up"


def test_no_more_data_is_unread_than_the_console_holds(mode: LinkMode, board: _Board) -> None:
    _console_open(board)
    mode.broker_sent(b"x" * 96 * 8, board.now)
    data = 0
    for _ in range(20):  # it hears, and says nothing
        board.now += 0.04
        mode.tick(board.now)
        data += sum(frame.kind is Kind.DATA for frame in board.hear())
    assert data == 2
    board.say(Kind.ACK)  # two are read
    assert [frame.seq for frame in board.hear() if frame.kind is Kind.DATA] == [2, 3]


def test_any_bytes_at_any_time_raise_nothing_and_stay_bounded() -> None:
    for seed in range(60):
        chance = random.Random(seed)
        counters = BridgeCounters()
        mode = LinkMode(counters)
        board = _Board(mode)
        stream = 0
        for _ in range(150):
            board.now += chance.random() * 0.3
            frame = board.frame(
                chance.choice([Kind.OPEN, Kind.DATA, Kind.DATA, Kind.ACK, Kind.CLOSE]),
                chance.choice([_OPEN, b"x" * 200, b"\0"]),
                room=chance.randrange(9),
            )
            if chance.random() < 0.2:
                board.session = chance.randrange(4)
            if chance.random() < 0.3:
                broken = bytearray(frame)
                broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
                frame = bytes(broken)
            mode.board_sent(frame, board.now)
            if mode.stream != stream:
                stream = mode.stream
                mode.to_broker.clear()  # as the bridge does when it follows
            if stream:
                do = chance.choice([mode.session_opened, mode.session_failed, mode.session_ended])
                if do == mode.session_opened or mode.state == "open":
                    do(board.now)
            if mode.state == "open" and mode.reads_broker:
                mode.broker_sent(b"y" * 500, board.now)
            mode.tick(board.now)
            assert len(mode.to_broker) < 20_000
            assert len(mode.to_board) < 3000
            if chance.random() < 0.8:
                mode.to_board.clear()
                mode.refill(board.now)
            deadline = mode.next_deadline()
            assert deadline is None or deadline > board.now - 10
        mode.port_lost(board.now)
        assert mode.idle
