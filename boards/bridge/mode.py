"""What the bytes on a serial line mean: one object per port, the same interface for every mode.

A mode is pure: it is told what happened and when, and shows what it wants. ``bridge.py`` does it.
"""

from typing import Protocol


class LineMode(Protocol):
    """The state of one line. All times are seconds on one monotonic clock.

    ``to_broker`` and ``to_board`` are what is to be sent; the bridge takes bytes off their fronts.
    """

    name: str  # raw or reliable
    to_broker: bytearray
    to_board: bytearray
    _notes: list[str]  # for people, not yet taken

    @property
    def state(self) -> str:
        """One word for people: what the line is doing."""

    @property
    def stream(self) -> int:
        """0 if no TCP session is wanted, else a number; another number is another session.

        What is in ``to_broker`` when it changes belongs to the stream that ended.
        """

    @property
    def idle(self) -> bool:
        """True if the next byte (or OPEN) of the board begins a new session."""

    @property
    def reads_board(self) -> bool:
        """False while there is no room for more bytes of the board."""

    @property
    def reads_broker(self) -> bool:
        """False while there is no room for more bytes of the broker."""

    def port_opened(self, now: float, *, holds_back: bool) -> None:
        """The serial port is there (again). ``holds_back``: unread, it loses nothing."""

    def port_lost(self, now: float) -> None:
        """The serial port is gone."""

    def board_sent(self, data: bytes, now: float) -> None:
        """These bytes came from the serial port."""

    def session_opened(self, now: float) -> None:
        """The TCP session of ``stream`` is open."""

    def session_ended(self, now: float) -> None:
        """The TCP session ended, and not because ``stream`` changed."""

    def session_failed(self, now: float) -> None:
        """A try to open the TCP session failed; it is tried again as long as it is wanted."""
        return None

    def broker_sent(self, data: bytes, now: float) -> None:
        """These bytes came from the TCP session; asked for only while ``reads_broker``."""

    def farewell(self, now: float) -> None:
        """The bridge stops; what is to be said to the board goes to ``to_board``."""
        return None

    def tick(self, now: float) -> None:
        """Do what is due; called at least whenever ``next_deadline`` has come."""

    def refill(self, now: float) -> None:
        """The port has taken all of ``to_board``: add what comes next, if there is something."""
        return None

    def next_deadline(self) -> float | None:
        """Return when ``tick`` is due, None if nothing is."""

    def take_notes(self) -> list[str]:
        """Return what people should know and was not yet told, one line each."""
        notes, self._notes = self._notes, []
        return notes
