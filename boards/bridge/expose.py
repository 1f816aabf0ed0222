"""The reverse direction: a serial port that one program at a time reaches by TCP.

The port is opened when a program connects and closed when it goes, so that others can use it in
between. With RFC 2217 the program also sets the rate and the control lines (esptool, mpremote).
"""

import contextlib
import socket
import time
from typing import Self

from boards.bridge.config import ExposePlan
from boards.bridge.counters import BridgeCounters
from boards.bridge.poll_thread import PollThread, Report
from boards.bridge.rfc2217_server import Rfc2217Server
from boards.bridge.token_gate import FirstLine, TokenGate
from boards.network_line import keep_alive
from boards.poll import POLLERR, POLLHUP, POLLIN, POLLOUT, Poll
from boards.rfc2217 import ComPortClient
from boards.serial_port import PortError, SerialPort
from host_broker.address import host_and_port

_BUFFER_LIMIT = 65536  # per direction; above it the source is not read
_READ = 16384
_MODEM_LINES_S = 1.0  # how often they are looked at, as pyserial's server example does
_STOP_S = 1.0


class ListenError(Exception):
    """The TCP port cannot be had; the text says why."""


class _Client:
    """The one program that has the port."""

    def __init__(
        self, tcp: socket.socket, peer: str, port: SerialPort, manager: Rfc2217Server | None
    ) -> None:
        self.tcp, self.peer, self.port, self.manager = tcp, peer, port, manager
        self.to_client = bytearray()
        self.to_board = bytearray()
        self.lines_due = 0.0
        self.since = time.monotonic()
        self.first_line: FirstLine | None = FirstLine()  # None: it is no page


