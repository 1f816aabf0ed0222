"""The sessions of one bridge: the one that its mode wants, and those that are closing."""

import contextlib
import select
import socket
import time
from collections.abc import Callable

from boards.bridge.counters import BridgeCounters
from boards.bridge.mode import LineMode
from boards.bridge.poll_thread import Notices
from boards.bridge.session import Dialing, Session, SessionEnded, wait_closed
from host_broker.address import Address

_RETRY_S = (0.25, 5.0)  # doubled from the first to the last, as long as nobody answers
_LINGERING_LIMIT = 8


class BrokerSide:
    """Opens, serves and closes TCP sessions to ``address`` as ``mode`` wants; never waits.

    ``wake`` is called from another thread when there is something to do.
    """

    def __init__(
        self,
        address: Address,
        mode: LineMode,
        counters: BridgeCounters,
        notices: Notices,
        wake: Callable[[], None],
    ) -> None:
        self.address = address
        self.session: Session | None = None
        self._mode, self._counters, self._notices = mode, counters, notices
        self._wake = wake
        self._lingering: list[Session] = []
        self._dialing: Dialing | None = None
        self._dialled_for = 0  # the stream that the last try was for
        self._failed = self._due = 0.0
        self._retry_s = _RETRY_S[0]

    @property
    def failing(self) -> bool:
        """True if the last try to reach the broker failed."""
        return self._due > 0

    def follow(self) -> None:
        """Have the session that the mode wants, and no other; tell what the mode has to tell."""
        now = time.monotonic()
        if self._dialing is not None and (result := self._dialing.take()) is not None:
            self._dialing = None
            self._dialled(result, now)
        session, stream = self.session, self._mode.stream
        if session is not None and session.stream != stream:
            self.session = None
            self._finish(session, now)
            self._tell_notes("session closed: ")
        elif stream and session is None and self._dialing is None and now >= self._dial_at():
            self._dialing = Dialing(self.address, self._wake)
            self._dialled_for = stream
        self._tell_notes("")

    def deadlines(self) -> list[float]:
        """When ``serve`` or ``follow`` is due, at the latest."""
        due = [ending.due for ending in self._lingering if ending.due is not None]
        if self._mode.stream and self.session is None and self._dialing is None:
            due.append(self._dial_at())
        return due

    def register(self, poll: "select.poll") -> None:
        """Have ``poll`` wait for what we wait for."""
        if self.session is not None:
            wanted = select.POLLIN if self._mode.reads_broker else 0
            if self.session.reads_first:
                wanted = select.POLLIN
            elif self._mode.to_broker:
                wanted |= select.POLLOUT
            poll.register(self.session, wanted)
        for ending in self._lingering:
            poll.register(ending, ending.wanted)

    def serve(self, events: dict[int, int]) -> None:
        """Move bytes between the session and the mode."""
        session, now = self.session, time.monotonic()
        if session is not None:
            try:
                self._exchange(session, events.get(session.fileno(), 0), now)
            except SessionEnded as reason:
                self._hear_the_rest(session, now)
                self._lost(session, str(reason))
        self._lingering = [ending for ending in self._lingering if not ending.finished(now)]

    def cut(self) -> bool:
        """Kill the session with a RST; False if there is none."""
        if self.session is None:
            return False
        self.session.reset()
        self.session = None
        self._notices.say("session closed: cut (RST)")
        self._mode.session_ended(time.monotonic())
        return True

    def end(self, limit_s: float) -> None:
        """Close all: what is unsent is sent, for ``limit_s`` seconds at most."""
        if self._dialing is not None:
            self._dialing.abandon()
        if self.session is not None:
            self._finish(self.session, time.monotonic())
            self.session = None
            self._notices.say("session closed: the bridge stops")
        wait_closed(self._lingering, limit_s)

    def _exchange(self, session: Session, event: int, now: float) -> None:
        if event & (select.POLLHUP | select.POLLERR) and not event & select.POLLIN:
            self._send(session)  # says what is wrong
            raise SessionEnded("closed by the broker")
        if event & select.POLLIN and self._mode.reads_broker:
            data = session.receive()
            if data:
                self._mode.broker_sent(data, now)
                self._counters.to_board_wait.look(len(self._mode.to_board), now)
        self._send(session)

    def _hear_the_rest(self, session: Session, now: float) -> None:
        """Take what the broker said before it closed: sending fails before all is read."""
        with contextlib.suppress(SessionEnded):
            while self._mode.reads_broker and (data := session.receive()):
                self._mode.broker_sent(data, now)

    def _send(self, session: Session) -> None:
        # Sent at once, without asking poll() first: there is nearly always room.
        if self._mode.to_broker:
            sent = session.send(self._mode.to_broker)
            del self._mode.to_broker[:sent]
            self._counters.to_broker_bytes += sent

    def _finish(self, session: Session, now: float) -> None:
        unsent = bytes(self._mode.to_broker)
        self._mode.to_broker.clear()
        self._counters.to_broker_bytes += len(unsent)
        session.finish(unsent, now)
        if not session.finished(now):
            self._lingering.append(session)
            if len(self._lingering) > _LINGERING_LIMIT:
                self._lingering.pop(0).close()

    def _lost(self, session: Session, reason: str) -> None:
        session.close()
        self.session = None
        self._counters.broker_closes += 1
        self._notices.say(f"session closed: {reason}")
        self._mode.session_ended(time.monotonic())
        self.follow()

    def _dial_at(self) -> float:
        """When to dial next. A new stream does not pay for the long waits of an older one."""
        if self._mode.stream != self._dialled_for:
            return min(self._due, self._failed + _RETRY_S[0])
        return self._due

    def _dialled(self, result: socket.socket | Exception, now: float) -> None:
        if isinstance(result, Exception):
            self._counters.connect_failures += 1
            self._failed, self._due = now, now + self._retry_s
            self._retry_s = min(self._retry_s * 2, _RETRY_S[1])
            self._notices.complain(f"no broker: {result}")
            if self._mode.stream:
                self._mode.session_failed(now)
            return
        self._failed = self._due = 0.0
        self._retry_s, self._dialled_for = _RETRY_S[0], 0
        self._notices.over()
        if not self._mode.stream:
            result.close()  # it came too late: nobody wants it now
            return
        self.session = Session(result, self._mode.stream)
        self._counters.sessions += 1
        self._notices.say(f"session {self._counters.sessions} open to {self.address}")
        self._mode.session_opened(now)

    def _tell_notes(self, prefix: str) -> None:
        for note in self._mode.take_notes():
            self._notices.say(prefix + note)
