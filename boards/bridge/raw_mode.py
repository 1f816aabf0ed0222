"""Raw mode, without I/O: a transparent pipe, and guesses where a connection begins and ends.

A serial line has no connection. So the first byte of the board asks for a TCP session, and
``silence_s`` without a byte ends it; docs/bridge.md says what that means for a board. While no
broker is reached, the beginning of a stream is kept: one may come before the board falls silent.
"""

from enum import Enum

from boards.bridge.counters import BridgeCounters
from boards.bridge.mode import LineMode

# Per direction; above it the source is not read.
BUFFER_LIMIT = 65536


class _State(Enum):
    IDLE = "idle"
    OPENING = "opening"  # what the board says is kept for the broker to come
    OPEN = "open"
    DEAF = "dropping"  # what the board says is dropped, until it has been silent


class RawMode(LineMode):
    """``LineMode`` for raw lines. ``silence_s``: seconds; may be changed at any time.

    ``counters`` is the bridge's.
    """

    name = "raw"

    def __init__(self, counters: BridgeCounters, *, silence_s: float) -> None:
        self.to_broker = bytearray()
        self.to_board = bytearray()
        self.silence_s = silence_s
        self._counters = counters
        self._holds_back = False
        self._state = _State.IDLE
        self._number = 0
        self._last_byte = 0.0
        self._notes: list[str] = []

    @property
    def state(self) -> str:
        """``idle``, ``opening``, ``open`` or ``dropping``."""
        return self._state.value

    @property
    def stream(self) -> int:
        return self._number if self._state in (_State.OPENING, _State.OPEN) else 0

    @property
    def idle(self) -> bool:
        return self._state is _State.IDLE

    @property
    def reads_board(self) -> bool:
        return len(self.to_broker) < BUFFER_LIMIT

    @property
    def reads_broker(self) -> bool:
        return len(self.to_board) < BUFFER_LIMIT

    def port_opened(self, now: float, *, holds_back: bool) -> None:
        """Forget what was for the board before."""
        self._holds_back = holds_back
        self._to_board_lost()

    def port_lost(self, now: float) -> None:
        """End the session; the board's next byte begins another."""
        self._to_board_lost()
        if self._state is _State.OPENING:
            self._drop()
        self._state = _State.IDLE

    def board_sent(self, data: bytes, now: float) -> None:
        """Pass on, keep or drop what the board said."""
        self._last_byte = now
        if self._state is _State.DEAF:
            self._counters.dropped_bytes += len(data)
            return
        if self._state is _State.IDLE:
            self._number += 1
            self._state = _State.OPENING
            self._to_board_lost()  # it was for the session before
        self.to_broker += data
        if self._state is _State.OPENING and not self.reads_board and not self._holds_back:
            # Unread, the line would overflow somewhere in the kernel, and nobody would know where.
            self._overflow()

    def session_opened(self, now: float) -> None:
        """Let the bytes go."""
        self._state = _State.OPEN

    def session_ended(self, now: float) -> None:
        """Drop what the board says, for it does not know; never enter a stream in the middle."""
        # What the broker said before it closed (a refusal, perhaps) still goes to the board.
        self._drop()
        self._state = _State.DEAF

    def broker_sent(self, data: bytes, now: float) -> None:
        """Pass on what the broker said."""
        self.to_board += data

    def tick(self, now: float) -> None:
        """Notice that the board has fallen silent."""
        if self._state is _State.IDLE or now < self._last_byte + self.silence_s:
            return
        if self._state is _State.OPEN:
            if self.to_broker:
                return  # it is the broker that is slow, not the board that is silent
            self._counters.silences += 1
            self._notes.append(f"the board was silent for {self.silence_s:g} s")
        elif self._state is _State.OPENING and not self.reads_board:
            # It was not silent but held back; it may go on in the middle of what is dropped now.
            self._last_byte = now
            self._overflow()
            return
        elif self._state is _State.OPENING:
            self._notes.append(
                f"{len(self.to_broker)} bytes of the board are lost: it fell silent before a "
                "broker was there"
            )
            self._drop()
        self._state = _State.IDLE

    def next_deadline(self) -> float | None:
        """When the silence is long enough."""
        if self._state is _State.IDLE or (self._state is _State.OPEN and self.to_broker):
            return None
        return self._last_byte + self.silence_s

    def _overflow(self) -> None:
        self._notes.append(
            f"no broker yet and {BUFFER_LIMIT} bytes kept: this stream of the board is dropped"
        )
        self._drop()
        self._state = _State.DEAF

    def _drop(self) -> None:
        self._counters.dropped_bytes += len(self.to_broker)
        self.to_broker.clear()

    def _to_board_lost(self) -> None:
        self._counters.dropped_to_board_bytes += len(self.to_board)
        self.to_board.clear()
