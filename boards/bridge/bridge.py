"""A bridge: one serial port, one mode, one broker; a thread that waits for all of them."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Self

from boards.bridge.broker_side import BrokerSide
from boards.bridge.config import PortSettings
from boards.bridge.console_end import ConsoleEnd
from boards.bridge.counters import BridgeCounters
from boards.bridge.link_mode import LinkMode
from boards.bridge.mode import LineMode
from boards.bridge.poll_thread import JOIN_S, PollThread, Report
from boards.bridge.raw_mode import RawMode
from boards.poll import POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, Poll
from boards.serial_port import PortError, SerialPort
from host_broker.address import Address

PORT_RETRY_S = 0.5
_WRITE = 4096
_IDLE_LOOK_S = 0.02
_STOP_S = 1.0  # to send what is unsent


class SerialBridge(PollThread):
    """A bridge in a thread of its own.

    ``mode`` must not be shared. ``counters`` is what ``mode`` counts in. A port or a broker that
    goes away is tried again as long as the bridge runs.
    """

    def __init__(
        self,
        port: PortSettings,
        broker: Address,
        mode: LineMode,
        counters: BridgeCounters,
        report: Report | None = None,
        console: ConsoleEnd | None = None,
        locate: Callable[[], str] | None = None,
    ) -> None:
        """``console``: of the board, where its line carries both; it is closed with the bridge.

        ``locate`` returns where the port is now, which is asked before it is opened: a board with
        USB of its own comes back from a reset under another name. It may raise ``PortError``.
        """
        super().__init__("bridge", report)
        self.console = console
        self._locate = locate
        self.settings, self.broker = port, broker
        self.mode, self.counters = mode, counters
        self._broker_side = BrokerSide(broker, mode, counters, self.notices, self.wake)
        self._port: SerialPort | None = None
        self._port_due = 0.0
        self._unplugged = False
        self._requests: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def start(self, *, wait_for_port: bool = False) -> Self:
        """Begin to pump. Raises ``PortError`` if the port cannot be opened.

        With ``wait_for_port`` it does not: the port may come later.
        """
        try:
            self._open_port()
        except PortError as error:
            if not wait_for_port:
                if self.console is not None:
                    self.console.close()
                raise
            self._port_missing(error)
        return super().start()

    def stop(self) -> None:
        """Send what is unsent (within a second), close both sides, wait for the thread."""
        super().stop()
        if self._thread.ident is None and self.console is not None:
            self.console.close()  # it never ran

    @property
    def connected(self) -> bool:
        """True while a session to the broker is open."""
        return self._broker_side.session is not None

    @property
    def port_open(self) -> bool:
        """True while the serial port is there."""
        return self._port is not None

    @property
    def line_errors(self) -> dict[str, int] | None:
        """What the port's driver has counted; None if it does not, or there is no port."""
        port = self._port
        return port.errors if port is not None else None

    @property
    def state(self) -> str:
        """What the bridge is doing, for people."""
        if not self.port_open:
            return "no port"
        if not self.connected and self.mode.stream:
            return "no broker" if self._broker_side.failing else "connecting"
        return self.mode.state

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until the next byte of the board would open a new session; False if not in time."""
        until = time.monotonic() + timeout_s
        while self.connected or not self.mode.idle:
            if time.monotonic() > until:
                return False
            time.sleep(_IDLE_LOOK_S)
        return True

    def cut(self) -> bool:
        """Kill the session now with a RST, as a dying host would; False if there was none."""
        answer: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._requests.put(lambda: answer.put(self._broker_side.cut()))
        self.wake()
        try:
            return answer.get(timeout=JOIN_S)
        except queue.Empty:
            return False

    def ask(self, what: Callable[[], None]) -> None:
        """Have the thread do ``what``, soon."""
        self._requests.put(what)
        self.wake()

    def unplug(self) -> None:
        """Lose the serial port as if its cable were pulled, until ``plug_in``."""
        self._set_unplugged(True)

    def plug_in(self) -> None:
        """Let the port be found again."""
        self._set_unplugged(False)

    def _set_unplugged(self, unplugged: bool) -> None:
        done = threading.Event()

        def change() -> None:
            self._unplugged, self._port_due = unplugged, 0.0
            if unplugged and self._port is not None:
                self._lose_port(PortError(f"serial port {self.settings.url}: unplugged"))
            done.set()

        self.ask(change)
        done.wait(JOIN_S)

    # All below runs in the thread.

    def turn(self) -> None:
        """Wait once, and move what can be moved."""
        if self._misses_port and time.monotonic() >= self._port_due:
            try:
                self._open_port()
                self.notices.say(f"serial port {self.settings.url}: open")
            except PortError as error:
                self._port_missing(error)
        self.mode.tick(time.monotonic())
        self._broker_side.follow()
        events = self._next_events()
        self._serve_requests()
        self._with_port(lambda port: self._serve_port(port, events.get(port.fileno(), 0)))
        if self.console is not None:
            self.console.serve(events, time.monotonic())
        self._broker_side.serve(events)
        self._with_port(self._send_to_board)
        now = time.monotonic()
        self.counters.to_broker_wait.look(len(self.mode.to_broker), now)
        self.counters.to_board_wait.look(len(self.mode.to_board), now)

    def _next_events(self) -> dict[int, int]:
        poll = Poll()
        if self._port is not None:
            wanted = POLLIN if self.mode.reads_board else 0
            if self.mode.to_board or self._port.unsent_bytes:
                wanted |= POLLOUT
            poll.register(self._port, wanted)
        if self.console is not None:
            self.console.register(poll)
        self._broker_side.register(poll)
        due = [self.mode.next_deadline(), *self._broker_side.deadlines()]
        if self._misses_port:
            due.append(self._port_due)
        return self.wait(poll, due)

    @property
    def _misses_port(self) -> bool:
        return self._port is None and not self._unplugged

    def _with_port(self, use: Callable[[SerialPort], None]) -> None:
        if self._port is None:
            return
        try:
            use(self._port)
        except PortError as error:
            self._lose_port(error)

    def _serve_port(self, port: SerialPort, event: int) -> None:
        if event & POLLIN and self.mode.reads_board:
            data = port.read(0)
            if data:
                now = time.monotonic()
                self.mode.board_sent(data, now)
                self.counters.to_broker_wait.look(len(self.mode.to_broker), now)
                self._broker_side.follow()
        elif event & (POLLHUP | POLLERR | POLLNVAL):
            port.read(0)  # says what is wrong, or there is something to read after all
            raise PortError(f"serial port {port.url}: it vanished while in use (hung up)")
        if event & POLLOUT:
            port.flush()

    def _send_to_board(self, port: SerialPort) -> None:
        while self.mode.to_board:
            written = port.write(bytes(self.mode.to_board[:_WRITE]))
            del self.mode.to_board[:written]
            self.counters.to_board_bytes += written
            if self.mode.to_board:
                return  # the port is full
            self.mode.refill(time.monotonic())

    def _open_port(self) -> None:
        if self._locate is not None:
            self.settings = replace(self.settings, url=self._locate())
        self._port = self.settings.open()
        self.notices.over()
        holds_back = self.settings.rtscts or self._port.holds_back
        self.mode.port_opened(time.monotonic(), holds_back=holds_back)

    def _lose_port(self, error: PortError) -> None:
        self.counters.port_failures += 1
        if self._port is not None:
            self._port.close(drain_s=0)
            self._port = None
        self._port_missing(error)
        self.mode.port_lost(time.monotonic())
        self._broker_side.follow()

    def _port_missing(self, error: PortError) -> None:
        self._port_due = time.monotonic() + PORT_RETRY_S
        self.notices.complain(str(error))

    def _serve_requests(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._requests.get_nowait()()

    def end(self) -> None:
        """Say goodbye, send what is unsent, close both sides."""
        self.mode.farewell(time.monotonic())
        if self._port is not None:
            with contextlib.suppress(PortError, TimeoutError):
                self._port.write_all(bytes(self.mode.to_board), _STOP_S)
            self._port.close(drain_s=_STOP_S)
            self._port = None
        self._broker_side.end(_STOP_S)
        if self.console is not None:
            self.console.close()
        self._serve_requests()


class RawBridge(SerialBridge):
    """A transparent pipe in a thread of its own; leaving the ``with`` block stops it.

    ``serial_url`` is a device or pyserial URL, ``baud`` in bits/s, ``host`` and ``port`` the
    broker's. ``silence_s``: seconds without a byte of the board after which its session is closed.
    ``report`` gets one line per event, from the thread. ``start`` raises ``PortError``.
    """

    def __init__(
        self,
        serial_url: str,
        baud: int,
        host: str,
        port: int,
        *,
        silence_s: float = 2.0,
        report: Report | None = None,
    ) -> None:
        counters = BridgeCounters()
        self._raw = RawMode(counters, silence_s=silence_s)
        broker = Address("tcp", host, port)
        super().__init__(PortSettings(serial_url, baud), broker, self._raw, counters, report)

    @property
    def silence_s(self) -> float:
        """Seconds; a change counts at once."""
        return self._raw.silence_s

    @silence_s.setter
    def silence_s(self, value: float) -> None:
        self._raw.silence_s = value
        self.wake()


class ReliableBridge(SerialBridge):
    """The reliable link's end in a thread of its own; leaving the ``with`` block stops it.

    ``serial_url`` is a device or pyserial URL, ``baud`` in bits/s, ``host`` and ``port`` the
    broker's. ``report`` gets one line per event, from the thread. ``start`` raises ``PortError``.
    ``console``: the line is the board's console; ``console_url`` is then where that goes on.
    ``locate``: see ``SerialBridge``. Raises ``ConsoleError``.
    """

    def __init__(
        self,
        serial_url: str,
        baud: int,
        host: str,
        port: int,
        *,
        console: bool = False,
        locate: Callable[[], str] | None = None,
        report: Report | None = None,
    ) -> None:
        counters = BridgeCounters()
        self._link = LinkMode(counters)
        end = ConsoleEnd(self._link) if console else None
        super().__init__(
            PortSettings(serial_url, baud),
            Address("tcp", host, port),
            self._link,
            counters,
            report,
            end,
            locate,
        )

    @property
    def console_url(self) -> str:
        """The terminal on which the board's console is, "" if its line carries none."""
        return self.console.path if self.console is not None else ""

    @property
    def stray_bytes(self) -> int:
        """Bytes of the board so far that were no part of the link: noise, text, damaged frames."""
        return self._link.link.counters.stray_bytes

    @property
    def resent_frames(self) -> int:
        """Frames that had to be sent to the board again, so far."""
        return self._link.link.counters.resent

    def make_noise(self, data: bytes) -> None:
        """Spoil the next frame that brings the board anything with ``data``, before and within it:
        for tests of what a bad line costs."""
        self.ask(lambda: self._link.spoil_next(data))
