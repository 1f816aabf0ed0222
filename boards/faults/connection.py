"""The two sockets of one connection: what its relay says is done here."""

import contextlib
import selectors
import socket
import struct
import time
from collections.abc import Callable

from boards.faults.relay import Relay
from boards.faults.trace import How, Side

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
