"""The host's side of the reliable link (LINK.md): bytes and the time in; bytes and events out.

For an edge, which owns the serial port and the TCP connection::

    link = HostLink()
    events = link.receive_data(data, now)   # whatever the port gave, noise included
    events = link.tick(now)                 # when link.next_deadline() has come
    wire = link.data_to_send(now)           # for the port: one frame, b"" if there is none;
                                            # ask again when the port has taken all of it
    link.accept(now)                        # after Asked: the broker is connected; or
    link.refuse("why", now)                 # ... is not
    taken = link.send(data, now)            # for the board; only link.sendable bytes are taken
    data = link.take(limit, now)            # from the board; what is not taken holds the board up
    link.finish(now)                        # the broker closed: CLOSE, once all has arrived
    events = link.abort("why", now)         # at once: the port is gone, or the bridge stops

    link.hold()                             # something else was sent to the board's console

Look at ``readable``, ``sendable`` and ``data_to_send`` after each call. ``now`` is seconds of a
clock that never goes back. Nothing here raises for what the line or the board does.

A board whose line is its console says so in each frame. Then frames to it go in disguise, no more
of them than it holds unread, and only while its program is known to read: not after ``hold``, nor
after the raw REPL's Ctrl-D, until the board's next frame.
"""

from collections import deque
from dataclasses import dataclass, replace

from boards.bridge.reliable_frame import (
    PAYLOAD_LIMIT,
    WINDOW,
    Cutter,
    Frame,
    Kind,
    OtherVersion,
    Reason,
    Stray,
    disguise,
    encode,
)
from boards.bridge.reliable_window import SLACK_S, ReceiveWindow, SendWindow

_PATIENCE_LIMITS_MS = (200, 65535)
_TEXT_LIMIT = 200  # bytes, of a CLOSE
_CONSOLE_FRAME = 120  # bytes: a frame to a console with its disguises is rarely longer
_PROGRAM_ENDS = b"\4"  # what the raw REPL says then


