"""The sessions of one bridge with its broker: dialled, the one that its mode wants, and closing."""

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable

from boards.bridge.counters import BridgeCounters
from boards.bridge.mode import LineMode
from boards.bridge.poll_thread import Notices
from boards.poll import POLLERR, POLLHUP, POLLIN, POLLOUT, Poll
from host_broker.address import Address
from host_broker.client import ClientError
from host_broker.client.dialing import dial

DIAL_S = 5.0
_READ = 16384  # a TLS record holds no more, so nothing stays behind where poll() cannot see it
_FLUSH_S = 5.0  # for what is unsent when we close
_FAREWELL_S = 2.0  # for the broker to close its side after us


class SessionEnded(Exception):
    """The broker closed, or the connection broke; the text says which."""


class Dialing:
    """One try to connect, in a thread of its own: names and TLS handshakes may take seconds.

    ``ready`` is called from that thread when ``take`` has something. ``abandon`` gives it up.
    """

    def __init__(self, address: Address, ready: Callable[[], None]) -> None:
        self._address, self._ready = address, ready
        self._lock = threading.Lock()
        self._abandoned = False
        self._result: socket.socket | Exception | None = None
        self._thread = threading.Thread(target=self._dial, name="bridge-dial", daemon=True)
        self._thread.start()

    def take(self) -> socket.socket | Exception | None:
        """Return the connected socket, or why there is none; None while it is being tried."""
        with self._lock:
            result, self._result = self._result, None
            return result

    def abandon(self) -> None:
        """Let nothing come of it."""
        with self._lock:
            self._abandoned = True
            if isinstance(self._result, socket.socket):
                self._result.close()

    def _dial(self) -> None:
        try:
            result: socket.socket | Exception = dial(self._address, DIAL_S)
        except (ClientError, OSError, ValueError) as error:
            result = error
        with self._lock:
            if not self._abandoned:
                self._result = result
            elif isinstance(result, socket.socket):
                result.close()
        self._ready()


class Session:
    """An open connection that never blocks. ``stream`` is the mode's number for it."""

    def __init__(self, connected: socket.socket, stream: int) -> None:
        self.stream = stream
        self._socket = connected
        self.reads_first = False  # TLS has to read before it can send
        self._unsent = b""  # only while it is finishing
        self._until: float | None = None
        self._shut = False

    def fileno(self) -> int:
        """The socket, to wait for."""
        return self._socket.fileno()

    def receive(self) -> bytes:
        """Return what has come, ``b""`` if nothing has. Raises ``SessionEnded``."""
        try:
            data = self._socket.recv(_READ)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return b""
        except OSError as error:
            raise SessionEnded(f"lost: {error}") from None
        if not data:
            raise SessionEnded("closed by the broker")
        return data

    def send(self, data: bytearray) -> int:
        """Send from the front of ``data`` and return how many bytes. Raises ``SessionEnded``."""
        self.reads_first = False
        try:
            return self._socket.send(bytes(data[:_READ]))
        except ssl.SSLWantReadError:
            self.reads_first = True
            return 0
        except (BlockingIOError, ssl.SSLWantWriteError):
            return 0
        except OSError as error:
            raise SessionEnded(f"lost: {error}") from None

    def reset(self) -> None:
        """Close at once with a RST, as a dying host would."""
        # Linger 0: close() sends RST and forgets what is unsent.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def finish(self, unsent: bytes, now: float) -> None:
        """Begin to close cleanly: send ``unsent``, then FIN. ``finished`` goes on with it."""
        self._unsent = unsent
        self._until = now + _FLUSH_S

    @property
    def wanted(self) -> int:
        """What to wait for while it is finishing, as poll() has it."""
        return POLLIN if self._shut else POLLIN | POLLOUT

    def finished(self, now: float) -> bool:
        """Go on closing; True when the socket is closed. Call when readable, writable, or due."""
        if self._until is None:
            return False
        try:
            self._go_on(now)
        except OSError:
            self._socket.close()
            return True
        if now >= self._until:
            self._socket.close()
        return self._socket.fileno() < 0

    @property
    def due(self) -> float | None:
        """When ``finished`` gives up, None while it is not finishing."""
        return self._until

    def close(self) -> None:
        """Close now."""
        self._socket.close()

    def _go_on(self, now: float) -> None:
        with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent[:_READ]) :]
            if not self._shut:
                self._shut = True
                self._until = now + _FAREWELL_S
                self._say_goodbye()
            # To close with unread bytes would be a RST, which can overtake what we sent.
            while self._socket.recv(_READ):
                continue
            self._socket.close()

    def _say_goodbye(self) -> None:
        if isinstance(self._socket, ssl.SSLSocket):
            # Sends close_notify; it would then wait for the broker's, which recv() will see.
            with contextlib.suppress(ssl.SSLError, ValueError):
                self._socket.unwrap()
        self._socket.shutdown(socket.SHUT_WR)


def wait_closed(sessions: list[Session], limit_s: float) -> None:
    """Finish all ``sessions``, for ``limit_s`` seconds at most."""
    until = time.monotonic() + limit_s
    left = [s for s in sessions if not s.finished(time.monotonic())]
    while left and (rest := until - time.monotonic()) > 0:
        poll = Poll()
        for session in left:
            poll.register(session, session.wanted)
        poll.poll(min(rest, 0.1) * 1000)
        left = [s for s in left if not s.finished(time.monotonic())]
    for session in left:
        session.close()


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

    def register(self, poll: Poll) -> None:
        """Have ``poll`` wait for what we wait for."""
        if self.session is not None:
            wanted = POLLIN if self._mode.reads_broker else 0
            if self.session.reads_first:
                wanted = POLLIN
            elif self._mode.to_broker:
                wanted |= POLLOUT
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
        if event & (POLLHUP | POLLERR) and not event & POLLIN:
            self._send(session)  # says what is wrong
            raise SessionEnded("closed by the broker")
        if event & POLLIN and self._mode.reads_broker:
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
