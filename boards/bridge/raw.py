"""Raw mode: a transparent pipe between a serial port and one TCP connection to a broker.

**Limits of raw mode.** A serial line has no connection, so the bridge guesses: the first byte of
the board opens the TCP connection, and ``silence_s`` without a byte closes it (FIN). A client
must therefore send keepalives more often than that. A board that is reset and talks again within
the silence enters its old stream; a byte lost or added on the line shifts every following FMQP
frame. When the broker closes, the board is not told: what it sends is dropped until it has been
silent for ``silence_s``, so that no stream is entered in the middle.
"""

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from boards.serial_port import PortError, SerialPort

_BUFFER_LIMIT = 65536  # per direction; above it the source is not read
_READ = 16384
_CONNECT_S = 5.0
_RETRY_S = 0.5  # between tries to open the serial port
_TICK_S = 0.2
_IDLE_LOOK_S = 0.02
_STOP_S = 5.0 + _CONNECT_S

Report = Callable[[str], None]


@dataclass(slots=True)
class BridgeCounters:
    """What went through a bridge since it was started."""

    to_broker_bytes: int = 0
    to_board_bytes: int = 0
    dropped_bytes: int = 0  # sent by the board while no session was possible
    sessions: int = 0
    silences: int = 0  # sessions that we closed because the board fell silent
    broker_closes: int = 0
    connect_failures: int = 0
    port_failures: int = 0


class RawBridge:
    """A bridge in a thread of its own; leaving the ``with`` block stops it.

    ``serial_url`` is a device or pyserial URL with a descriptor (not ``rfc2217://``), ``baud`` in
    bits/s, ``host`` and ``port`` the broker's. ``silence_s``: seconds without a byte of the board
    after which its session is closed. ``report`` gets one line per event, from the thread.
    The port is opened by ``start``, which raises ``PortError`` if it cannot be; when it vanishes
    later, it is tried again as long as the bridge runs.
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
        self.counters = BridgeCounters()
        self.silence_s = silence_s
        self._serial_url, self._baud = serial_url, baud
        self._broker = (host, port)
        self._report = report or (lambda _line: None)
        self._port: SerialPort | None = None
        self._tcp: socket.socket | None = None
        self._to_broker = bytearray()
        self._to_board = bytearray()
        self._last_byte = 0.0
        self._deaf = False  # dropping what the board sends, until it falls silent
        self._stopping = threading.Event()
        self._lock = threading.Lock()  # guards the session: cut() comes from another thread
        self._thread = threading.Thread(target=self._run, name="raw-bridge", daemon=True)

    def start(self) -> "RawBridge":
        """Open the serial port and begin to pump. Raises ``PortError``."""
        self._port = SerialPort.open(self._serial_url, baud=self._baud)
        try:
            self._port.fileno()
        except PortError:
            self._port.close()
            raise
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close both sides (FIN) and wait for the thread."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_S)

    def __enter__(self) -> "RawBridge":
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @property
    def connected(self) -> bool:
        """True while a session to the broker is open."""
        return self._tcp is not None

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until the next byte of the board would open a new session; False if not in time."""
        until = time.monotonic() + timeout_s
        while self._tcp is not None or self._deaf:
            if time.monotonic() > until:
                return False
            time.sleep(_IDLE_LOOK_S)
        return True

    @property
    def running(self) -> bool:
        """True until the bridge is stopped."""
        return self._thread.is_alive()

    def cut(self) -> bool:
        """Kill the session now with a RST, as a dying host would; False if there was none."""
        with self._lock:
            if self._tcp is None:
                return False
            # Linger 0: close() sends RST and forgets what is unsent.
            self._tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._end("cut (RST)")
            return True

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                if self._port is None:
                    self._reopen()
                else:
                    self._turn(self._port)
            except PortError as error:
                self._lost_port(error)
        with self._lock:
            if self._tcp is not None:
                self._end("the bridge stops")
        if self._port is not None:
            self._port.close()

    def _turn(self, port: SerialPort) -> None:
        """Wait for either side once and move what can be moved."""
        tcp = self._tcp
        readable: list[SerialPort | socket.socket] = []
        writable: list[SerialPort | socket.socket] = []
        if len(self._to_broker) < _BUFFER_LIMIT:
            readable.append(port)
        if self._to_board:
            writable.append(port)
        if tcp is not None:
            if len(self._to_board) < _BUFFER_LIMIT:
                readable.append(tcp)
            if self._to_broker:
                writable.append(tcp)
        try:
            can_read, can_write, _ = select.select(readable, writable, [], self._patience())
        except (OSError, ValueError):
            return  # cut() closed the socket while we waited for it
        if port in can_read:
            self._board_sent(port.read(0))
        if port in can_write:
            written = port.write(memoryview(self._to_board)[:_READ].toreadonly().tobytes())
            del self._to_board[:written]
            self.counters.to_board_bytes += written
        with self._lock:
            if tcp is not None and tcp is self._tcp:
                self._serve_broker(tcp, tcp in can_read, tcp in can_write)
            self._watch_silence()

    def _patience(self) -> float:
        if self._tcp is None and not self._deaf:
            return _TICK_S
        return min(_TICK_S, max(0.0, self._last_byte + self.silence_s - time.monotonic()))

    def _board_sent(self, data: bytes) -> None:
        if not data:
            return
        self._last_byte = time.monotonic()
        if self._tcp is None and not self._deaf:
            self._connect()
        with self._lock:
            if self._tcp is None:
                self.counters.dropped_bytes += len(data)
                self._deaf = True
            else:
                self._to_broker += data

    def _serve_broker(self, tcp: socket.socket, can_read: bool, can_write: bool) -> None:
        try:
            if can_read:
                data = tcp.recv(_READ)
                if not data:
                    self._broker_closed("closed by the broker")
                    return
                self._to_board += data
            if can_write or self._to_broker:
                sent = tcp.send(self._to_broker)
                del self._to_broker[:sent]
                self.counters.to_broker_bytes += sent
        except BlockingIOError:
            return
        except OSError as error:
            self._broker_closed(f"lost: {error}")

    def _broker_closed(self, reason: str) -> None:
        self.counters.broker_closes += 1
        self._deaf = True
        self._end(reason)

    def _watch_silence(self) -> None:
        if time.monotonic() < self._last_byte + self.silence_s:
            return
        self._deaf = False
        if self._tcp is not None and not self._to_broker:
            self.counters.silences += 1
            self._end(f"the board was silent for {self.silence_s:g} s")
            self._deaf = False

    def _connect(self) -> None:
        try:
            tcp = socket.create_connection(self._broker, _CONNECT_S)
        except OSError as error:
            self.counters.connect_failures += 1
            host, port = self._broker
            self._report(f"broker {host}:{port}: cannot connect: {error}; is it running?")
            return
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tcp.setblocking(False)
        self._tcp = tcp
        self.counters.sessions += 1
        self._report("session open")

    def _end(self, reason: str) -> None:
        """Close the session; the caller holds the lock."""
        if self._tcp is not None:
            self._tcp.close()
            self._tcp = None
            self._report(f"session closed: {reason}")
        self._deaf = True
        self._to_broker.clear()
        self._to_board.clear()

    def _lost_port(self, error: PortError) -> None:
        self.counters.port_failures += 1
        self._report(str(error))
        with self._lock:
            self._end("the serial port is gone")
            self._deaf = False
        if self._port is not None:
            self._port.close()
            self._port = None
        self._stopping.wait(_RETRY_S)

    def _reopen(self) -> None:
        with contextlib.suppress(PortError):  # reported when it went; tried until it is back
            self._port = SerialPort.open(self._serial_url, baud=self._baud)
            self._report(f"serial port {self._serial_url}: open again")
            return
        self._stopping.wait(_RETRY_S)
