"""One accepted socket: reads go to the server, writes are bounded by making publishers wait."""

import asyncio
import socket
from typing import TYPE_CHECKING, cast

from host_broker.outputs import Buffer, ConnectionId

if TYPE_CHECKING:
    from host_broker.net.server import Server

# A peer that vanished without FIN or RST is noticed within about half a minute of silence
# (idle + interval * probes), or once what we sent is unacknowledged for the user timeout.
_KEEPALIVE_IDLE_S = 15
_KEEPALIVE_INTERVAL_S = 5
_KEEPALIVE_PROBES = 3
_SHORTEST_USER_TIMEOUT_S = 30.0

# Back-pressure acts between reads. Within one, 256 KiB of subscriptions can ask for all retained
# messages thousands of times; twice what fmqp.max_cached_bytes allows by default is honest.
_LARGEST_WRITE_BYTES = 128 * 1024 * 1024

# What is sent within one turn of the event loop is one write: a hundred reads of one publication
# each would otherwise be a hundred system calls. This much is worth a write of its own.
_WORTH_WRITING_BYTES = 64 * 1024


class Connection(asyncio.Protocol):
    """A socket of the broker.

    Back-pressure: while ``congested`` (more than the high mark waits to be sent), connections that
    publish to it are put on hold by ``hold``; they go on when it has drained below the low mark.
    """

    def __init__(self, server: "Server", protocol: str) -> None:
        self.id: ConnectionId = 0
        self.protocol = protocol
        self.congested = False
        self.ended = False  # the broker was told, or never knew it
        self.transport: asyncio.Transport
        self._server = server
        self._unwritten: list[Buffer] = []  # of this turn of the event loop
        self._unwritten_bytes = 0
        self._senders: set[Connection] = set()  # whose reads asked for it
        self._held_by: set[object] = set()  # what we wait for; reading is paused while not empty
        self._holding: set[Connection] = set()  # who waits for us
        self._stall_timer: asyncio.TimerHandle | None = None
        self._stalled_bytes = 0

    # ---- called by asyncio ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        settings = self._server.settings
        self.transport.set_write_buffer_limits(
            settings.outbox_high_bytes, settings.outbox_low_bytes
        )
        _tune(transport.get_extra_info("socket"), settings.stalled_receiver_s)
        self._server.opened(self)

    def data_received(self, data: bytes) -> None:
        self._server.received(self, data)

    def eof_received(self) -> None:
        # A FIN ends the connection for the broker now: wills do not wait for its outbox. What is
        # in the outbox is still sent (returning None has asyncio flush, then close).
        self._server.ended(self)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwritten.clear()
        self._cancel_stall_timer()
        self._release_all()
        self._server.lost(self)

    def pause_writing(self) -> None:
        self.congested = True
        self._stalled_bytes = self.transport.get_write_buffer_size()
        self._watch_stall()

    def resume_writing(self) -> None:
        self.congested = False
        self._cancel_stall_timer()
        self._release_all()

    # ---- called by the server ----

    def send(self, buffers: list[Buffer], sender: "Connection | None") -> None:
        """Send in this turn of the event loop; ``sender`` waits if that congests this receiver."""
        unwritten = self._unwritten
        if not unwritten:
            self._server.flush_soon(self)
        unwritten += buffers
        for buffer in buffers:
            self._unwritten_bytes += len(buffer)
        if sender is not None:
            self._senders.add(sender)
        if self._unwritten_bytes > _WORTH_WRITING_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was to be sent: one write, however many buffers."""
        buffers, size = self._unwritten, self._unwritten_bytes
        if not buffers:
            return
        self._unwritten, self._unwritten_bytes = [], 0
        if len(buffers) == 1:
            self.transport.write(buffers[0])
        elif size <= _LARGEST_WRITE_BYTES:
            self.transport.write(b"".join(buffers))
        else:
            self._server.gave_up(
                self, f"one read asked for more than {_LARGEST_WRITE_BYTES >> 20} MiB of answers"
            )
        if self.congested:
            for sender in self._senders:
                sender.wait_for(self)
        self._senders.clear()

    def close(self) -> None:
        """Close when everything is sent."""
        self.flush()
        self.transport.close()

    def wait_for(self, receiver: "Connection") -> None:
        """Read no more until ``receiver`` is no longer congested."""
        receiver._holding.add(self)
        self.hold(receiver)

    def hold(self, reason: object) -> None:
        """Read no more until ``release`` with the same reason."""
        if not self._held_by and not self.transport.is_closing():
            self.transport.pause_reading()
        self._held_by.add(reason)

    def release(self, reason: object) -> None:
        """Go on reading, unless there is another reason not to."""
        self._held_by.discard(reason)
        if not self._held_by and not self.transport.is_closing():
            self.transport.resume_reading()

    # ---- stalled receivers ----

    def _watch_stall(self) -> None:
        self._stall_timer = asyncio.get_running_loop().call_later(
            self._server.settings.stalled_receiver_s, self._stalled
        )

    def _stalled(self) -> None:
        """Give up a receiver that is still above the high mark, or that took nothing meanwhile."""
        waiting = self.transport.get_write_buffer_size()
        if waiting > self._server.settings.outbox_high_bytes or waiting >= self._stalled_bytes:
            self._server.gave_up(
                self, f"it took too little for {self._server.settings.stalled_receiver_s:g} s"
            )
            return
        self._stalled_bytes = waiting
        self._watch_stall()

    def _cancel_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _release_all(self) -> None:
        holding, self._holding = self._holding, set()
        for publisher in holding:
            publisher.release(self)


def _tune(sock: socket.socket, stalled_receiver_s: float) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)
    # It also ends a connection whose receiver lets its window closed, hence never shorter than
    # what a stalled receiver is granted.
    user_timeout_s = max(_SHORTEST_USER_TIMEOUT_S, stalled_receiver_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(user_timeout_s * 1000))