@dataclass(frozen=True, slots=True)
class Asked:
    """The board opened a session: connect, then ``accept`` or ``refuse``."""

    session: int
    patience_s: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The session has ended. ``rest``: what the board sent before, and nobody took.

    ``complete``: one end closed it, and all that this end had sent has arrived. ``silent``: the
    board has said nothing for too long.
    """

    reason: str
    complete: bool
    rest: bytes
    silent: bool = False


Event = Asked | Ended | Stray


@dataclass(slots=True)
class LinkCounters:
    """What a ``HostLink`` has seen since it was made."""

    sessions: int = 0
    frames_in: int = 0
    frames_out: int = 0
    resent: int = 0
    stray_bytes: int = 0  # of noise, text and damaged frames
    other_sessions: int = 0  # frames of sessions that are not ours


class _Session:
    def __init__(self, number: int, size: int, patience_s: float, room: int, now: float) -> None:
        self.number = number
        self.patience_s = patience_s
        self.accepted = False
        self.begun = False  # the board has sent something else than OPEN
        self.finishing = False
        self.owes = False  # an acknowledgement
        self.heard = self.said = now
        self.outgoing = SendWindow(size, room, patience_s, now)
        self.incoming = ReceiveWindow()
        self.unread: deque[tuple[int, int]] = deque()  # DATA: which transmission, bytes

    def unread_bytes(self) -> int:
        """Return how many bytes of DATA the board may not have read."""
        while self.unread and self.unread[0][0] <= self.outgoing.read:
            self.unread.popleft()
        return sum(size for _, size in self.unread)


class HostLink:
    """One serial line, and at most one session at a time. See the module."""

    def __init__(self) -> None:
        self.counters = LinkCounters()
        self._cutter = Cutter()
        self._session: _Session | None = None
        self._on_console = False
        self._holds = 0  # bytes, of a console
        self._held = False
        self._control: list[Frame] = []  # ACCEPT and CLOSE, before all else

    @property
    def session(self) -> int | None:
        """The number of the session that is asked for or open."""
        return self._session.number if self._session else None

    @property
    def is_open(self) -> bool:
        """True from ``accept`` until ``Ended``."""
        return self._session is not None and self._session.accepted

    @property
    def readable(self) -> int:
        """Bytes of the board that ``take`` would return."""
        return self._session.incoming.readable if self._session else 0

    @property
    def sendable(self) -> int:
        """Bytes for the board that ``send`` would take now."""
        session = self._session
        if session is None or not session.accepted or session.finishing:
            return 0
        return session.outgoing.free

    def receive_data(self, data: bytes, now: float) -> list[Event]:
        """Take what the port gave. Returns what happened, in order."""
        events: list[Event] = []
        for found in self._cutter.receive(data, now):
            events += self._found(found, now)
        return events

    def _found(self, found: Frame | OtherVersion | Stray, now: float) -> list[Event]:
        if isinstance(found, Stray):
            self.counters.stray_bytes += len(found.data)
            self._held |= _PROGRAM_ENDS in found.data
            return [found]
        if isinstance(found, OtherVersion):
            self._on_console = found.on_console
            self._close(found.session, Reason.VERSION, "version 1 is spoken here")
            return []
        self.counters.frames_in += 1
        if not found.by_host:
            self._on_console = found.on_console
            self._held = False
        return self._handle(found, now)

    def tick(self, now: float) -> list[Event]:
        """Do what is due. Returns what happened."""
        events: list[Event] = []
        for found in self._cutter.tick(now):
            events += self._found(found, now)
        return events + self._look(now)

    def _look(self, now: float) -> list[Event]:
        session = self._session
        if session is None:
            return []
        if now >= session.heard + session.patience_s + SLACK_S:
            return self._end(f"the board was silent for {session.patience_s:g} s", silent=True)
        if session.accepted:
            session.outgoing.tick(now)
            if session.outgoing.is_lost(session.heard):
                session.unread.clear()
            if session.outgoing.stuck(now):
                self._close(session.number, Reason.GAVE_UP, "nothing was acknowledged")
                return self._end(f"the board acknowledged nothing new for {session.patience_s:g} s")
            if session.finishing and session.outgoing.empty:
                self._close(session.number, Reason.END, "", session.outgoing.number)
                return self._end("closed by the broker", complete=True)
        return []

    def next_deadline(self) -> float | None:
        """Return when ``tick`` or ``data_to_send`` has something to do without further bytes."""
        due = [self._session_deadline(), self._cutter.next_deadline()]
        return min((at for at in due if at is not None), default=None)

    def _session_deadline(self) -> float | None:
        session = self._session
        if session is None:
            return None
        until = session.heard + session.patience_s + SLACK_S
        if session.accepted and not self._is_held:
            until = min(until, session.said + session.patience_s / 8)
            if session.finishing and session.outgoing.empty:
                return session.said
            resend = session.outgoing.next_deadline() if self._may_send_data else None
            until = until if resend is None else min(until, resend)
        return until

    def data_to_send(self, now: float) -> bytes:
        """Return the next frame for the port, ``b""`` if there is none; it counts as sent."""
        frame = None if self._is_held else self._next_frame(now)
        if frame is None:
            return b""
        wire = encode(replace(frame, by_host=True))
        if self._on_console:
            wire = disguise(wire)
        if frame.kind is Kind.DATA and self._session is not None:
            self._session.unread.append((self._session.outgoing.transmissions, len(wire)))
        self.counters.frames_out += 1
        return wire

    def hold(self) -> None:
        """Send no frame until the board does: its console was given something else."""
        self._held = True

    def interrupted(self, now: float) -> None:
        """Take note that the console was given a Ctrl-C."""
        self._cutter.interrupted(now)

    @property
    def _is_held(self) -> bool:
        return self._on_console and self._held

    @property
    def _may_send_data(self) -> bool:
        # The rest is answers: small, and as few as the board's frames.
        session = self._session
        if session is None or not self._on_console:
            return True
        unread = session.unread_bytes()
        return not unread or unread + _CONSOLE_FRAME <= self._holds

    def accept(self, now: float) -> None:
        """Tell the board that its session is open. Nothing if it is no longer asked for."""
        session = self._session
        if session is None or session.accepted:
            return
        session.accepted = True
        session.heard = now  # connecting took its time
        self.counters.sessions += 1
        self._answer(session)

    def refuse(self, reason: str, now: float) -> None:
        """Tell the board that its session cannot be, and forget it; there is no ``Ended``."""
        session = self._session
        if session is not None and not session.accepted:
            self._close(session.number, Reason.REFUSED, reason)
            self._session = None

    def send(self, data: bytes, now: float) -> int:
        """Take bytes for the board; return how many (at most ``sendable``, or a few more)."""
        if self._session is None or not self.sendable:
            return 0
        return self._session.outgoing.queue(data, now)

    def take(self, limit: int, now: float) -> bytes:
        """Return up to ``limit`` bytes of the board's stream."""
        return self._session.incoming.take(limit) if self._session else b""

    def finish(self, now: float) -> None:
        """Close the session when the board has all that was sent; then ``Ended`` comes."""
        if self._session is not None:
            self._session.finishing = True

    def abort(self, reason: str, now: float) -> list[Event]:
        """End the session now. The CLOSE is in ``data_to_send``, if there is still a port."""
        if self._session is None:
            return []
        self._close(self._session.number, Reason.GAVE_UP, reason)
        return self._end(reason)

    def _handle(self, frame: Frame, now: float) -> list[Event]:
        if frame.by_host:
            return []  # an echo of our own
        if frame.kind is Kind.OPEN:
            return self._opened(frame, now)
        session = self._session
        if session is None or frame.session != session.number:
            self.counters.other_sessions += 1
            if frame.kind in (Kind.DATA, Kind.ACK):
                self._close(frame.session, Reason.NO_SESSION, "")
            return []
        if frame.kind is Kind.ACCEPT or (frame.kind is not Kind.CLOSE and not session.accepted):
            return []  # about what nobody said
        session.heard = now
        session.begun = True
        session.outgoing.acknowledged(frame.next, frame.room, frame.mask, now)
        if frame.kind is Kind.DATA:
            session.owes = True
            if not session.finishing:
                session.incoming.store(frame.seq, frame.payload)
        elif frame.kind is Kind.CLOSE:
            return self._closed(session, frame)
        return self._look(now) if session.finishing else []

    def _opened(self, frame: Frame, now: float) -> list[Event]:
        session = self._session
        if session is not None and session.number == frame.session and not session.begun:
            session.heard = now
            if session.accepted:
                self._answer(session)
            return []
        events = self._end("the board opened anew")
        least, most = _PATIENCE_LIMITS_MS
        asked_ms = int.from_bytes(frame.payload[1:3], "little")
        self._holds = int.from_bytes(frame.payload[3:5], "little")
        patience_s = min(max(asked_ms, least), most) / 1000
        self._control.clear()  # what was meant for the board's last life
        self._session = _Session(frame.session, frame.payload[0], patience_s, frame.room, now)
        return [*events, Asked(frame.session, patience_s)]

    def _closed(self, session: _Session, frame: Frame) -> list[Event]:
        reason = frame.payload[0]
        text = frame.payload[1:].decode("utf-8", "replace")
        if reason != Reason.END:
            return self._end(f"the board gave up: {text or f'reason {reason}'}")
        missing = (frame.seq - session.incoming.next) & 255
        if missing:
            return self._end(f"closed by the board; its last {missing} frames were lost")
        return self._end("closed by the board", complete=not session.finishing)

    def _end(self, reason: str, *, complete: bool = False, silent: bool = False) -> list[Event]:
        session, self._session = self._session, None
        if session is None:
            return []
        return [Ended(reason, complete, session.incoming.take(1 << 20), silent)]

    def _answer(self, session: _Session) -> None:
        accept = Frame(Kind.ACCEPT, session.number, 0, 0, WINDOW, 0, bytes((PAYLOAD_LIMIT,)))
        if accept not in self._control:
            self._control.append(accept)

    def _close(self, number: int, reason: Reason, text: str, seq: int = 0) -> None:
        payload = bytes((reason,)) + text.encode()[:_TEXT_LIMIT]
        close = Frame(Kind.CLOSE, number, seq, 0, 0, 0, payload)
        # One of a kind: a board that does not hear us must not fill our memory.
        if close not in self._control and len(self._control) < WINDOW:
            self._control.append(close)

    def _next_frame(self, now: float) -> Frame | None:
        session = self._session
        if self._control:
            if session is not None:
                session.said = now
            return self._control.pop(0)
        if session is None or not session.accepted:
            return None
        before = session.outgoing.resent
        due = session.outgoing.due(now) if self._may_send_data else None
        self.counters.resent += session.outgoing.resent - before
        quiet = now >= session.said + session.patience_s / 8
        if due is None and not (session.owes or session.incoming.has_news or quiet):
            return None
        number, room, mask = session.incoming.tell()
        room = 0 if session.finishing else room
        session.said = now
        session.owes = False
        if due is None:
            return Frame(Kind.ACK, session.number, session.outgoing.number, number, room, mask)
        return Frame(Kind.DATA, session.number, due[0], number, room, mask, due[1])
