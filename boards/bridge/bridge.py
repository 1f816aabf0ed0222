"""A bridge: one serial port, one mode, one TCP session at a time; a thread that waits for all."""

import contextlib
import queue
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from boards.bridge.counters import BridgeCounters
from boards.bridge.mode import LineMode
from boards.bridge.session import Dialing, Session, SessionEnded, wait_closed
from boards.serial_port import PortError, SerialPort
from host_broker.address import Address

PORT_RETRY_S = 0.5
_DIAL_RETRY_S = (0.25, 5.0)  # doubled from the first to the last, as long as nobody answers
_WRITE = 4096
_IDLE_LOOK_S = 0.02
_TICK_S = 5.0  # nothing is due later than that, so that a missed wake-up heals
_STOP_S = 1.0  # to send what is unsent
_JOIN_S = 15.0  # opening a port behind TCP may take half of that
_LINGERING_LIMIT = 8

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PortSettings:
    """A serial port: device or URL, bits/s, and whether RTS/CTS hold the board back."""

    url: str
    baud: int
    rtscts: bool = False

    def open(self) -> SerialPort:
        """Open it. Raises ``PortError``, also for URLs that nobody can wait for."""
        port = SerialPort.open(self.url, baud=self.baud, rtscts=self.rtscts)
        try:
            port.fileno()
        except PortError:
            port.close()
            raise
        return port


