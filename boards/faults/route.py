"""One board's way to its broker: a listening port, and the two sockets of each who comes there."""

import contextlib
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from boards.faults.control import Mode
from boards.faults.relay import Relay
from boards.faults.trace import How, Side, Trace

_READ = 65536
_RST = struct.pack("ii", 1, 0)  # SO_LINGER: on, for no time


class Connection:
    """A client's connection and the one to its broker at ``to()``.

    ``serve`` does all that can be done without waiting; it is called in each turn of the loop, and
    returns False once both sides are closed.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        client: socket.socket,
        relay: Relay,
        to: Callable[[], tuple[str, int]],
    ) -> None:
        self.relay = relay
        self._selector = selector
        self._to = to
        self._sockets: dict[Side, socket.socket] = {"client": client}
        self._dialling = False
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def serve(self, now: int) -> bool:
        """Do what is due; ``now`` in ns."""
        relay = self.relay
        if relay.wants_broker and not self._dialling:
            self._dial(now)
        relay.tick(now)
        for side, sock in list(self._sockets.items()):
            self._send(side, sock)
        relay.tick(now)
        for side, how in relay.take_endings():
            self._tell(side, how)
        if relay.finished(now):
            self.close()
            relay.trace.closed_ns = now
            return False
        for side, sock in self._sockets.items():
            self._watch(side, sock)
        return True

    def close(self) -> None:
        """Close both sockets."""
        for sock in self._sockets.values():
            self._forget(sock)
        self._sockets.clear()

    def _dial(self, now: int) -> None:
        address = self._to()
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        broker = socket.socket(family, socket.SOCK_STREAM)
        broker.setblocking(False)
        broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets["broker"] = broker
        self._dialling = True
        try:
            broker.connect(address)
        except BlockingIOError:
            return
        except OSError as error:
            self._not_there(error, now)
            return
        self._dialled(now)

    def _dialled(self, now: int) -> None:
        self._dialling = False
        number = self._sockets["broker"].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._not_there(OSError(number, "the broker cannot be reached"), now)
        else:
            self.relay.dialled(now)

    def _not_there(self, error: OSError, now: int) -> None:
        self._dialling = False
        self._forget(self._sockets.pop("broker"))
        self.relay.dial_failed(str(error), now)

    def _ready(self, side: Side, events: int) -> None:
        sock, now = self._sockets.get(side), time.monotonic_ns()
        if sock is None:
            return  # closed by what another socket had to say in this turn
        if side == "broker" and self._dialling:
            self._dialled(now)
        elif events & selectors.EVENT_READ and self.relay.reads(side):
            self._receive(side, sock, now)

    def _receive(self, side: Side, sock: socket.socket, now: int) -> None:
        try:
            data = sock.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            self.relay.ended(side, "rst", now)
            return
        if data:
            self.relay.received(side, data, now)
        else:
            self.relay.ended(side, "fin", now)

    def _send(self, side: Side, sock: socket.socket) -> None:
        relay = self.relay
        data = relay.out(side)
        if not data or relay.held or (side == "broker" and not relay.trace.dialled_ns):
            return
        now = time.monotonic_ns()  # before it goes: whoever answers it is later
        try:
            count = sock.send(data)
        except BlockingIOError:
            return
        except OSError:
            relay.ended(side, "rst", now)
            return
        relay.sent(side, count, now)

    def _tell(self, side: Side, how: How) -> None:
        sock = self._sockets.get(side)
        if sock is None:
            return
        if how == "rst":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
            self._forget(self._sockets.pop(side))
        else:
            with contextlib.suppress(OSError):  # it has gone by itself
                sock.shutdown(socket.SHUT_WR)

    def _watch(self, side: Side, sock: socket.socket) -> None:
        relay = self.relay
        wanted = selectors.EVENT_READ if relay.reads(side) else 0
        if side == "broker" and self._dialling:
            wanted = selectors.EVENT_WRITE
        elif relay.out(side) and not relay.held:
            wanted |= selectors.EVENT_WRITE
        known = self._selector.get_map().get(sock)
        if known is not None and known.events == wanted:
            return
        if known is not None:
            self._selector.unregister(sock)
        if wanted:
            # Registered only then: on a dead line not even a hang-up is heard.
            self._selector.register(sock, wanted, lambda events: self._ready(side, events))

    def _forget(self, sock: socket.socket) -> None:
        if sock in self._selector.get_map():
            self._selector.unregister(sock)
        sock.close()


_MAX_CONNECTIONS = 256  # more are turned away
_KEPT = 64  # traces; the oldest go first
# What the kernel takes of a client whom nobody reads; by itself that grows to megabytes, and a
# board that is held back would hardly feel it.
_TAKEN_BYTES = 64 * 1024

# ``note(event, **about)``: one line of the log.
Note = Callable[..., None]


class RouteServer:
    """Listens on an ephemeral port of ``host`` and leads to ``to``. Raises ``OSError``."""

    def __init__(
        self, selector: selectors.BaseSelector, host: str, to: tuple[str, int], note: Note
    ) -> None:
        self.to = to
        self.mode: Mode = "forward"
        self.traces: deque[Trace] = deque(maxlen=_KEPT)
        self._selector = selector
        self._host = host
        self._note = note
        self._delay_ns = 0
        self._open: list[Connection] = []
        self._count = 0
        self._listener = _bound(host, 0)
        self.port = int(self._listener.getsockname()[1])
        self._listen()

    def set_mode(self, mode: Mode, delay_ns: int) -> int:
        """Change what happens to all connections; return since when, ns."""
        if mode != self.mode and mode == "refuse":
            # The heir is bound before the port is let go, so that nobody else gets it.
            heir = _bound(self._host, self.port)
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = heir
        elif mode != self.mode and self.mode == "refuse":
            self._listen()
        self.mode, self._delay_ns = mode, delay_ns
        for connection in self._open:
            connection.relay.held = mode == "black_hole"
            connection.relay.delay_ns = delay_ns
        now = time.monotonic_ns()
        self._note("mode", mode=mode, delay_ns=delay_ns)
        return now

    def cut(self, how: How) -> tuple[int, int]:
        """End all connections; return when, ns, and how many there were."""
        now, count = time.monotonic_ns(), len(self._open)
        for connection in self._open:
            connection.relay.cut(how, now)
        self.serve(now)
        self._note("cut", how=how, count=count)
        return now, count

    def next_deadline(self) -> int | None:
        """Return when ``serve`` is due at the latest, ns."""
        due = [connection.relay.next_deadline() for connection in self._open]
        return min((deadline for deadline in due if deadline is not None), default=None)

    def serve(self, now: int) -> None:
        """Do what is due for all connections."""
        for connection in list(self._open):
            if not connection.serve(now):
                self._open.remove(connection)
                self._note("closed", **_row(connection.relay.trace))

    def rows(self, after: int) -> list[dict[str, Any]]:
        """Return the traces whose number is above ``after``."""
        return [_row(trace) for trace in self.traces if trace.number > after]

    def close(self) -> None:
        """Close everything at once."""
        self._listener.close()
        for connection in self._open:
            connection.close()
        self._open.clear()

    def _listen(self) -> None:
        self._listener.listen(_MAX_CONNECTIONS)
        self._selector.register(self._listener, selectors.EVENT_READ, lambda _: self._accept())

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return  # it has gone again, or there are no descriptors left
        now = time.monotonic_ns()
        self._count += 1
        trace = Trace(self._count, now)
        self.traces.append(trace)
        relay = Relay(trace, delay_ns=self._delay_ns, held=self.mode == "black_hole")
        self._open.append(Connection(self._selector, client, relay, lambda: self.to))
        self._note("opened", number=trace.number)
        if self.mode == "reset" or len(self._open) > _MAX_CONNECTIONS:
            relay.cut("rst", now)


def _row(trace: Trace) -> dict[str, Any]:
    return {name: getattr(trace, name) for name in Trace.__slots__}


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _TAKEN_BYTES)
        sock.bind((host, port))
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock
