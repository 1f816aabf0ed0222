"""One board's way to its broker: a listening port, and what happens to those who come there."""

import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from boards.faults.connection import Connection
from boards.faults.control import Mode
from boards.faults.relay import Relay
from boards.faults.trace import How, Trace

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