class SerialBridge:
    """A bridge in a thread of its own; leaving the ``with`` block stops it.

    ``mode`` must not be shared. ``counters`` is what ``mode`` counts in. ``report`` gets one line
    per event, from the thread. A port or a broker that goes away is tried again as long as the
    bridge runs.
    """

    def __init__(
        self,
        port: PortSettings,
        broker: Address,
        mode: LineMode,
        counters: BridgeCounters,
        report: Report | None = None,
    ) -> None:
        self.counters = counters
        self.mode = mode
        self.settings = port
        self.broker = broker
        self.port_open = False
        self.last_error = ""
        self._report = report or (lambda _line: None)
        self._port: SerialPort | None = None
        self._port_due = 0.0
        self._session: Session | None = None
        self._lingering: list[Session] = []
        self._dialing: Dialing | None = None
        self._dial_due = self._dial_failed = 0.0
        self._dialled_for = 0
        self._dial_retry_s = _DIAL_RETRY_S[0]
        self._stopping = threading.Event()
        self._requests: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._woken: socket.socket | None = None
        self._waker: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="bridge", daemon=True)

    def start(self, *, wait_for_port: bool = False) -> Self:
        """Begin to pump. Raises ``PortError`` if the port cannot be opened.

        With ``wait_for_port`` it does not: the port may come later.
        """
        try:
            self._open_port()
        except PortError as error:
            if not wait_for_port:
                raise
            self._port_missing(error)
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Send what is unsent (within a second), close both sides, wait for the thread."""
        self._stopping.set()
        if self._thread.ident is not None:
            self.wake()
            self._thread.join(_JOIN_S)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @property
    def connected(self) -> bool:
        """True while a session to the broker is open."""
        return self._session is not None

    @property
    def running(self) -> bool:
        """True until the bridge is stopped."""
        return self._thread.is_alive()

    @property
    def state(self) -> str:
        """What the bridge is doing, for people."""
        if not self.port_open:
            return "no port"
        if self._session is None and self.mode.stream:
            return "no broker" if self._dial_due else "connecting"
        return self.mode.state

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until the next byte of the board would open a new session; False if not in time."""
        until = time.monotonic() + timeout_s
        while self._session is not None or not self.mode.idle:
            if time.monotonic() > until:
                return False
            time.sleep(_IDLE_LOOK_S)
        return True

    def wake(self) -> None:
        """Have the thread look again; for changes made to the mode from outside."""
        waker = self._waker
        if waker is not None:
            with contextlib.suppress(OSError):  # full: it is awake; closed: it has ended
                waker.send(b"!")

    def cut(self) -> bool:
        """Kill the session now with a RST, as a dying host would; False if there was none."""
        answer: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._requests.put(lambda: answer.put(self._cut()))
        self.wake()
        try:
            return answer.get(timeout=_JOIN_S)
        except queue.Empty:
            return False

    # All below runs in the thread.

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._turn()
        finally:
            self._end()

    def _turn(self) -> None:
        now = time.monotonic()
        if self._port is None and now >= self._port_due:
            try:
                self._open_port()
                self._say(f"serial port {self.settings.url}: open")
            except PortError as error:
                self._port_missing(error)
        self.mode.tick(time.monotonic())
        self._follow()
        self._wait()
        self.counters.to_broker_wait.look(len(self.mode.to_broker), time.monotonic())
        self.counters.to_board_wait.look(len(self.mode.to_board), time.monotonic())

    def _wait(self) -> None:
        """Wait for whatever comes first, and serve it."""
        poll = select.poll()
        if self._woken is not None:
            poll.register(self._woken, select.POLLIN)
        port, session = self._port, self._session
        if port is not None:
            wanted = select.POLLIN if self.mode.reads_board else 0
            if self.mode.to_board or port.unsent_bytes:
                wanted |= select.POLLOUT
            poll.register(port.fileno(), wanted)
        if session is not None:
            wanted = select.POLLIN if self.mode.reads_broker else 0
            if self.mode.to_broker:
                wanted |= select.POLLOUT
            poll.register(session.fileno(), wanted)
        for ending in self._lingering:
            poll.register(ending, select.POLLIN | (select.POLLOUT if ending.wants_write else 0))
        events = dict(poll.poll(self._patience_s() * 1000))
        self._serve_requests()
        now = time.monotonic()
        if port is not None and (event := events.get(port.fileno())):
            try:
                self._serve_port(port, event)
            except PortError as error:
                self._lose_port(error)
        if session is not None and session is self._session:
            event = events.get(session.fileno(), 0)
            try:
                self._serve_session(session, event)
            except SessionEnded as reason:
                self._lose_session(str(reason))
        self._lingering = [ending for ending in self._lingering if not ending.finished(now)]

    def _patience_s(self) -> float:
        due = [self.mode.next_deadline(), *(ending.due for ending in self._lingering)]
        if self._port is None:
            due.append(self._port_due)
        if self.mode.stream and self._session is None and self._dialing is None:
            due.append(self._dial_at())
        now = time.monotonic()
        # A millisecond more: poll() rounds down, and would turn in circles until it is due.
        waits = [max(0.0, at - now) + 0.001 for at in due if at is not None]
        return min([*waits, _TICK_S])

    def _serve_port(self, port: SerialPort, event: int) -> None:
        if event & select.POLLIN and self.mode.reads_board:
            data = port.read(0)
            if data:
                self.mode.board_sent(data, time.monotonic())
                self._follow()
        elif event & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
            port.read(0)  # says what is wrong, or there is something to read after all
            raise PortError(f"serial port {port.url}: it vanished while in use (hung up)")
        if event & select.POLLOUT:
            port.flush()
        self._send_to_board(port)

    def _send_to_board(self, port: SerialPort) -> None:
        if self.mode.to_board:
            written = port.write(bytes(self.mode.to_board[:_WRITE]))
            del self.mode.to_board[:written]
            self.counters.to_board_bytes += written

    def _serve_session(self, session: Session, event: int) -> None:
        if event & (select.POLLHUP | select.POLLERR) and not event & select.POLLIN:
            self._send_to_broker(session)  # says what is wrong
            raise SessionEnded("closed by the broker")
        if event & select.POLLIN and self.mode.reads_broker:
            data = session.receive()
            if data:
                self.mode.broker_sent(data, time.monotonic())
                if self._port is not None:
                    try:
                        self._send_to_board(self._port)
                    except PortError as error:
                        self._lose_port(error)
                        return
        self._send_to_broker(session)

    def _send_to_broker(self, session: Session) -> None:
        # Sent at once, without asking poll() first: there is nearly always room.
        if self.mode.to_broker:
            sent = session.send(self.mode.to_broker)
            del self.mode.to_broker[:sent]
            self.counters.to_broker_bytes += sent

    def _follow(self) -> None:
        """Have the session that the mode wants, and no other."""
        now = time.monotonic()
        if self._dialing is not None and (result := self._dialing.take()) is not None:
            self._dialing = None
            self._dialled(result, now)
        session = self._session
        if session is not None and session.stream != self.mode.stream:
            self._session = None
            unsent = bytes(self.mode.to_broker)
            self.mode.to_broker.clear()
            self.counters.to_broker_bytes += len(unsent)
            session.finish(unsent, now)
            self._linger(session, now)
            self._tell_notes("session closed: ")
        elif (
            self.mode.stream
            and session is None
            and self._dialing is None
            and now >= self._dial_at()
        ):
            self._dialing = Dialing(self.broker, self.wake)
            self._dialled_for = self.mode.stream
        self._tell_notes("")

    def _dial_at(self) -> float:
        """When to dial next. A new stream does not pay for the long waits of an older one."""
        if self.mode.stream != self._dialled_for:
            return min(self._dial_due, self._dial_failed + _DIAL_RETRY_S[0])
        return self._dial_due

    def _linger(self, session: Session, now: float) -> None:
        if session.finished(now):
            return
        self._lingering.append(session)
        if len(self._lingering) > _LINGERING_LIMIT:
            self._lingering.pop(0).close()

    def _dialled(self, result: socket.socket | Exception, now: float) -> None:
        if isinstance(result, Exception):
            self.counters.connect_failures += 1
            self._dial_failed = now
            self._dial_due = now + self._dial_retry_s
            self._dial_retry_s = min(self._dial_retry_s * 2, _DIAL_RETRY_S[1])
            self._say_once(f"no broker: {result}")
            if self.mode.stream:
                self.mode.session_failed(now)
            return
        self._dial_retry_s = _DIAL_RETRY_S[0]
        self._dial_due = self._dial_failed = 0.0
        self._dialled_for = 0
        self.last_error = ""
        if not self.mode.stream:
            result.close()  # it came too late: nobody wants it now
            return
        self._session = Session(result, self.mode.stream)
        self.counters.sessions += 1
        self._say(f"session {self.counters.sessions} open to {self.broker}")
        self.mode.session_opened(now)

    def _lose_session(self, reason: str) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
            self.counters.broker_closes += 1
            self._say(f"session closed: {reason}")
            self.mode.session_ended(time.monotonic())
            self._follow()

    def _cut(self) -> bool:
        if self._session is None:
            return False
        self._session.reset()
        self._session = None
        self._say("session closed: cut (RST)")
        self.mode.session_ended(time.monotonic())
        return True

    def _open_port(self) -> None:
        self._port = self.settings.open()
        self.port_open = True
        self.last_error = ""
        self.mode.port_opened(time.monotonic())

    def _lose_port(self, error: PortError) -> None:
        self.counters.port_failures += 1
        if self._port is not None:
            self._port.close(drain_s=0)
            self._port = None
        self._port_missing(error)
        self.mode.port_lost(time.monotonic())
        self._follow()

    def _port_missing(self, error: PortError) -> None:
        self.port_open = False
        self._port_due = time.monotonic() + PORT_RETRY_S
        self._say_once(str(error))

    def _serve_requests(self) -> None:
        if self._woken is not None:
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
        with contextlib.suppress(queue.Empty):
            while True:
                self._requests.get_nowait()()

    def _end(self) -> None:
        self.mode.farewell(time.monotonic())
        if self._dialing is not None:
            self._dialing.abandon()
        sessions = self._lingering
        if self._session is not None:
            self._session.finish(bytes(self.mode.to_broker), time.monotonic())
            self.counters.to_broker_bytes += len(self.mode.to_broker)
            sessions = [*sessions, self._session]
            self._session = None
            self._say("session closed: the bridge stops")
        if self._port is not None:
            with contextlib.suppress(PortError, TimeoutError):
                self._port.write_all(bytes(self.mode.to_board), _STOP_S)
            self._port.close(drain_s=_STOP_S)
            self._port, self.port_open = None, False
        wait_closed(sessions, _STOP_S)
        self._serve_requests()
        for end in (self._woken, self._waker):
            if end is not None:
                end.close()

    def _tell_notes(self, prefix: str) -> None:
        for note in self.mode.take_notes():
            self._say(prefix + note)

    def _say(self, line: str) -> None:
        self._report(line)

    def _say_once(self, line: str) -> None:
        """Say why it does not work, once until it does, or until the reason changes."""
        if line != self.last_error:
            self.last_error = line
            self._report(line)