class ExposedPort(PollThread):
    """A listener in a thread of its own."""

    def __init__(self, plan: ExposePlan, report: Report | None = None) -> None:
        super().__init__("exposed-port", report)
        self.plan = plan
        self.counters = BridgeCounters()
        self._listener: socket.socket | None = None
        self._client: _Client | None = None
        self._gate = TokenGate(plan.token, self._refused)
        self._asked_to_end = ""  # the one who has the port, and only that one

    def start(self) -> Self:
        """Begin to listen. Raises ``ListenError``."""
        where = host_and_port(self.plan.host, self.plan.tcp_port)
        family = socket.AF_INET6 if ":" in self.plan.host else socket.AF_INET
        try:
            self._listener = socket.create_server(
                (self.plan.host, self.plan.tcp_port), family=family
            )
        except OSError as error:
            raise ListenError(f"cannot listen on {where}: {error.strerror or error}") from None
        self._listener.setblocking(False)
        return super().start()

    @property
    def address(self) -> str:
        """Where programs connect: ``HOST:PORT``."""
        if self._listener is None:
            return host_and_port(self.plan.host, self.plan.tcp_port)
        host, port = self._listener.getsockname()[:2]
        return host_and_port(host, port)

    @property
    def state(self) -> str:
        """``waiting``, or whom it serves."""
        client = self._client
        return f"serving {client.peer}" if client is not None else "waiting"

    @property
    def held_s(self) -> float | None:
        """For how long the one who has the port has had it; None: nobody has."""
        client = self._client
        return time.monotonic() - client.since if client is not None else None

    def end_holder(self) -> str:
        """Take the port away from whoever has it; returns who that is, "" if nobody has."""
        client = self._client
        if client is None:
            return ""
        self._asked_to_end = client.peer
        self.wake()
        return client.peer

    # All below runs in the thread.

    def end(self) -> None:
        """Close the client, the port and the listener."""
        self._hang_up("the bridge stops", flush=True)
        self._gate.close()
        if self._listener is not None:
            self._listener.close()

    def turn(self) -> None:
        """Wait once, serve the client, hear those who come."""
        poll = Poll()
        if self._listener is not None:
            poll.register(self._listener, POLLIN)
        for caller in self._gate.sockets:
            poll.register(caller, POLLIN)
        client = self._client
        if client is not None:
            poll.register(client.tcp, _wanted(client.to_board, bool(client.to_client)))
            writing = bool(client.to_board or client.port.unsent_bytes)
            poll.register(client.port.fileno(), _wanted(client.to_client, writing))
        due: list[float | None] = [*self._gate.deadlines()]
        if client is not None and client.manager is not None:
            due.append(client.lines_due)
        if client is not None and client.first_line is not None:
            due.append(client.first_line.deadline)
        events = self.wait(poll, due)
        now = time.monotonic()
        if client is not None and self._asked_to_end == client.peer:
            self._hang_up("its user has ended it (motemq bridge --end)", flush=True)
            client = None
        self._asked_to_end = ""
        if client is not None:
            try:
                self._serve(client, events, now)
            except (EOFError, ConnectionError, TimeoutError):
                self._hang_up("it hung up")
            except ValueError as error:
                self._hang_up(str(error))
            except PortError as error:
                self.counters.port_failures += 1
                self.notices.complain(str(error))
                self._hang_up("the serial port is gone", flush=True)
        for tcp, peer in self._gate.hear(events, now):
            self._take_client(tcp, peer)
        if self._listener is not None and self._listener.fileno() in events:
            self._accept(now)

    def _serve(self, client: _Client, events: dict[int, int], now: float) -> None:
        port, tcp = client.port, client.tcp
        event = events.get(port.fileno(), 0)
        if event and len(client.to_client) < _BUFFER_LIMIT:
            data = port.read(0)
            client.to_client += ComPortClient.escape(data) if client.manager else data
            self.counters.to_broker_bytes += len(data)
        elif event & (POLLHUP | POLLERR):
            raise PortError(f"serial port {port.url}: it vanished while in use (hung up)")
        event = events.get(tcp.fileno(), 0)
        if event & (POLLHUP | POLLERR) and not event & POLLIN:
            raise EOFError
        if event and len(client.to_board) < _BUFFER_LIMIT:
            with contextlib.suppress(BlockingIOError):
                said = tcp.recv(_READ)
                if not said:
                    raise EOFError
                if hasattr(socket, "TCP_QUICKACK"):
                    # pyserial's next small write would wait 40 ms for the acknowledgement of this.
                    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                if client.first_line is not None:
                    client.first_line.add(said, now)
                else:
                    self._heard(client, said)
        if client.first_line is not None:
            verdict = client.first_line.look(now)
            if verdict == "page":
                self.counters.connect_failures += 1
                raise ValueError("it spoke HTTP, as pages in a browser do; nothing was passed on")
            if verdict == "program":
                said, client.first_line = client.first_line.held, None
                self._heard(client, said)
        if client.manager is not None:
            if now >= client.lines_due:
                client.lines_due = now + _MODEM_LINES_S
                client.manager.tick()
            client.to_client += client.manager.take()
        port.flush()
        if client.to_board:
            written = port.write(bytes(client.to_board[:_READ]))
            del client.to_board[:written]
            self.counters.to_board_bytes += written
        if client.to_client:
            with contextlib.suppress(BlockingIOError):
                del client.to_client[: tcp.send(bytes(client.to_client[:_READ]))]
        self.counters.to_broker_wait.look(len(client.to_client), time.monotonic())
        self.counters.to_board_wait.look(len(client.to_board), time.monotonic())

    def _heard(self, client: _Client, said: bytes) -> None:
        client.to_board += client.manager.received(said) if client.manager else said

    def _accept(self, now: float) -> None:
        if self._listener is None:
            return
        try:
            tcp, address = self._listener.accept()
        except OSError:
            return  # it went away before we came
        tcp.setblocking(False)
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(tcp)  # a client that vanished must not keep the port for ever
        peer = host_and_port(*address[:2])
        if self.plan.token:
            self._gate.add(tcp, peer, now)
        else:
            self._take_client(tcp, peer)

    def _refused(self, line: str) -> None:
        self.counters.connect_failures += 1
        self.notices.say(line)

    def _take_client(self, tcp: socket.socket, peer: str) -> None:
        if self._client is not None:
            self._refused(f"{peer} refused: {self._client.peer} has the port")
            _say_and_close(tcp, f"the port is in use by {self._client.peer}")
            return
        settings = self.plan.port
        try:
            port = settings.open()
        except PortError as error:
            self.counters.port_failures += 1
            self.notices.complain(str(error))
            _say_and_close(tcp, str(error))
            return
        self.notices.over()
        manager = Rfc2217Server(port, settings.baud) if self.plan.rfc2217 else None
        self._client = _Client(tcp, peer, port, manager)
        self.counters.sessions += 1
        self.notices.say(f"{peer} has the port")

    def _hang_up(self, why: str, *, flush: bool = False) -> None:
        client = self._client
        if client is None:
            return
        if flush:
            with contextlib.suppress(OSError):
                client.tcp.settimeout(_STOP_S)
                client.tcp.sendall(client.to_client)
        self.counters.dropped_bytes += len(client.to_client)
        with contextlib.suppress(PortError, TimeoutError):
            client.port.write_all(bytes(client.to_board), _STOP_S)
        try:
            client.port.close(drain_s=_STOP_S)
        finally:
            client.tcp.close()
            self._client = None  # only now is the port anybody's
        self.notices.say(f"{client.peer} let go of the port: {why}")


def _wanted(buffer: bytearray, writing: bool) -> int:
    reading = POLLIN if len(buffer) < _BUFFER_LIMIT else 0
    return reading | (POLLOUT if writing else 0)


def _say_and_close(tcp: socket.socket, text: str) -> None:
    with contextlib.suppress(OSError):
        tcp.send(f"{text}\r\n".encode())
        tcp.shutdown(socket.SHUT_WR)
    tcp.close()
