"""Reliable mode, without I/O: one TCP session per session of the reliable link (LINK.md)."""

from collections.abc import Iterable

from boards.bridge.counters import BridgeCounters
from boards.bridge.mode import LineMode
from boards.bridge.reliable_frame import Stray, carries_data
from boards.bridge.reliable_link import Asked, Ended, Event, HostLink

# What is taken from the link waits for the broker here; the link holds eight frames more.
_TO_BROKER_LIMIT = 16384
_TO_BOARD_LIMIT = 8192
_CTRL_C = b"\x03"
_TEXT_LIMIT = 200  # of a line that the board says beside the link
_TOLD_LIMIT, _TOLD_S = 50, 60.0  # so many lines per so long: a log is not a console


class LinkMode(LineMode):
    """``LineMode`` for boards with the client's reliable stream. ``counters`` is the bridge's."""

    name = "reliable"

    def __init__(self, counters: BridgeCounters) -> None:
        self.link = HostLink()
        self.to_broker = bytearray()
        self.to_board = bytearray()
        self.to_console = bytearray()
        self.has_console = False
        self._counters = counters
        self._stream = self._number = 0
        self._connected = False
        self._for_board = bytearray()  # of the broker, not yet the link's
        self._finishing = False  # the broker closed: what it said still goes to the board
        self._text = bytearray()
        self._told, self._told_until = 0, 0.0
        self._notes: list[str] = []
        self._noise = b""

    @property
    def state(self) -> str:
        """``idle``, ``opening``, ``open`` or ``closing``."""
        if self._finishing:
            return "closing"
        if not self._stream:
            return "idle"
        return "open" if self._connected else "opening"

    @property
    def stream(self) -> int:
        return self._stream

    @property
    def idle(self) -> bool:
        return self.link.session is None

    @property
    def reads_board(self) -> bool:
        """Always: the link says itself what it has room for."""
        return True

    @property
    def reads_broker(self) -> bool:
        return len(self._for_board) < _TO_BOARD_LIMIT

    def port_opened(self, now: float, *, holds_back: bool) -> None:
        """Begin with whole frames."""
        self.to_board.clear()

    def port_lost(self, now: float) -> None:
        """End the session: who comes back may be another board, or the same without memory."""
        self.to_board.clear()
        self._handle(self.link.abort("the serial port is gone", now), now)

    def board_sent(self, data: bytes, now: float) -> None:
        """Take what the line gave."""
        self._handle(self.link.receive_data(data, now), now)
        self._move(now)

    def console_sent(self, data: bytes, now: float) -> None:
        """Pass on what was typed, between two frames; the program may end by it."""
        self.link.hold()
        if _CTRL_C in data:
            self.link.interrupted(now)
        self.to_board += data

    def session_opened(self, now: float) -> None:
        """Tell the board."""
        self._connected = True
        self.link.accept(now)
        self._move(now)

    def session_failed(self, now: float) -> None:
        """Tell the board, which will ask again."""
        self._stream = 0
        self.link.refuse("the broker cannot be reached", now)

    def session_ended(self, now: float) -> None:
        """Let the board have what the broker said, then close its session."""
        self._stream = 0
        self._connected = False
        self._finishing = True
        self._counters.dropped_bytes += len(self.to_broker)
        self.to_broker.clear()
        self._move(now)

    def broker_sent(self, data: bytes, now: float) -> None:
        """Pass on what the broker said."""
        self._for_board += data
        self._move(now)

    def farewell(self, now: float) -> None:
        """Close the session, so that the board knows at once."""
        self._handle(self.link.abort("the bridge stops", now), now)
        while frame := self.link.data_to_send(now):
            self.to_board += frame

    def tick(self, now: float) -> None:
        """Run the link's clocks."""
        self._handle(self.link.tick(now), now)
        self._move(now)

    def refill(self, now: float) -> None:
        """Give the port its next frame."""
        self._move(now)

    def spoil_next(self, noise: bytes) -> None:
        """Put ``noise`` before and into the next DATA to the board, as a bad line does.

        An ACK that is spoilt costs nothing that anybody could see: the next one says the same.
        """
        self._noise = noise

    def next_deadline(self) -> float | None:
        """When the link has something to do."""
        return self.link.next_deadline()

    def _handle(self, events: Iterable[Event], now: float) -> None:
        for event in events:
            if isinstance(event, Asked):
                self._number += 1
                self._stream = self._number
            elif isinstance(event, Ended):
                self._ended(event)
            else:
                self._hear(event, now)

    def _ended(self, event: Ended) -> None:
        lost = self._for_board
        self._counters.dropped_to_board_bytes += len(lost)
        lost.clear()
        if self._connected:
            self.to_broker += event.rest
        elif event.rest:
            self._counters.dropped_bytes += len(event.rest)
        if not self._finishing:  # else it was said when the broker closed
            self._notes.append(event.reason)
            self._counters.silences += event.silent and self._connected
        self._connected = self._finishing = False
        self._stream = 0

    def _move(self, now: float) -> None:
        """Move bytes between the link and the buffers, as far as there is room."""
        link = self.link
        if self._for_board:
            taken = link.send(bytes(self._for_board[: link.sendable]), now)
            del self._for_board[:taken]
        if self._finishing and not self._for_board:
            link.finish(now)
        if link.is_open:
            if self._finishing:
                # The broker is gone: nobody will hear it.
                self._counters.dropped_bytes += len(link.take(link.readable, now))
            elif len(self.to_broker) < _TO_BROKER_LIMIT:
                self.to_broker += link.take(_TO_BROKER_LIMIT, now)
        if not self.to_board:
            frame = link.data_to_send(now)
            if frame and self._noise and carries_data(frame):
                half = len(frame) // 2
                frame = self._noise + frame[:half] + self._noise + frame[half:]
                self._noise = b""
            self.to_board += frame

    def _hear(self, stray: Stray, now: float) -> None:
        """Tell whole lines of text that the board says beside the link: boot, REPL, tracebacks."""
        if self.has_console:
            self.to_console += stray.data
        self._text += stray.data
        *lines, rest = bytes(self._text).split(b"\n")
        self._text[:] = rest[-_TEXT_LIMIT:]
        if now >= self._told_until:
            self._told_until, self._told = now + _TOLD_S, 0
        for line in filter(None, map(_readable, lines)):
            if self._told < _TOLD_LIMIT:
                self._told += 1
                self._notes.append(f"the board says: {line}")


def _readable(line: bytes) -> str:
    """Return a line if it is text, ``""`` for noise."""
    text = line.strip(b"\r\0")[:_TEXT_LIMIT].decode("utf-8", "replace")
    return text if text.isprintable() and "\ufffd" not in text else ""
